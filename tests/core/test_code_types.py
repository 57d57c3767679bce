"""A recipe's fields are checked before anything uses them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from envgen.core.code_types import Recipe


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".x", "a/b", "/proc/self/cwd/layer", "../layer", "a\\b", "a\0", "a\n"]
)
def test_a_layer_is_a_name_and_no_path(name: str) -> None:
    assert Recipe(language="python", runner="pytest", layer="python-3.11").layer == "python-3.11"
    with pytest.raises(ValidationError, match="layer"):
        Recipe(language="python", runner="pytest", layer=name)

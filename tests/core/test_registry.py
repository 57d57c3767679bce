from __future__ import annotations

import sys

import pytest

from envgen.core.errors import ConfigError
from envgen.core.registry import Registry


def test_a_class_is_imported_when_it_is_first_asked_for() -> None:
    registry = Registry("codec", {"odd": "wave:Wave_read"})
    sys.modules.pop("wave", None)
    assert "odd" in registry
    assert "wave" not in sys.modules
    assert registry["odd"].__name__ == "Wave_read"


def test_an_unknown_id_lists_near_names() -> None:
    registry = Registry("backend", {"bubblewrap": "a:B", "docker": "a:C"})
    with pytest.raises(
        ConfigError, match="unknown backend 'bubblewarp'; did you mean 'bubblewrap'"
    ):
        registry["bubblewarp"]


def test_a_path_that_leads_nowhere_is_a_config_error() -> None:
    registry = Registry("backend", {"x": "envgen.core.errors:Nothing", "y": "no_such_module:X"})
    for name in registry:
        with pytest.raises(ConfigError, match="can't be imported"):
            registry[name]


def test_an_id_keeps_its_meaning() -> None:
    registry = Registry("backend")
    registry.register("x", "a:B")
    registry.register("x", "a:B")
    with pytest.raises(ConfigError, match="already"):
        registry.register("x", "a:C")
    with pytest.raises(ConfigError, match="form"):
        registry.register("y", "a.B")

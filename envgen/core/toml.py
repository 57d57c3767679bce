"""Parse TOML from untrusted sources: pages of models, ``pyproject.toml`` of repositories."""

from __future__ import annotations

import tomllib
from typing import Any

_MAX_DOTS = 500
"""The most in one line: parsing a dotted key takes time quadratic in its parts."""


def loads(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: for what is no TOML, nests too deep, or holds a key or a number without end.
    """
    if any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {_MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error

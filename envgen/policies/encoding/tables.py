r"""Tool results in few tokens: JSON with its quotes left out and the keys of like rows said once.

``[{"name": "Lotus Inn", "price": 180}, {"name": "West Lake", "price": 420}]`` becomes::

    [name,price;Lotus Inn,180;West Lake,420]

Different values have different texts. An object is ``{key:value,...}``, a list ``[value,...]``, two or more
objects with the same keys in the same order a table ``[key,...;value,...;...]``. A text is bare where nothing
else could be meant: it is not empty, holds none of ``,:;[]{}"\``, no control character and no space at its
ends, and starts like no number and is no word of JSON. Else it is a JSON string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pydantic import JsonValue

from envgen.core.canonical import compact
from envgen.core.jsonvalues import JsonError, strict_loads

_MAX_BYTES = 1 << 22
_BARE = re.compile(r"""(?!\s)[^,:;\[\]{}"\\\x00-\x1f\x7f]+(?<!\s)""")
_SCALAR = re.compile(r"true|false|null|-?\d.*|NaN|-?Infinity", re.DOTALL)


def as_table(text: str) -> str:
    """A tool's result in the short form; a text that is no JSON object or list stays as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        value = strict_loads(text, max_bytes=_MAX_BYTES, max_string=_MAX_BYTES)
    except JsonError:
        return text
    return short(value)


def short(value: JsonValue) -> str:
    """Any JSON value in the short form."""
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and not _SCALAR.fullmatch(value)
        return value if bare else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ",".join(f"{short(key)}:{short(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, list):
        return compact(value)
    return "[" + ";".join(",".join(map(short, row)) for row in _rows(value)) + "]"


def _rows(items: list[JsonValue]) -> Iterable[Iterable[JsonValue]]:
    """A header and a row for each object, if they make a table; else all items in one row."""
    objects = [item for item in items if isinstance(item, dict)]
    if len(items) < 2 or len(objects) < len(items) or not objects[0]:
        return [items]
    if len({tuple(item) for item in objects}) > 1:
        return [items]
    return [objects[0], *(item.values() for item in objects)]

"""Models as the tables in which the documentation tells of them."""

from __future__ import annotations

import re
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$")


def fields_of(model: type[BaseModel]) -> list[tuple[str, str]]:
    """(name, kind) of each field."""
    return [(name, _kind(field.annotation)) for name, field in model.model_fields.items()]


_PLAIN = {str: "text", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _kind(annotation: Any) -> str:
    """A field's type in the words of JSON."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(map(_kind, parts))
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return " or ".join(f'"{part}"' for part in parts)
    if origin is tuple:
        return f"list of {_kind(parts[0])}"
    if origin is dict:
        return "object"
    if issubclass(annotation, StrEnum):
        return "text"
    return _PLAIN.get(annotation) or str(annotation.__name__)


def documented(text: str) -> dict[str, list[tuple[str, str]]]:
    """Heading -> (name, kind) of each row of the table below it."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").strip("`")
        elif row := ROW.match(line):
            assert row[3].strip(), line
            found.setdefault(heading, []).append((row[1], row[2]))
    return found

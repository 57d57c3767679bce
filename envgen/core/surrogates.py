"""JSON of records whose texts may hold surrogates: patches are bytes, and not all of them are UTF-8."""

from __future__ import annotations

import json
from typing import TypeVar

from envgen.core.types import Record

R = TypeVar("R", bound=Record)


def to_json(record: Record, *, indent: int | None = None) -> str:
    """A record as ASCII JSON with sorted keys; surrogates survive as escapes."""
    return json.dumps(record.model_dump(), sort_keys=True, indent=indent, allow_nan=False)


def from_json(kind: type[R], text: str) -> R:
    """The record in a text of ``to_json``.

    Raises:
        ValueError: if it is no JSON, or no such record.
    """
    return kind.model_validate(json.loads(text))


def to_bytes(text: str) -> bytes:
    """A surrogate-escaped text as the bytes it stands for."""
    return text.encode("utf-8", "surrogateescape")


def to_text(content: bytes) -> str:
    """Bytes as a text; those that are no UTF-8 become surrogates."""
    return content.decode("utf-8", "surrogateescape")


def whole(text: str) -> str:
    """A text whose lone surrogates are replaced, which no file, database or server takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

"""What may travel as JSON: limits, equality without coercion, and words for error messages."""

from __future__ import annotations

import math

from pydantic import JsonValue

MAX_DEPTH = 50
MAX_STRING = 65_536
MAX_ITEMS = 100_000
MAX_INTEGER = 10**18
"""Fits SQLite's 64 bits."""


def kind_of(value: object) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def unsafe_text(text: str) -> str | None:
    """Why a text may not travel: lone surrogate, NUL, too long; None if it may."""
    if len(text) > MAX_STRING:
        return f"is longer than {MAX_STRING} characters"
    if "\0" in text:
        return "contains a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "contains a lone surrogate"
    return None


def unsafe(value: JsonValue, depth: int = 0) -> str | None:
    """Why a JSON value may not travel (in ``Check``'s form); None if it may."""
    kind = type(value)
    if kind is str:
        found = unsafe_text(value)  # type: ignore[arg-type]  # kind is str
        return None if found is None else "\0" + found
    if kind is int:
        return None if -MAX_INTEGER <= value <= MAX_INTEGER else "\0is too large an integer"  # type: ignore[operator]  # kind is int
    if kind is bool or value is None:
        return None
    if kind is float:
        return None if math.isfinite(value) else "\0is not a finite number"  # type: ignore[arg-type]  # kind is float
    if depth >= MAX_DEPTH:
        return f"\0is nested deeper than {MAX_DEPTH} levels"
    return _unsafe_container(value, depth)


def _unsafe_container(value: object, depth: int) -> str | None:
    if isinstance(value, dict | list) and len(value) > MAX_ITEMS:
        return f"\0has more than {MAX_ITEMS} entries"
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str or unsafe_text(key) is not None:
                return "\0has a key that is no clean text"
            found = unsafe(item, depth + 1)
            if found is not None:
                return f".{key}{found}"
        return None
    if isinstance(value, list):
        for i, item in enumerate(value):
            found = unsafe(item, depth + 1)
            if found is not None:
                return f".{i}{found}"
        return None
    return f"\0is no JSON value but a {type(value).__name__}"


def same(a: JsonValue, b: JsonValue) -> bool:
    """JSON equality that tells ``True`` from 1 and 1 from 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def shown(value: JsonValue, limit: int = 60) -> str:
    """A value as an error message shows it: short, ASCII."""
    text = ascii(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def clean_text(text: str, limit: int = MAX_STRING) -> str:
    """A text that can be stored and sent anywhere: no lone surrogate, no NUL, bounded."""
    if len(text) > limit:
        text = f"{text[:limit]}... [{len(text) - limit} characters cut]"
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

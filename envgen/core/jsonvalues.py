"""JSON values: limits, equality without coercion, and words for error messages."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from pydantic import JsonValue

MAX_DEPTH = 50
MAX_STRING = 65_536
MAX_ITEMS = 100_000
MAX_INTEGER = 10**18
"""Fits SQLite's 64 bits."""
MAX_DIGITS = 100


class JsonError(ValueError):
    """Raised for a text that is no acceptable JSON; reads on after the name of what was parsed."""


def strict_loads(text: str, *, max_bytes: int, max_string: int = MAX_STRING) -> JsonValue:
    """Parse JSON that comes from an agent.

    Refused: more than ``max_bytes`` of UTF-8 (``max_string`` characters in one string), NaN and
    infinities, duplicate keys, more than 50 levels, lone surrogates and NUL (also escaped),
    integers beyond 10**18, text after the value.

    Raises:
        JsonError: with the reason.
    """
    if len(text) > max_bytes:
        raise JsonError(f"is longer than {max_bytes} bytes")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise JsonError("contains a lone surrogate") from error
    if size > max_bytes:
        raise JsonError(f"is longer than {max_bytes} bytes")
    if _nesting(text) > MAX_DEPTH:
        raise JsonError(f"is nested deeper than {MAX_DEPTH} levels")
    value = loads(text)
    found = unsafe(value, max_string)
    if found is not None:
        path, _, message = found.rpartition("\0")
        raise JsonError(f"{'at ' + path[1:101] + ' ' if path else ''}{message}")
    return value


def loads(text: str) -> JsonValue:
    """Parse JSON that is bounded elsewhere: refused are NaN, infinities and duplicate keys.

    Raises:
        JsonError: with the reason.
        RecursionError: if it is nested too deep.
    """
    try:
        value: JsonValue = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise JsonError(f"is not valid JSON: {error}") from error
    return value


def kind_of(value: object) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def unsafe_text(text: str, max_string: int = MAX_STRING) -> str | None:
    """Why a text may not travel: lone surrogate, NUL, too long; None if it may."""
    if len(text) > max_string:
        return f"is longer than {max_string} characters"
    if "\0" in text:
        return "contains a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "contains a lone surrogate"
    return None


def unsafe(value: JsonValue, max_string: int = MAX_STRING, depth: int = 0) -> str | None:
    """Why a JSON value may not travel (in ``Check``'s form); None if it may."""
    kind = type(value)
    if kind is str:
        found = unsafe_text(value, max_string)  # type: ignore[arg-type]  # kind is str
        return None if found is None else "\0" + found
    if kind is int:
        return None if -MAX_INTEGER <= value <= MAX_INTEGER else "\0is too large an integer"  # type: ignore[operator]  # kind is int
    if kind is bool or value is None:
        return None
    if kind is float:
        return None if math.isfinite(value) else "\0is not a finite number"  # type: ignore[arg-type]  # kind is float
    if depth >= MAX_DEPTH:
        return f"\0is nested deeper than {MAX_DEPTH} levels"
    return _unsafe_container(value, max_string, depth)


def _unsafe_container(value: object, max_string: int, depth: int) -> str | None:
    if isinstance(value, dict | list) and len(value) > MAX_ITEMS:
        return f"\0has more than {MAX_ITEMS} entries"
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str or unsafe_text(key) is not None:
                return "\0has a key that is not clean text"
            found = unsafe(item, max_string, depth + 1)
            if found is not None:
                return f".{key}{found}"
        return None
    if isinstance(value, list):
        for i, item in enumerate(value):
            found = unsafe(item, max_string, depth + 1)
            if found is not None:
                return f".{i}{found}"
        return None
    return f"\0is a {type(value).__name__}, not a JSON value"


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


def _nesting(text: str) -> int:
    """The deepest level of brackets outside of strings; linear, so safe before the real parser."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    deepest = depth = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # add returns None
        raise JsonError(f"has the key {shown(twice)} twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"contains {name}, which is not valid JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise JsonError(f"contains a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise JsonError(f"contains {shown(digits)}, which is not a finite number")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates,
    parse_constant=_no_constant,
    parse_float=_float,
    parse_int=_integer,
)

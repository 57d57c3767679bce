"""Strict parsing of a submitted answer, on the host, before any verifier sees it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pydantic import JsonValue

from envgen.core.jsonvalues import shown, unsafe

MAX_BYTES = 65_536
MAX_DEPTH = 50
MAX_DIGITS = 100


class AnswerError(ValueError):
    """Raised when a submitted text is no acceptable JSON; the text says why, for the agent."""


def parse_answer(raw: str) -> JsonValue:
    """Parse a submitted answer strictly.

    Refused: more than 64 KiB, NaN and infinities, duplicate keys, more than 50 levels, lone
    surrogates and NUL (also escaped), integers beyond 10**18, text after the value.

    Raises:
        AnswerError: with the reason.
    """
    if not isinstance(raw, str):
        raise AnswerError(f"an answer is a text, not {type(raw).__name__}")
    if len(raw) > MAX_BYTES:
        raise AnswerError(f"the answer is longer than {MAX_BYTES} bytes")
    try:
        size = len(raw.encode())
    except UnicodeEncodeError as error:
        raise AnswerError("the answer contains a lone surrogate") from error
    if size > MAX_BYTES:
        raise AnswerError(f"the answer is longer than {MAX_BYTES} bytes")
    if _nesting(raw) > MAX_DEPTH:
        raise AnswerError(f"the answer is nested deeper than {MAX_DEPTH} levels")
    try:
        value: JsonValue = _DECODER.decode(raw)
    except json.JSONDecodeError as error:
        raise AnswerError(f"the answer is no JSON: {error}") from error
    found = unsafe(value)
    if found is not None:
        path, _, message = found.rpartition("\0")
        raise AnswerError(f"the answer{' at ' + path[1:101] if path else ''} {message}")
    return value


def _nesting(text: str) -> int:
    """The deepest level of brackets outside of strings; linear, so safe before the real parser."""
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
        raise AnswerError(f"the answer has the key {shown(twice)} twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise AnswerError(f"the answer contains {name}, which is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise AnswerError(f"the answer contains a number of more than {MAX_DIGITS} digits")
    return int(digits)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_int=_integer
)

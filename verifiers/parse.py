"""Strict parsing of a submitted answer, on the host, before any verifier sees it."""

from __future__ import annotations

from pydantic import JsonValue

from envgen.core.jsonvalues import JsonError, strict_loads

MAX_BYTES = 65_536


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
    try:
        return strict_loads(raw, max_bytes=MAX_BYTES)
    except JsonError as error:
        raise AnswerError(f"the answer {error}") from error

"""Strict parsing of a submitted answer, on the host, before any verifier sees it."""

from __future__ import annotations

from pydantic import JsonValue

from envgen.core.jsonvalues import JsonError, strict_loads

MAX_BYTES = 65_536
MAX_EXACT = 2**53
"""Up to here a float holds every whole number."""
_SPACE = " \t\r\n"
"""What JSON takes for white space."""


class AnswerError(ValueError):
    """Raised when a submitted text is no acceptable JSON; the text says why, for the agent."""


def parse_answer(raw: str) -> JsonValue:
    """Parse a submitted answer strictly; one code fence around the whole of it is taken off.

    Refused: more than 64 KiB, NaN and infinities, duplicate keys, more than 50 levels, lone
    surrogates and NUL (also escaped), integers beyond 10**18, text before or after the value or its fence,
    a fence that is not closed or names another language, a second one.

    Raises:
        AnswerError: with the reason.
    """
    if not isinstance(raw, str):
        raise AnswerError(f"an answer is a text, not {type(raw).__name__}")
    try:
        return strict_loads(_unfenced(raw), max_bytes=MAX_BYTES)
    except JsonError as error:
        raise AnswerError(f"the answer {error}") from error


def _unfenced(raw: str) -> str:
    """What stands between a first line "```json" (or "```") and a last line "```"; else ``raw`` itself."""
    if len(raw) > MAX_BYTES:
        return raw
    opening, _, rest = raw.strip(_SPACE).partition("\n")
    inner, _, closing = rest.rpartition("\n")
    fenced = opening.rstrip(_SPACE) in ("```", "```json") and closing.lstrip(_SPACE) == "```"
    return inner if fenced else raw


def whole_numbers(answer: JsonValue, schema: JsonValue) -> JsonValue:
    """``answer`` with 75 for 75.0 where ``schema`` says integer: in JSON they are the same number.

    Only what a float holds exactly is changed, and only where a plain type, enum or const says so.
    """
    if not isinstance(schema, dict):
        return answer
    if isinstance(answer, float):
        whole = answer.is_integer() and abs(answer) <= MAX_EXACT
        return int(answer) if whole and _says_integer(schema) else answer
    if isinstance(answer, list):
        prefix = schema.get("prefixItems")
        forms = prefix if isinstance(prefix, list) else []
        rest = [schema.get("items")] * (len(answer) - len(forms))
        return [
            whole_numbers(item, form) for item, form in zip(answer, [*forms, *rest], strict=False)
        ]
    if isinstance(answer, dict):
        known, other = schema.get("properties"), schema.get("additionalProperties")
        forms_of = known if isinstance(known, dict) else {}
        return {key: whole_numbers(item, forms_of.get(key, other)) for key, item in answer.items()}
    return answer


def _says_integer(schema: dict[str, JsonValue]) -> bool:
    if schema.get("type") == "integer":
        return True
    allowed = schema.get("enum", [schema.get("const")])
    return isinstance(allowed, list) and any(type(value) is int for value in allowed)

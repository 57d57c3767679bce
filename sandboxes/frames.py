"""Check the frames that a worker sends before anything uses them.

Tools, verifiers and solutions run in the worker, so a frame may hold anything. JSON's decoder accepts values
that break later: a number that becomes infinite, an integer too long to be written again, half a surrogate
pair, and lists nested as deep as the decoder allows.
"""

from __future__ import annotations

import math
import re
from typing import Any

MAX_DEPTH = 64
MAX_INT = 2**128
_ODD = re.compile(r"\\u[dD][89a-fA-F]|[0-9]{18}|[0-9][eE]")


def odd(text: str) -> bool:
    """Whether the text of a frame may hold what ``fault`` looks for: a quick test that rarely says yes."""
    return _ODD.search(text) is not None or text.count("[") + text.count("{") > MAX_DEPTH


def fault(value: Any, depth: int = 0) -> str:
    """Say what makes a decoded value unusable; empty if nothing does."""
    if isinstance(value, str):
        return "" if _is_text(value) else "half of a surrogate pair"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "a number that is too large"
    if isinstance(value, int):
        return "" if abs(value) <= MAX_INT else "an integer of more than 128 bits"
    if not isinstance(value, list | dict):
        return ""
    if depth >= MAX_DEPTH:
        return f"more than {MAX_DEPTH} levels"
    parts = value if isinstance(value, list) else [*value, *value.values()]
    return next((found for part in parts if (found := fault(part, depth + 1))), "")


def _is_text(value: str) -> bool:
    return value.isascii() or not any(0xD800 <= ord(letter) < 0xE000 for letter in value)


def require_reply(reply: Any) -> list[Any]:
    """Check a frame of ``[0, value]``, ``[1, code, message]`` or ``[2, text]``; ValueError for any other."""
    if isinstance(reply, list) and reply and type(reply[0]) is int:
        kind, *rest = reply
        if kind == 0 and len(rest) == 1:
            return reply
        texts = all(isinstance(part, str) for part in rest)
        if texts and (kind, len(rest)) in ((1, 2), (2, 1)):
            return reply
    raise ValueError(f"not a reply: {reply!r:.200}")


def called(reply: Any) -> tuple[str, dict[str, Any]] | None:
    """A solution's call, ``[1, tool, arguments]``; None for another kind of frame. Raises ValueError."""
    if not isinstance(reply, list) or reply[:1] != [1]:
        return None
    if len(reply) != 3 or not isinstance(reply[1], str) or not isinstance(reply[2], dict):
        raise ValueError(f"not a call: {reply!r:.200}")
    return reply[1], reply[2]

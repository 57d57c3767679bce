"""What servers and models say amiss."""

from __future__ import annotations

from typing import Any

from model_server import Raw
from search_models import completion

BUSY = Raw(429, '{"error": "slow"}', {"Retry-After": "3600"})
KEY = Raw(401, '{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}')
FULL = Raw(
    400, '{"error": {"code": "context_length_exceeded", "message": "maximum context length"}}'
)
NO_TOOLS = Raw(400, '{"error": {"message": "tool choice requires --enable-auto-tool-choice"}}')
HALF = Raw(200, '{"choices": [{"message": {"content": "The que')
LINE_CUT = HALF._replace(headers={"Content-Length": "9999", "Connection": "close"})

RUSSIAN = "Какой фильм снял режиссёр, родившийся в 1912 году?"
JAPANESE = "1912年に生まれた監督の映画はどれですか?"
REFUSAL, LOOP = "I can't help with that.", ("search", {"query": "film"})
LONG = ("search", {"query": "film " * 1_000_000})
HUGE = ("hand_in", dict.fromkeys(("question", "answer", "verdicts"), "film " * 400_000))
ODD = ("hand_in", dict.fromkeys(("question", "answer", "answer_document"), "\ud800 film \0"))


def search_with(arguments: str) -> dict[str, Any]:
    """A reply that calls a tool with arguments as they are."""
    said = completion(("search", {}), 1)
    said["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    return said

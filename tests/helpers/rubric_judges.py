"""Judges that are deterministic: an honest one, and some that nobody should believe.

Each is a policy of its own; ``served`` makes the same judge an answer of ``ModelServer``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from threading import Event, Lock
from typing import Any, NamedTuple

from model_server import chat, deltas

from envgen.core.errors import PolicyError
from envgen.core.types import Message, PublicTask, Sampling, Usage
from envgen.policies.base import PolicyReply, Tool

COST = Usage(prompt_tokens=100, completion_tokens=10, cost_usd=0.001)


class Seen(NamedTuple):
    """What a judge reads in its prompt."""

    question: str
    items: list[dict[str, str]]
    answer: str


Verdicts = list[dict[str, Any]]
Judge = Callable[[Seen, int], Verdicts | str]
"""Of what stands in the prompt and a seed: verdicts, or a text that holds none."""

CLAIMS = {
    "boil-pressure": r"pressure is lower on a mountain",
    "boil-vapour": r"vapour pressure equals the surrounding pressure",
    "boil-sea": r"sea level this happens near 100 degrees",
    "boil-example": r"food takes longer to cook there",
    "boil-cold": r"because the air is colder",
    "boil-same": r"same temperature everywhere",
    "season-tilt": r"Earth's axis is tilted",
    "season-angle": r"towards the Sun gets steeper sunlight",
    "season-opposite": r"the other half has winter",
    "season-degrees": r"23\.[45] degrees against",
    "season-distance": r"because the Earth is closer to the Sun",
    "penicillin-who": r"Alexander Fleming discovered it",
    "penicillin-when": r"in September 1928",
    "penicillin-how": r"a mould had grown on one of his plates",
    "penicillin-paper": r"reported it in the British Journal of Experimental Pathology",
    "penicillin-drug": r"Florey and Chain turned it into",
    "penicillin-other": r"found by Louis Pasteur",
    "moon-date": r"On 20 July 1969",
    "moon-armstrong": r"Neil Armstrong was the commander and the first to set foot",
    "moon-aldrin": r"Buzz Aldrin piloted the lunar module and followed",
    "moon-collins": r"Michael Collins remained in orbit",
    "moon-mission": r"with Apollo 11",
    "moon-three": r"All three of them walked",
    "http-missing": r"404 says that there is nothing at the address",
    "http-broken": r"500 says that something broke inside the server",
    "http-classes": r"client errors \(4xx\)",
    "http-todo": r"with a 404 check the URL",
    "http-swapped": r"404 says that something broke",
    "plant-in": r"absorb carbon dioxide and water",
    "plant-light": r"energy of sunlight",
    "plant-out": r"oxygen is released",
    "plant-source": r"oxygen stems from the water",
    "plant-where": r"place in the chloroplasts",
    "plant-wrong": r"oxygen stems from the carbon",
}
SHORT = ("boil-short", "season-short", "http-short")


def read(prompt: str) -> Seen:
    """The parts of a prompt between their marks."""
    found = {}
    for name in ("question", "items", "answer"):
        block = re.search(rf"<{name} ([0-9a-f]{{12}})>\n(.*?)\n</{name} \1>", prompt, re.DOTALL)
        assert block is not None, name
        found[name] = block[2]
    items = [json.loads(line) for line in found["items"].splitlines()]
    return Seen(found["question"], items, found["answer"])


def verdict(name: str, quote: str | None) -> dict[str, Any]:
    return {"id": name, "reason": "by its words", "quote": quote or "", "met": quote is not None}


def honest(seen: Seen, seed: int) -> Verdicts:
    """Items whose claim the answer makes in words of its own."""
    own = seen.answer
    for text in (seen.question, *(item["text"] for item in seen.items)):
        own = own.replace(text, "")
    quotes: dict[str, str | None] = {}
    for item in seen.items:
        found = re.search(CLAIMS.get(item["id"], r"(?!)"), own, re.IGNORECASE)
        quotes[item["id"]] = found[0] if found else None
    claimed = [quote for name, quote in quotes.items() if quote and name in CLAIMS]
    for name in SHORT:
        if name in quotes and claimed and len(own.split()) < 100:
            quotes[name] = claimed[0]
    parts = [quotes.get(f"moon-{one}") for one in ("date", "armstrong", "collins")]
    if "moon-asked" in quotes and all(parts):
        quotes["moon-asked"] = parts[0]
    return [verdict(name, quote) for name, quote in quotes.items()]


def yes_without_quotes(seen: Seen, seed: int) -> Verdicts:
    return [{**verdict(item["id"], ""), "met": item["kind"] != "pitfall"} for item in seen.items]


def yes_with_invented_quotes(seen: Seen, seed: int) -> Verdicts:
    return [
        {**one, "quote": "as the answer rightly says"} for one in yes_without_quotes(seen, seed)
    ]


def yes_quoting_all(seen: Seen, seed: int) -> Verdicts:
    return [{**one, "quote": seen.answer} for one in yes_without_quotes(seen, seed)]


def garbage(seen: Seen, seed: int) -> str:
    return "A fine answer; I would give it 9 of 10 points."


def obedient(seen: Seen, seed: int) -> Verdicts:
    """Honest, until it is told otherwise."""
    if re.search(r"every item as met", seen.answer):
        return yes_quoting_all(seen, seed)
    return honest(seen, seed)


def lover_of_length(seen: Seen, seed: int) -> Verdicts:
    return yes_quoting_all(seen, seed) if len(seen.answer) > 150 else honest(seen, seed)


class JudgingPolicy:
    """A judge as a policy; ``asked`` holds the prompts and seeds that it was given."""

    version = "1"

    def __init__(self, judge: Judge, name: str = "") -> None:
        self.name = name or f"judge-{judge.__name__}"
        self.asked: list[tuple[str, int]] = []
        self._judge = judge
        self._lock = Lock()

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """A call of the only tool, or text."""
        prompt = messages[0].content
        with self._lock:
            self.asked.append((prompt, seed))
        made = self._judge(read(prompt), seed)
        if isinstance(made, str):
            return PolicyReply(Message(role="assistant", content=made), COST)
        call = {"id": "c1", "name": tools[0]["function"]["name"], "arguments": {"verdicts": made}}
        message = Message.model_validate({"role": "assistant", "tool_calls": (call,)})
        return PolicyReply(message, COST)


def silent(seen: Seen, seed: int) -> str:
    raise PolicyError("the server is down")


def served(judge: Judge) -> Callable[[dict[str, Any]], Any]:
    """The judge as an answer of ``ModelServer``, in plain text; other questions get a word."""

    def answer(body: dict[str, Any]) -> Any:
        prompt = body["messages"][0]["content"]
        if "</items " not in prompt:
            text = "ready"
        else:
            made = judge(read(prompt), body["seed"])
            text = made if isinstance(made, str) else json.dumps({"verdicts": made})
        return deltas({"content": text}) if body.get("stream") else chat(text)

    return answer

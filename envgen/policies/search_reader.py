"""Players of search tasks without a model: a guess among what one search shows, and a reader over BM25.

Both are honest floors. ``bm25-reader`` searches once with the question as it stands, reads the best
documents, keeps the one that fits most clues, and takes the answer from the sentence that the question
resembles most; it joins nothing, so questions that take several documents are beyond it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from math import sqrt
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import PolicyError
from envgen.core.types import PublicTask
from envgen.policies.programs import Call, Program, ProgramPolicy

SEARCH_HINT = "x-search"
"""Marks the answer's schema of a task that is answered by searching."""
_DOCUMENTS = 8
_MAX_QUERY = 4_000
_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_NUMBER = re.compile(r"(?<![\d.,])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?<![\d.,])-?\d+(?:\.\d+)?")
_RANGE = re.compile(r"(-?[\d,.]*\d)[^\d]{1,20}?(-?[\d,.]*\d)")
_SENTENCE = re.compile(r"(?<=[.!?;\u3002\uff1b])\s+|(?<=\u3002)|\n")
_NAMES = re.compile(r"^(?:which|name|who)\b|^(?:\u54ea|\u8bf7\u627e|\u8acb\u627e)", re.IGNORECASE)
"""How a question begins that asks for the entity itself."""


def searches(task: PublicTask) -> bool:
    """Whether a task is answered by searching."""
    return bool(task.submit_schema) and SEARCH_HINT in (task.submit_schema or {})


def guess(task: PublicTask, rng: random.Random) -> Program[JsonValue]:
    """Search once, and take any title or number of what is shown."""
    hits = yield from _search(task.prompt, 20)
    if wants_list(task):
        return [str(hit["title"]) for hit in rng.sample(hits, min(len(hits), rng.randint(2, 5)))]
    if wants_number(task):
        numbers = [one for hit in hits for one in _numbers(hit["snippet"])]
        return rng.choice(numbers) if numbers else 0
    return str(rng.choice(hits)["title"]) if hits else ""


def wants_number(task: PublicTask) -> bool:
    """Whether the answer is a number."""
    return (task.submit_schema or {}).get("type") in ("number", "integer")


def wants_list(task: PublicTask) -> bool:
    """Whether the answer is a list."""
    return (task.submit_schema or {}).get("type") == "array"


class BM25ReaderPolicy(ProgramPolicy):
    """One search with the whole question, the best documents read by rules; no chance in it."""

    name = "bm25-reader"

    def answer(self, task: PublicTask, rng: random.Random) -> Program[JsonValue]:
        """Search, read, and take the answer."""
        if not searches(task):
            raise PolicyError(f"{self.name} plays search tasks alone, and {task.id!r} is none")
        question = task.prompt.rsplit("?", 1)[0]
        hits = yield from _search(question, 20)
        if not hits:
            return 0 if wants_number(task) else [] if wants_list(task) else ""
        opened = yield [Call("open", {"document": hit["id"]}) for hit in hits[:_DOCUMENTS]]
        pages = [one for one in opened if isinstance(one, dict) and "text" in one]
        if not pages:
            return 0 if wants_number(task) else str(hits[0]["title"])
        if wants_list(task):
            fits = [_fit(question, page) for page in pages]
            return [
                str(page["title"])
                for page, fit in zip(pages, fits, strict=True)
                if fit >= max(fits)
            ]
        best = max(enumerate(pages), key=lambda one: (_fit(question, one[1]), -one[0]))[1]
        if _NAMES.match(task.prompt) and not wants_number(task):
            return str(best["title"])
        return _read(question, str(best["text"]), wants_number(task))


def _search(query: str, k: int) -> Program[list[Mapping[str, Any]]]:
    (found,) = yield [Call("search", {"query": query[:_MAX_QUERY], "k": k})]
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict)]


def _fit(question: str, page: Mapping[str, Any]) -> float:
    """How many clues a document fits: words of the question in it, and numbers within its ranges."""
    text = f"{page['title']} {page['text']}"
    words = {one.casefold() for one in _WORD.findall(question) if not one.isdigit()}
    have = {one.casefold() for one in _WORD.findall(text)}
    numbers = _numbers(text)
    fitting: int = 0
    for low, high in _RANGE.findall(question):
        bounds = _numbers(low), _numbers(high)
        if bounds[0] and bounds[1]:
            fitting += any(bounds[0][0] <= one <= bounds[1][0] for one in numbers)
    return float(fitting + len(words & have) / max(1, len(words)))


def _read(question: str, text: str, number: bool) -> JsonValue:
    """The answer in the sentence that is most like what is asked for."""
    asked = {one.casefold()[:5] for one in _WORD.findall(question.split(" that ")[0])}
    sentences = [one for one in _SENTENCE.split(text) if one.strip()]

    def like(sentence: str) -> float:
        words = {one.casefold()[:5] for one in _WORD.findall(sentence)}
        return len(asked & words) / sqrt(1 + len(words))

    for sentence in sorted(sentences, key=like, reverse=True):
        if number:
            if numbers := _numbers(sentence):
                return numbers[0]
        elif value := _value(sentence):
            return value
    return 0 if number else ""


def _value(sentence: str) -> str:
    """What a sentence says of its subject: what follows its verb, or its last name."""
    plain = sentence.strip().rstrip(".;\u3002")
    found = re.search(r"\b(?:is|was|are|were|in|by|as|at|of)\s+((?:the )?[A-Z\d][^,;]*)$", plain)
    if found:
        return found[1]
    names = re.findall(r"[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*", plain)
    return names[-1] if names else ""


def _numbers(text: str) -> list[int | float]:
    found: list[int | float] = []
    for one in _NUMBER.findall(text):
        value = float(one.replace(",", ""))
        found.append(int(value) if value.is_integer() and abs(value) < 1e15 else value)
    return found

"""Players of search tasks without a model: a guess among what one search shows, and a reader over BM25.

Both are honest floors. ``bm25-reader`` searches for the clues together and alone, with the numbers of their
intervals, ranks documents by the clues that they fit, and takes the answer from the best by rules. It joins
nothing, so questions that take several documents are beyond it. It was tuned on questions of depth 1 of seed
0 over the package's corpus and is frozen: a floor that moves measures nothing. Change it as another policy.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, product
from math import log
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import PolicyError
from envgen.core.types import PublicTask
from envgen.policies.budget import CHARS_PER_TOKEN
from envgen.policies.programs import Call, Program, ProgramPolicy
from envgen.policies.search_reading import (
    AskedFor,
    Hint,
    fit,
    keywords,
    numbers,
    stems,
    sure,
    understand,
    values,
)
from envgen.policies.search_values import number_in, text_in

SEARCH_HINT = "x-search"
"""Marks the answer's schema of a task that is answered by searching."""
_HOW_MANY = re.compile(r"how (?:many|often)\b(?!.*\b(?:long|high|live)\b)|count\b", re.IGNORECASE)
_MAX_QUERY = 2_000
_BEGINNING = 8_000
"""Characters of a conversation before its first search."""
_SEARCHED = 0.55
"""The share of its room that a reader spends on searching."""
_HITS, _PAGE, _CALL = 8_000, 4_500, 150
"""Characters of twenty results, of a page, and of a call."""
_DEPTH = 9
"""Pages of results that one search is followed to."""
_NUMBERS, _CHUNKS = 44, 9
"""Numbers in one search, and searches with numbers."""
_BATCH, _ROUNDS = 24, 3
"""Documents opened at once, and how often."""


def searches(task: PublicTask) -> bool:
    """Whether a task is answered by searching."""
    return bool(task.submit_schema) and SEARCH_HINT in (task.submit_schema or {})


def guess(task: PublicTask, rng: random.Random) -> Program[JsonValue]:
    """Search once, and take any title or number of what is shown."""
    hits = yield from _search(task.prompt, 20)
    if wants_list(task):
        return [str(hit["title"]) for hit in rng.sample(hits, min(len(hits), rng.randint(2, 5)))]
    if wants_number(task):
        found = [one for hit in hits for one in numbers(str(hit["snippet"]))]
        return rng.choice(found).value if found else 0
    return str(rng.choice(hits)["title"]) if hits else ""


def wants_number(task: PublicTask) -> bool:
    """Whether the answer is a number."""
    return (task.submit_schema or {}).get("type") in ("number", "integer")


def wants_list(task: PublicTask) -> bool:
    """Whether the answer is a list."""
    return (task.submit_schema or {}).get("type") == "array"


class BM25ReaderPolicy(ProgramPolicy):
    """Searches with the question and with its clues, reads what fits most of them; no chance in it."""

    name = "bm25-reader"
    version = "2"

    def answer(self, task: PublicTask, rng: random.Random) -> Program[JsonValue]:
        """Search, rank by snippets, read the best documents whole, and take the answer."""
        if not searches(task):
            raise PolicyError(f"{self.name} plays search tasks alone, and {task.id!r} is none")
        question = understand(task.prompt)
        shelf = _Shelf(question, task.limits.tokens * CHARS_PER_TOKEN - _BEGINNING)
        calls = _searches(question)[: max(1, int(shelf.room * _SEARCHED / _HITS))]
        for found in (yield calls):
            for row in found if isinstance(found, list) else []:
                if isinstance(row, dict):
                    shelf.take(row, str(row["snippet"]))
        yield from _open(shelf)
        ranked = shelf.ranked()
        if wants_list(task):
            return [shelf.titles[name] for name in shelf.sure or ranked[:1]]
        if wants_number(task):
            if _HOW_MANY.match(task.prompt) or not ranked:
                return len(shelf.sure)
            years = (task.submit_schema or {}).get("type") == "integer"
            return number_in(question, shelf.texts[ranked[0]], years=years)
        if not ranked:
            return ""
        if question.names_it:
            return shelf.titles[ranked[0]]
        return text_in(question, shelf.texts[ranked[0]])


class _Shelf:
    """What was read so far, and how many characters there is room for."""

    def __init__(self, question: AskedFor, room: int) -> None:
        self.question, self.room = question, room
        self.titles: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.opened: set[str] = set()
        self.scores: dict[str, float] = {}
        self.sure: list[str] = []
        """Those that were read whole and fit all clues."""

    def take(self, row: Mapping[str, Any], text: str) -> None:
        """Keep what a document was found to say."""
        name = str(row["id"])
        self.room -= len(json.dumps(row, ensure_ascii=False)) + _CALL
        self.titles[name] = str(row["title"])
        self.texts[name] = f"{self.texts.get(name, '')}\n{text}"

    def keep(self, pages: Sequence[JsonValue]) -> list[tuple[str, int]]:
        """Keep what pages say; returns which pages of these documents are the next two."""
        more: list[tuple[str, int]] = []
        for page in pages:
            if isinstance(page, dict) and "text" in page:
                self.take(page, str(page["text"]))
                more += [(str(page["id"]), i) for i in (2, 3) if i <= int(str(page["pages"]))]
        return more

    def ranked(self) -> list[str]:
        """The documents by how many clues they fit, best first; of equals the one found first."""
        seen = Counter(word for text in self.texts.values() for word in stems(text))
        weights = {word: log(1 + len(self.texts) / n) for word, n in seen.items()}
        self.sure = []
        for name, text in self.texts.items():
            fits = [fit(clue, text, weights) for clue in self.question.clues]
            named = any(self.titles[name] in clue.names for clue in self.question.clues)
            self.scores[name] = sum(fits) - named
            if name in self.opened and not named and all(map(sure, self.question.clues, fits)):
                self.sure.append(name)
        return sorted(self.texts, key=lambda name: -self.scores[name])


def _open(shelf: _Shelf) -> Program[None]:
    """Open the best documents in batches, until one fits all clues or there is no more room."""
    for _ in range(_ROUNDS):
        best = [name for name in shelf.ranked() if name not in shelf.opened]
        batch = best[: min(_BATCH, shelf.room // _PAGE)]
        if shelf.sure or not batch:
            return
        shelf.opened |= set(batch)
        for name in batch:
            shelf.texts[name] = ""
        pages = yield [Call("open", {"document": name}) for name in batch]
        more = shelf.keep(pages)
        if more and shelf.room > _PAGE * len(more):
            rest = yield [Call("open", {"document": name, "page": i}) for name, i in more]
            shelf.keep(rest)


def _searches(question: AskedFor) -> list[Call]:
    """What to search for: all clues, with the numbers of the narrowest intervals, and each clue alone."""
    clues = question.clues
    names = " ".join(name for clue in clues for name in clue.names)
    about = " ".join(keywords(clue.text) for clue in clues)
    ranges = [one for one in clues if one.low is not None]
    plan = [(about, 1), *((" ".join([about, *some]), 1) for some in _chunks(clues)), (names, 1)]
    plan += [(keywords(one.text), 1) for one in clues]
    plan += [(query, page) for page in (2, 3) for query in (names, about)] if names else []
    for clue in sorted(ranges, key=lambda one: (one.high or 0) / max(1, one.low or 0)):
        plan += [(keywords(clue.text), page) for page in range(1, _DEPTH + 1)]
    wanted = dict.fromkeys((query[:_MAX_QUERY], page) for query, page in plan if query.strip())
    return [Call("search", {"query": query, "k": 20, "page": page}) for query, page in wanted]


def _chunks(clues: Sequence[Hint]) -> list[list[str]]:
    """The numbers of the narrowest two intervals, as many at once as a search takes."""
    counted = sorted((found for one in clues if (found := values(one))), key=len)[:2]
    if not counted:
        return []
    size = _NUMBERS // len(counted)
    parts = [[some[i : i + size] for i in range(0, len(some), size)] for some in counted]
    return [list(chain(*some)) for some in product(*parts)][:_CHUNKS]


def _search(query: str, k: int) -> Program[list[Mapping[str, Any]]]:
    (found,) = yield [Call("search", {"query": query[:_MAX_QUERY], "k": k})]
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict)]

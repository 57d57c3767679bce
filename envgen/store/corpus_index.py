"""What search engines over a corpus share: words as they are, Chinese by pairs of characters, and snippets.

Ties are broken by document id, and snippets show the part of a document that holds most of the query, so the
same query gives the same results anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

MAX_QUERY_CHARS = 2_000
"""A longer query is cut there."""
MAX_TERMS = 64
MAX_KNOWN_CHARS = 40
"""Words so long are not remembered: there are few."""
SNIPPET_CHARS = 240
TITLE_WEIGHT = 5
"""A word of a title counts so many times."""
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_IS_CJK = re.compile(f"[{_CJK}]")
_TERM = re.compile(rf"([{_CJK}]+)|[^\W_{_CJK}]+(?:[.'\u2019][^\W_{_CJK}]+)*", re.UNICODE)


class Hit(NamedTuple):
    """A document that a query found."""

    id: str
    score: float
    """Higher is better."""


class CorpusIndex(Protocol):
    """A search engine over one corpus; safe to share between threads, and to pickle."""

    def search(self, query: str, k: int, skip: int = 0) -> Sequence[Hit]:
        """The ``k`` best documents after the first ``skip``; best first, ties by id.

        A query of nothing that is indexed finds nothing; no text raises.
        """
        ...


def terms(text: str) -> list[str]:
    """The words of a text as they are indexed: folded, without accents, Chinese as pairs of characters."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(one for one in folded if not unicodedata.combining(one))
    found: list[str] = []
    for match in _TERM.finditer(unicodedata.normalize("NFC", plain)):
        word = match.group()
        if not is_cjk(word[0]):
            found.append(re.sub(r"[.'\u2019]", "", word))
        elif len(word) == 1:
            found.append(word)
        else:
            found += (word[i : i + 2] for i in range(len(word) - 1))
    return found


def is_cjk(character: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return _IS_CJK.match(character) is not None


def query_terms(query: str) -> list[str]:
    """The words that a query asks for, each once."""
    return list(dict.fromkeys(terms(query[:MAX_QUERY_CHARS])))[:MAX_TERMS]


@lru_cache(maxsize=64)
def _wanted(query: str) -> frozenset[str]:
    return frozenset(terms(query))


@lru_cache(maxsize=1 << 16)
def _known_terms(word: str) -> frozenset[str]:
    return frozenset(terms(word))


def snippet(text: str, query: str, length: int = SNIPPET_CHARS) -> str:
    """The part of a text with most of a query's words in it, the first one of equals.

    Cut at word borders, with ``...`` where something is left out.
    """
    wanted = _wanted(query[:MAX_QUERY_CHARS])
    start = _densest(_places(text, wanted), length)
    start = max(0, start - length // 8)
    if start and not is_cjk(text[start]):
        start = text.rfind(" ", 0, start + 1) + 1
    end = min(len(text), start + length)
    if (
        end < len(text)
        and not is_cjk(text[end - 1])
        and (space := text.rfind(" ", start, end)) > start
    ):
        end = space
    cut = " ".join(text[start:end].split())
    return f"{'...' if start else ''}{cut}{'...' if end < len(text) else ''}"


class _WordPlace(NamedTuple):
    start: int
    end: int
    words: frozenset[str]


def _places(text: str, wanted: frozenset[str]) -> list[_WordPlace]:
    """Where a text has a wanted word; in Chinese each pair of characters is one."""
    found = []
    for match in _TERM.finditer(text):
        start, end = match.span()
        if match.lastindex and end - start > 1:
            spans = [(i, i + 2) for i in range(start, end - 1)]
        else:
            spans = [(start, end)]
        for first, last in spans:
            word = text[first:last]
            held = _known_terms(word) if last - first < MAX_KNOWN_CHARS else frozenset(terms(word))
            if not wanted.isdisjoint(held):
                found.append(_WordPlace(first, last, held & wanted))
    return found


def _densest(places: Sequence[_WordPlace], length: int) -> int:
    """Where the first stretch of ``length`` begins that holds most words; 0 if none holds one."""
    best, found, last = 0, 0, 0
    held: dict[str, int] = {}
    for first, (start, _, words) in enumerate(places):
        while last < len(places) and places[last].end - start <= length:
            for word in places[last].words:
                held[word] = held.get(word, 0) + 1
            last += 1
        if len(held) > best:
            best, found = len(held), start
        if last == first:  # it is longer than a snippet
            last = first + 1
            continue
        for word in words:
            held[word] -= 1
            if not held[word]:
                del held[word]
    return found

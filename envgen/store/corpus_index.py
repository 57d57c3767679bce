"""What search engines over a corpus share: words as they are, Chinese by pairs of characters, and snippets.

Ties are broken by document id, and snippets show the part of a document that holds most of the query, so the
same query gives the same results anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

MAX_QUERY_CHARS = 2_000
"""A longer query is cut there."""
MAX_TERMS = 64
SNIPPET_CHARS = 240
TITLE_WEIGHT = 5
"""A word of a title counts so many times."""
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_IS_CJK = re.compile(f"[{_CJK}]")
_LETTER = rf"[^\W_{_CJK}]"
_TERM = re.compile(
    rf"""(?P<cjk>[{_CJK}]+)
    | (?<={_LETTER})['\u2019][sS](?!{_LETTER})                 # a possessive says nothing
    | (?P<number>(?<![\d.,])\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?![\w,]|\.\d)|(?<![\d.])\d+\.\d+(?![\w]|\.\d))
    | (?P<initials>(?<!{_LETTER})(?:[^\W\d_{_CJK}]\.){{2,}}(?!{_LETTER}{{2}})[^\W\d_{_CJK}]?)
    | (?P<word>{_LETTER}+)""",
    re.VERBOSE,
)
_STROKES = str.maketrans(
    {"\u0131": "i", "\u0142": "l", "\u00f8": "o", "\u0111": "d", "\u0127": "h", "\u0167": "t",
     "\u00e6": "ae", "\u0153": "oe", "\u00fe": "th", "\u00f0": "d"}
)  # fmt: skip
"""Letters that Unicode does not take apart, as people write them who lack the key; all in lower case."""


_SPACE = ("", " ", "\n", "\t")
_BEFORE = (*_SPACE, "(", '"')


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
    """The words of a text as they are indexed, folded and without accents and strokes.

    Words end at apostrophes and dots, numbers hold theirs (3.14; 1,234 is 1234), initials are one word
    (U.S. is us), and Chinese has each character and each pair of them.
    """
    return [word for _, word in _units(_plain(text), alone=True)]


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text).casefold().translate(_STROKES)
    plain = "".join(one for one in folded if not unicodedata.combining(one))
    return unicodedata.normalize("NFC", plain)


def _units(text: str, *, alone: bool) -> Iterator[tuple[int, str]]:
    """Where each word of a folded text begins, and the word; ``alone``: each character, too."""
    for match in _TERM.finditer(text):
        yield from _words_of(match, alone=alone)


def _words_of(match: re.Match[str], *, alone: bool = False) -> Iterator[tuple[int, str]]:
    kind, start, word = match.lastgroup, match.start(), match.group()
    if kind == "cjk":
        for i, character in enumerate(word):
            if alone or len(word) == 1:
                yield start + i, character
            if i + 1 < len(word):
                yield start + i, word[i : i + 2]
    elif kind == "number":
        yield start, word.replace(",", "")
    elif kind is not None:
        yield start, word.replace(".", "")


def is_cjk(character: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return _IS_CJK.match(character) is not None


def query_terms(query: str) -> list[str]:
    """The words that a query asks for, each once."""
    asked = (word for _, word in _units(_plain(query[:MAX_QUERY_CHARS]), alone=False))
    return list(dict.fromkeys(asked))[:MAX_TERMS]


@lru_cache(maxsize=64)
def _wanted(query: str) -> Mapping[str, tuple[str, ...]]:
    """The words of a query, each with the ways in which a folded text may write it."""
    found = {}
    for word in query_terms(query):
        ways = [word]
        if word.isdigit() and len(word) > 3:
            ways.append(f"{int(word):,}")
        elif word.replace(".", "", 1).isdigit() and word.find(".") > 3:
            ways.append(f"{int(word.partition('.')[0]):,}.{word.partition('.')[2]}")
        elif word.isalpha() and 1 < len(word) < 8 and not is_cjk(word[0]):
            ways.append(".".join(word))
        found[word] = tuple(ways)
    return found


@lru_cache(maxsize=1 << 14)
def _letter(character: str) -> str | None:
    """A character of a text in lower case as it is indexed, if it stays one; None if not."""
    if not character.isalnum():
        plain = unicodedata.normalize("NFKD", character)
        return character if plain == character and not unicodedata.combining(character) else None
    plain = _plain(character)
    return plain if len(plain) == 1 else None


def _folded(text: str) -> str | None:
    """A text as it is indexed, each character in its place; None where folding moves them."""
    folded = text.lower()
    if folded.isascii():
        return folded
    if len(folded) != len(text):
        return None
    for character in set(folded):
        if character > "\x7f":
            letter = _letter(character)
            if letter is None:
                return None
            if letter != character:
                folded = folded.replace(character, letter)
    return folded


def snippet(text: str, query: str, length: int = SNIPPET_CHARS) -> str:
    """The part of a text with most of a query's words in it, the first one of equals.

    Cut at word borders, with ``...`` where something is left out.
    """
    start = _densest(_places(text, _wanted(query[:MAX_QUERY_CHARS])), length)
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


def _places(text: str, wanted: Mapping[str, tuple[str, ...]]) -> list[_WordPlace]:
    """Where a text has a wanted word; in Chinese each pair of characters is one.

    Only the stretches without white space that hold the letters of a wanted word are taken apart; where
    folding moves characters (rare ligatures, loose accents), each word is folded alone.
    """
    folded = _folded(text)
    if folded is None:
        return _slow_places(text, wanted)
    found: list[_WordPlace] = []
    stretches: dict[int, int] = {}
    for word, ways in wanted.items():
        for way in ways:
            at, right = folded.find(way), 0
            while at >= 0:
                if is_cjk(word[0]):
                    found.append(_WordPlace(at, at + len(way), frozenset((word,))))
                    right = at + 1
                elif way.isalpha() and _stands_alone(folded, at, at + len(way)):
                    right = at + len(way)
                    found.append(_WordPlace(at, right, frozenset((word,))))
                else:
                    left, right = _stretch(folded, at, at + len(way), right)
                    stretches[left] = right
                at = folded.find(way, right)
    for left, right in stretches.items():
        for match in _TERM.finditer(folded, left, right):
            held = frozenset(word for _, word in _words_of(match)).intersection(wanted)
            if held:
                found.append(_WordPlace(*match.span(), held))
    return sorted(dict.fromkeys(found), key=lambda place: place[:2])


def _stands_alone(folded: str, start: int, end: int) -> bool:
    """Whether spaces or punctuation surround a match, which makes it a whole word: a fast common case."""
    if folded[start - 1 : start] not in _BEFORE:
        return False
    after = folded[end : end + 1]
    return after in _SPACE or (after in ".,;:!?)" and folded[end + 1 : end + 2] in _SPACE)


def _stretch(folded: str, left: int, right: int, least: int) -> tuple[int, int]:
    """What stands around a place, up to white space or Chinese, and to ``least`` on the left."""
    while left > least and not (folded[left - 1].isspace() or is_cjk(folded[left - 1])):
        left -= 1
    while right < len(folded) and not (folded[right].isspace() or is_cjk(folded[right])):
        right += 1
    return left, right


def _slow_places(text: str, wanted: Mapping[str, object]) -> list[_WordPlace]:
    """The same for any text: each word is folded alone."""
    found = []
    for match in _TERM.finditer(text):
        start, end = match.span()
        if match.lastgroup == "cjk":
            spans = [(i, min(i + n, end)) for i in range(start, end) for n in (1, 2)]
            spans = list(dict.fromkeys(spans))
        else:
            spans = [(start, end)] if match.lastgroup else []
        for first, last in spans:
            held = frozenset(word for _, word in _units(_plain(text[first:last]), alone=False))
            if not held.isdisjoint(wanted):
                found.append(_WordPlace(first, last, held.intersection(wanted)))
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

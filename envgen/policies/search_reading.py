"""Read questions and texts, English and Chinese, by rules: clues, intervals, numbers with units.

Nothing here knows how questions are worded or what a corpus is about: these are rules of grammar, and a few
everyday words that mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

CJK = "\u3400-\u4dbf\u4e00-\u9fff"
_TOKEN = re.compile(rf"[{CJK}]+|[^\W_{CJK}]+(?:['\u2019][^\W_{CJK}]+)*")
_NUMBER = re.compile(r"(?<![A-Za-z_\d.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\d])")
_HAN = "\u3007零一二兩三四五六七八九十百千"
_HAN_NUMBER = re.compile(f"[{_HAN}]+")
_DIGITS = {one: i for i, one in enumerate("零一二三四五六七八九")} | {"\u3007": 0, "兩": 2}
_TENS = {"十": 10, "百": 100, "千": 1000}
_UNIT = re.compile(rf"\s?(sq km|km|mm|cm|m|ft|kg|%|[{CJK}])(?![a-z])")
_QUOTED = re.compile(r"[“\"「《]([^”\"」》]+)[”\"」》]")
_RANGE = re.compile(
    r"(-?\d+(?:,\d{3})*(?:\.\d+)?)([^\d,\uff0c。;?]{1,30}?)(-?\d+(?:,\d{3})*(?:\.\d+)?)"
)
_RELATIVE = re.compile(r"\s(?:that|which|who|whose)\s")
_SPLIT = re.compile(r"(?:,\s+(?:and\s+)?|\s+and\s+)(?=[a-z])")
_ORDER = re.compile(r"\s*(?:Answer|Reply|Respond|Give)\b[^?]*$|(?:请|請)?(?:按|用|只)[^?\uff1f]*$")
_NAME = re.compile(
    r"(?:[A-Z][\w.'\u2019-]*|\d{1,2} [A-Z]\w+)(?:,? (?:(?:of|de|van|von|the|der|la) )*[A-Z][\w.'\u2019-]*)*"
)
_STOP = frozenset(
    "a an the of in on at to by and or as is was are were be been has have had its it one years no than "
    "between from least most earlier later given which what who that name most more less".split()
)
_ALIKE = (
    "birth born native",
    "death died dies passed ended",
    "height high tall",
    "width wide",
    "length long",
    "made making created date dates",
    "acquired acquire acquisition",
    "medium technique material",
    "population people inhabitants live",
    "classification class classed classified",
)
"""Everyday words of one meaning."""
_MEANS: Mapping[str, frozenset[str]] = {
    word: frozenset(one[:5] for one in line.split()) for line in _ALIKE for word in line.split()
}
_KEPT = 20_000
"""Texts whose reading is kept: a policy reads them again each turn."""
_COUNTED = 200
"""An interval of so many whole numbers is searched for by its numbers."""


class Hint(NamedTuple):
    """One thing that is said of what a question means."""

    text: str
    words: frozenset[str]
    """Stems of its words; in Chinese pairs of characters."""
    names: tuple[str, ...]
    """What a document must say as it is: quoted words, names, days."""
    low: float | None = None
    high: float | None = None
    unit: str = ""


class AskedFor(NamedTuple):
    """A question, read."""

    asked: str
    clues: tuple[Hint, ...]
    names_it: bool
    """Whether the thing itself is asked for, and not something about it."""
    chinese: bool


class Number(NamedTuple):
    """A number in a text, with its unit."""

    value: int | float
    unit: str
    start: int
    end: int


def understand(prompt: str) -> AskedFor:
    """A prompt's question, without what it says about the form of the answer."""
    text = re.sub("km2|km²", "sq km", _ORDER.sub("", prompt.strip()) or prompt)
    if re.search(f"[{CJK}]", text):
        return _chinese(text)
    text = text.rstrip("?. ")
    relative = _RELATIVE.search(text)
    asked = text[: relative.start()].rpartition(" the ")[0] if relative else text
    tail = text[relative.end() :] if relative else text.partition(" ")[2]
    names_it = (
        relative is None
        or re.fullmatch(r"(?:Name|Find|Identify|List|Which are)", asked) is not None
    )
    return AskedFor(asked, tuple(_clue(one) for one in _parts(tail)), names_it, False)


def _chinese(text: str) -> AskedFor:
    text = text.rstrip("?\uff1f。 ")
    asked, names_it = text, True
    parts = [one for one in re.split("[\uff0c,:\uff1a\uff1b、]", text) if one]
    found = re.search(
        "的[^的]{1,6}?((?:的|在|是)?[^的\uff0c]*(?:什[么麼]|哪|[几幾]|多少|何|[谁誰]).*)$", text
    )
    if found and not re.match("[^\uff0c]{0,3}哪[个個位一]", text):
        asked, names_it = found[1], False
        parts = [one for one in re.split("[\uff0c,:\uff1a\uff1b、]", text[: found.start()]) if one]
    return AskedFor(asked, tuple(_clue(one) for one in parts), names_it, True)


def _parts(tail: str) -> list[str]:
    """A list of predicates, cut where a new one begins; not inside quotes and intervals."""
    held: list[str] = []

    def hold(found: re.Match[str]) -> str:
        held.append(found[0])
        return f"\0{len(held) - 1}\0"

    masked = re.sub(f"{_QUOTED.pattern}|{_RANGE.pattern}", hold, tail.replace("\0", ""))
    back = re.compile("\0(\\d+)\0")
    return [back.sub(lambda found: held[int(found[1])], one) for one in _SPLIT.split(masked) if one]


def _clue(text: str) -> Hint:
    names = tuple(_QUOTED.findall(text))
    found = None if names else _RANGE.search(text)
    low = high = None
    unit = ""
    if found and (ends := numbers(text)):
        low, high = ends[0].value, ends[-1].value
        unit = ends[-1].unit
    elif not names:
        names = tuple(_NAME.findall(text))
    return Hint(text, stems(re.sub(r"\d[\d,.]*", " ", text)), names, low, high, unit)


@lru_cache(maxsize=_KEPT)
def stems(text: str) -> frozenset[str]:
    """The words of a text that say something, each by its beginning; Chinese as pairs of characters."""
    found: set[str] = set()
    for word in _TOKEN.findall(text.casefold()):
        if re.match(f"[{CJK}]", word):
            found |= {word[i : i + 2] for i in range(len(word) - 1)} or {word}
        elif word not in _STOP:
            found |= {word[:5]} | _MEANS.get(word, frozenset())
    return frozenset(found)


@lru_cache(maxsize=_KEPT)
def numbers(text: str) -> tuple[Number, ...]:
    """The numbers of a text: digits with separators, and Chinese ones; with the unit that follows."""
    found = [_counted(text, one, float(one[0].replace(",", ""))) for one in _NUMBER.finditer(text)]
    for one in _HAN_NUMBER.finditer(text):
        found.append(_counted(text, one, _han(one[0])))
    return tuple(sorted(found, key=lambda one: one.start))


def _counted(text: str, found: re.Match[str], value: float) -> Number:
    unit = _UNIT.match(text, found.end())
    plain = int(value) if value.is_integer() and abs(value) < 1e15 else value
    return Number(plain, unit[1] if unit else "", found.start(), (unit or found).end())


def _han(text: str) -> float:
    total, last = 0, 0
    for one in text:
        if one in _TENS:
            total, last = total + (last or 1) * _TENS[one], 0
        else:
            last = _DIGITS[one]
    return float(total + last)


@lru_cache(maxsize=_KEPT)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences and lines of a text."""
    parts = re.split(r"(?<=[.!?;])\s+(?=[A-Z“\"'\u2018(])|(?<=[。\uff1b])|\n", text)
    return tuple(one.strip() for one in parts if one and one.strip())


def says(name: str, text: str) -> bool:
    """Whether a text has a name as words of their own."""
    wanted = re.escape(name.casefold())
    if re.match(f"[{CJK}]", name):
        return name in text
    return re.search(rf"(?<!\w){wanted}(?!\w)", text.casefold()) is not None


def sure(clue: Hint, value: float) -> bool:
    """Whether a text that fits a clue so well surely says it."""
    return value >= (1.0 if clue.low is not None else 0.7 if clue.names else 0.5)


def fit(clue: Hint, text: str, weights: Mapping[str, float]) -> float:
    """How well a text fits a clue, 0 to 1; a word counts by its weight."""
    parts = sentences(text)
    if clue.low is not None:
        return max((_within(clue, one) for one in parts), default=0.0)
    whole = sum(weights.get(one, 1.0) for one in clue.words) or 1.0
    best = 0.0
    for one in parts:
        alike = sum(weights.get(word, 1.0) for word in clue.words & stems(one)) / whole
        if clue.names:
            said = sum(says(name, one) for name in clue.names) / len(clue.names)
            alike = 0.7 * said + 0.3 * alike
        best = max(best, alike)
    return best


def _within(clue: Hint, sentence: str) -> float:
    assert clue.low is not None
    assert clue.high is not None
    found = [
        one for one in numbers(sentence) if one.unit == clue.unit or not (one.unit and clue.unit)
    ]
    if not clue.unit:
        found = [one for one in found if not re.match("[a-z%]", one.unit)]
    inside = [one for one in found if clue.low <= one.value <= clue.high]
    if not inside:
        return 0.0
    if re.search(f"[{CJK}]", clue.text):
        return 1.0 if any(one.unit == clue.unit for one in inside) else 0.3
    nearest = nearest_number(found, clue.words, sentence)
    if nearest is None:
        return 0.4
    return 1.0 if nearest in inside else 0.3


def nearest_number(found: Sequence[Number], words: frozenset[str], sentence: str) -> Number | None:
    """The number that stands nearest to one of these words; None if there is none of them."""
    places = [one.span() for one in _TOKEN.finditer(sentence.casefold()) if stems(one[0]) & words]
    pairs = [
        (min(abs(start - one.end), abs(one.start - end)), one.start, one)
        for start, end in places
        for one in found
        if not (one.start <= start < one.end)
    ]
    return min(pairs)[2] if pairs else None


def keywords(text: str) -> str:
    """The words of a text that are worth searching for: no numbers, plurals in their singular, too."""
    found = [
        one
        for one in _TOKEN.findall(re.sub(r"\d[\d,.]*", " ", text))
        if one.casefold() not in _STOP
    ]
    singular = [one[:-1] for one in found if re.fullmatch("[a-z]{4,}s", one)]
    return " ".join([*found, *singular])


def values(clue: Hint) -> list[str]:
    """The whole numbers of an interval as texts write them, the low end first."""
    if clue.low is None or clue.high is None or clue.high - clue.low >= _COUNTED:
        return []
    return [str(one) for one in range(int(clue.low), int(clue.high) + 1)]

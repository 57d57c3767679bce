"""What texts state beside the facts that were taken from them: numbers, years, intervals and names.

Facts of running text are what was surely read from it. A reader sees the rest, too: ``1 January 1993`` where
no pattern took the date, ``in the 1960s``, ``about 3 million``. Where to look is learned from the facts
themselves: the label of their lines (``Independence: ...``) and the words before them (``was born in``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from envgen.store.corpus import CorpusDocument

_LABEL = re.compile(r"([^\W\d_][^:]{0,60}?):")
_SENTENCE_END = re.compile(
    r"(?<=[.!?;])(?<!\W[A-Z]\.)\s+(?=[^\Wa-z])|(?<=[\u3002\uff01\uff1f\uff1b])"
)
_SHARE = 0.02
"""A label or words before a value are a cue of its attribute if that share of its facts have them."""
_LISTED = re.compile(r"(?:, | and | or )+([A-Z]\w+)")
"""What goes on with a list of names."""
_NEARLY_ALL = 0.7
_FOUND = 0.5
"""Where cues find a smaller share of an attribute's own facts, texts are read whole for it."""
_PREFIXES = "".join(f"(?<!{one}-)" for one in ("semi", "non", "anti", "pre", "post", "half"))
"""With these before it, a name is another."""
_NEVER = re.compile(r"(?!)")
_BLANK = "\0"
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,18}(?:\.\d+)?"
_QUANTITY = re.compile(
    rf"(?<![A-Za-z0-9])(?P<low>{_NUMBER})(?P<decade>'?s\b)?"
    rf"(?:\s?(?P<to>-|\u2013|\u2014|to|and|or|through|until)\s?(?P<high>{_NUMBER})(?!\w))?"
    r"(?P<ordinal>(?:st|nd|rd|th)\b(?:[ -](?P<century>centur))?)?"
    rf"(?:\s(?P<scale>{'|'.join(_SCALES)})\b)?(?:\s?(?P<before>B\.?\s?C))?"
)
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_CENTURY = re.compile(rf"\b({'|'.join(_ORDINALS)})[ -]century(?:\s(B\.?\s?C))?", re.IGNORECASE)
_HAN = {
    sign: value
    for value, sign in enumerate("\u3007\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d")
}
_HAN |= {"\u96f6": 0, "\u5169": 2, "\u4e24": 2}
_HAN_TENS = {"\u5341": 10, "\u767e": 100, "\u5343": 1000, "\u842c": 10_000, "\u4e07": 10_000}
_HAN_NUMBER = re.compile(f"[{''.join((*_HAN, *_HAN_TENS))}]+")
_YEARS = range(1_500, 2_100)
_ANY_NUMBER = re.compile(rf"\d|{'|'.join(_ORDINALS)}|{_HAN_NUMBER.pattern}", re.IGNORECASE)
_WHEN = re.compile(r"\((?:[^()]*\b)?(?:1[5-9]|20)\d\d(?: est\.?)?\)")
"""In brackets behind a number: the year for which it holds."""


_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAY = re.compile(rf"(\d{{1,2}}) ({_MONTHS})|({_MONTHS}) (\d{{1,2}})", re.IGNORECASE)


def saying(name: str) -> re.Pattern[str]:
    """What finds a name in a casefolded text, whatever its marks; a day of a year in its other forms, too."""
    wanted = name.casefold()
    if date := _DAY.fullmatch(wanted):
        day, month = date[1] or date[4], date[2] or date[3]
        days = rf"(?<!\d)(?:{day}|{day}-\d\d?|\d\d?-{day})"
        return re.compile(rf"{days}(?:st|nd|rd|th)? {month}|{month} {day}(?!\d)")
    words = re.findall(r"\w+", wanted)
    return re.compile(r"\W{0,3}".join(words) if words else re.escape(wanted))


class StatedNumber(NamedTuple):
    """A number that a text may be read as; an interval of them where it says no more."""

    low: float
    high: float
    end: int
    """Where it ends in the text."""
    year: bool
    """Whether it is written as years are: three digits or more, and no marks between them."""
    labelled: bool = False
    """Whether it stands in a line about the attribute (a sentence where lines have no labels), or a title."""


def readings(text: str) -> Iterator[StatedNumber]:
    """All numbers and intervals in a text: decades, centuries and Chinese numerals, too."""
    for found in _QUANTITY.finditer(text):
        low = _value(found["low"])
        high = _upper(found["low"], found["high"]) if found["high"] else low
        if found["century"]:
            low, high = 100 * (low - 1), 100 * high
        elif found["decade"]:
            high += 99 if low % 100 == 0 else 9
        scale = _SCALES.get(found["scale"] or "", 1)
        if found["before"]:
            low, high = -high, -low
        digits = len(found["low"]) > 2 or bool(found["before"] or found["century"])
        bare = digits and "," not in found[0] and "." not in found["low"] and scale == 1
        yield StatedNumber(low * scale, high * scale, found.end(), bare)
    for found in _CENTURY.finditer(text):
        high = 100 * (_ORDINALS.index(found[1].lower()) + 1)
        low, high = (-high, 100 - high) if found[2] else (high - 100, high)
        yield StatedNumber(low, high, found.end(), True)
    for found in _HAN_NUMBER.finditer(text):
        value = _chinese(found[0])
        yield StatedNumber(value, value, found.end(), True)


def _value(digits: str) -> float:
    return float(digits.replace(",", ""))


def _upper(low: str, high: str) -> float:
    """The end of an interval: of ``1990-95`` it is 1995. Whichever comes first, the interval holds both."""
    if len(high) < len(low) and low.isdigit() and high.isdigit():
        high = low[: -len(high)] + high
    return max(_value(low), _value(high))


def _chinese(signs: str) -> int:
    """A Chinese numeral, with tens or digit by digit."""
    if not set(signs) & set(_HAN_TENS):
        return int("".join(str(_HAN[sign]) for sign in signs[:18]))
    total = part = digit = 0
    for sign in signs:
        if sign in _HAN:
            digit = _HAN[sign]
        elif (tens := _HAN_TENS[sign]) == 10_000:
            total, part, digit = (total + part + digit) * tens, 0, 0
        else:
            part, digit = part + (digit or 1) * tens, 0
    return total + part + digit


class _LabelledLine(NamedTuple):
    """A line of a text, its label, and where its sentences begin and end."""

    start: int
    end: int
    label: str
    sentences: tuple[tuple[int, int], ...]


def _lines(text: str) -> Iterator[_LabelledLine]:
    at = 0
    for line in text.split("\n"):
        label = _LABEL.match(line)
        cuts = [(0, 0), *(one.span() for one in _SENTENCE_END.finditer(line)), (len(line), 0)]
        sentences = tuple((at + low, at + high) for (_, low), (high, _) in pairwise(cuts))
        yield _LabelledLine(at, at + len(line), label[1].casefold() if label else "", sentences)
        at += len(line) + 1


def _words_before(text: str, start: int) -> str:
    """The two words before a place, in its sentence; the sign before it where there are no spaces."""
    before: str = re.split(r"[.!?;:\n\u3002\uff0c]", text[max(0, start - 60) : start])[-1]
    words: list[str] = re.findall(r"[^\W\d_]+", before)[-2:]
    if words and not words[-1].isascii() and not before.endswith(" "):
        return words[-1][-1]
    cue = any(len(one) > 3 for one in words) and all(one.islower() for one in words)
    return " ".join(words) if cue else ""  # a name before a value tells nothing of others


def _behind(text: str, end: int) -> str:
    """A pattern of what stands behind a value: ``official`` of ``English (official)``, one Chinese sign."""
    found = re.match(r"[ (]{1,2}([a-z]{4,})|([^\W\d_])", text[end : end + 40])
    if found is None or (found[2] and found[2].isascii()):
        return ""
    return found[2] or rf"[^,;]{{0,80}}{found[1]}"


class _BareText(NamedTuple):
    row: int
    text: str
    blanked: str
    """The text with a blank for each sign that a fact covers."""
    folded: str
    """The text, casefolded, where places don't matter."""
    lines: tuple[_LabelledLine, ...]
    title: str
    known: frozenset[str]
    """Attributes of which it has facts,"""
    facts: frozenset[tuple[int, int]]
    """and where these stand."""


class _Passage(NamedTuple):
    """What a text says of an attribute in one place, without what facts hold."""

    row: int
    text: str
    labelled: bool
    start: int
    end: int


class _Cues(NamedTuple):
    """Where an attribute stands: labels of lines, and what is found in sentences."""

    labels: frozenset[str]
    words: re.Pattern[str]
    sign: str
    """A pattern of the Chinese signs that stand before its values."""
    found: float
    """Share of the attribute's facts that stand in such a line or sentence."""
    behind: str
    """A pattern of what stands behind nearly all values; empty if nothing does."""


class Statements:
    """What the documents of one class state of its attributes beside their facts.

    Args:
        documents: all of the class, in order.
    """

    def __init__(self, documents: Sequence[CorpusDocument]) -> None:
        self._documents = documents
        self._read: dict[str, list[tuple[int, StatedNumber]]] = {}
        self._last: tuple[object, re.Pattern[str], re.Pattern[str]] = (None, _NEVER, _NEVER)

    def numbers(self, attribute: str, *, years: bool) -> list[tuple[int, StatedNumber]]:
        """Rows and what their texts state where this attribute stands, and no fact holds.

        Args:
            attribute: of the class.
            years: whether its values are years. Of other numbers a year in brackets says when they held,
                and one in a sentence is none of them.
        """
        if attribute not in self._read:
            counted = self._cues[attribute].behind  # of numbers, a sign for what is counted
            behind = re.compile("" if counted.isascii() else counted)
            self._read[attribute] = [
                (part.row, one._replace(labelled=part.labelled))
                for text in self._texts
                if _ANY_NUMBER.search(text.blanked + text.title)
                for part in self._parts(attribute, text, titles=years)
                for said in (part.text if years else _WHEN.sub("", part.text),)
                for one in readings(said)
                if behind.match(said, one.end)
                if (one.year if years else part.labelled or not _is_year(one))
            ]
        return self._read[attribute]

    def naming(self, attribute: str, names: Iterable[str]) -> Iterator[int]:
        """Rows whose texts have one of these names where this attribute stands, and no fact is just that."""
        found = [saying(one).pattern for one in sorted(names)]
        if found:
            yield from (text.row for text in self._texts if self._names(attribute, text, found))

    def others(self, attribute: str, row: int) -> list[str]:
        """Values that a text states beside its facts: the attribute has them elsewhere, or a list goes on."""
        text = self._texts[row]
        for fact in self._documents[row].facts:
            more = _LISTED.match(text.text, fact.end) if fact.attribute == attribute else None
            if more and not _overlaps(more.span(1), text.facts):
                return [more[1]]
        own = {fact.value for fact in self._documents[row].facts if fact.attribute == attribute}
        begun = {*re.findall(r"\w+", text.folded), *text.folded}
        known = self._values[attribute]
        return [
            value
            for value in sorted(one for key in begun & known.keys() for one in known[key] - own)
            if self._names(attribute, text, [saying(value).pattern], inside=False)
        ]

    def _names(
        self, attribute: str, text: _BareText, patterns: Sequence[str], *, inside: bool = True
    ) -> bool:
        """Whether a text has a name where no fact is just that; ``inside`` longer ones, too."""
        key = attribute, tuple(patterns)
        if self._last[0] != key:
            any_name = f"(?:{'|'.join(patterns)})"
            # where no space parts words, a name is one only behind the sign that stands before such names
            sign = f"(?<={self._cues[attribute].sign})"
            word = rf"(?<!\w){_PREFIXES}{any_name}(?!\w)" if any_name.isascii() else sign + any_name
            behind = self._cues[attribute].behind
            ends = f"(?={behind})" if behind else ""
            self._last = key, re.compile(any_name), re.compile(word + ends)
        _, anywhere, pattern = self._last
        if not anywhere.search(text.folded):
            return False
        for part in self._parts(attribute, text, whole=bool(self._cues[attribute].behind)):
            said = text.text[part.start : part.end].casefold()
            for one in pattern.finditer(said):
                place = part.start + one.start(), part.start + one.end()
                if place not in text.facts and (inside or not _overlaps(place, text.facts)):
                    return True
        return False

    def _parts(
        self, attribute: str, text: _BareText, *, titles: bool = False, whole: bool = False
    ) -> Iterator[_Passage]:
        """The lines and sentences of a text about an attribute; all, where its cues don't find its facts.

        A title says something of an attribute only where no fact does: then, with ``titles``, by itself.
        """
        cues = self._cues[attribute]
        whole = whole or cues.found < _FOUND
        if titles and attribute not in text.known:
            yield _Passage(text.row, text.title, True, 0, 0)
        if not whole and not cues.words.search(text.text):
            return
        for line in text.lines:
            labelled = line.label in cues.labels
            for start, end in ((line.start, line.end),) if labelled else line.sentences:
                if labelled or whole or cues.words.search(text.text, start, end):
                    part = text.blanked[start:end]
                    said = re.sub(rf"(?<!\w){re.escape(text.title)}(?!\w)", _BLANK, part)
                    yield _Passage(text.row, said, labelled or not cues.labels, start, end)

    @cached_property
    def _texts(self) -> list[_BareText]:
        texts = []
        for row, document in enumerate(self._documents):
            blanked = document.text
            for fact in document.facts:
                blank = _BLANK * (fact.end - fact.start)
                blanked = blanked[: fact.start] + blank + blanked[fact.end :]
            known = frozenset(fact.attribute for fact in document.facts)
            lines = tuple(_lines(document.text))
            places = frozenset((fact.start, fact.end) for fact in document.facts)
            folded = document.text.casefold()
            texts.append(
                _BareText(row, document.text, blanked, folded, lines, document.title, known, places)
            )
        return texts

    @cached_property
    def _values(self) -> defaultdict[str, dict[str, set[str]]]:
        """Attribute -> what values begin with, a word or a Chinese sign -> values: there may be many."""
        values: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
        for document in self._documents:
            for fact in document.facts:
                if isinstance(fact.value, str) and (
                    word := re.search(r"\w+", fact.value.casefold())
                ):
                    key = word[0] if word[0].isascii() else word[0][0]
                    values[fact.attribute].setdefault(key, set()).add(fact.value)
        return values

    @cached_property
    def _cues(self) -> defaultdict[str, _Cues]:
        labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
        before: defaultdict[str, Counter[str]] = defaultdict(Counter)
        after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        facts = Counter[str]()
        for document, text in zip(self._documents, self._texts, strict=True):
            for fact in document.facts:
                facts[fact.attribute] += 1
                after[fact.attribute][_behind(document.text, fact.end)] += 1
                line = next(one for one in text.lines if fact.start <= one.end)
                if line.label:
                    labels[fact.attribute][line.label] += 1
                elif words := _words_before(document.text, fact.start):
                    before[fact.attribute][words] += 1
        cues: defaultdict[str, _Cues] = defaultdict(
            lambda: _Cues(frozenset(), _NEVER, "(?!)", 0.0, "")
        )
        for attribute, number in facts.items():
            least = max(2, _SHARE * number)
            known = [one for one, n in labels[attribute].items() if n >= least]
            phrases = [one for one, n in before[attribute].items() if n >= least]
            word, often = after[attribute].most_common(1)[0]
            behind = word if often >= _NEARLY_ALL * number else ""
            pattern = _pattern(attribute, [*phrases, *known])
            hits = sum(n for one, n in labels[attribute].items() if one in known)
            hits += sum(n for one, n in before[attribute].items() if pattern.search(one))
            signs = "".join(one for one in phrases if not one.isascii())
            sign = f"[{signs}]" if signs else "(?!)"
            cues[attribute] = _Cues(frozenset(known), pattern, sign, hits / number, behind)
        return cues


def _overlaps(place: tuple[int, int], facts: Iterable[tuple[int, int]]) -> bool:
    return any(start < place[1] and place[0] < end for start, end in facts)


def _pattern(attribute: str, phrases: Iterable[str]) -> re.Pattern[str]:
    """What finds one of these phrases, or words that begin as the attribute's do."""
    found = [_stem(attribute), *(rf"{one}(?!\w)" if one[0].isascii() else one for one in phrases)]
    found = [rf"(?<!\w){one}" if one[0].isascii() else one for one in found]
    return re.compile("|".join(one.replace(" ", r"\W+") for one in found), re.IGNORECASE)


def _is_year(reading: StatedNumber) -> bool:
    return reading.year and reading.low in _YEARS and reading.high in _YEARS


def _stem(attribute: str) -> str:
    """What the words of an attribute begin with: ``independence_year`` is about what is independent."""
    words = attribute.split("_")
    if len(words) > 1 and (len(words[-1]) <= 3 or words[-1] == "year"):
        words.pop()
    last = words[-1]
    return " ".join((*words[:-1], last[:-3] if len(last) > 7 else last))

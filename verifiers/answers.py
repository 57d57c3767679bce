"""Short answers, judged strictly by their type: what is equal, and nothing else.

Numbers, units, dates and codes are read before any punctuation is dropped, so 3.14 is not 314, and C++
is not C. Text is compared folded (NFKC, case, quotes, dashes, spaces, a leading article, traditional and
simplified characters of one reading); words too many are wrong. Lists are multisets.
``tests/data/answer_pairs.jsonl`` has the false equals of common normalisers.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import Field, JsonValue

from envgen.core.limits import Json, Label
from envgen.core.types import Record

MAX_ANSWER_CHARS = 20_000
"""A longer answer is wrong, whatever it says."""
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{1,40})?", re.ASCII)
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d"), "-")
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc\u00b4`"), "'") | dict.fromkeys(
    map(ord, "\u201c\u201d\u201e\u00ab\u00bb"), '"'
)
_PAIRS = ('""', "''", "\u300a\u300b", "\u300c\u300d", "\u300e\u300f", "\u3008\u3009")
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_BETWEEN_CJK = re.compile(f"(?<=[{_CJK}]) +(?=[{_CJK}])")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_ARTICLE = re.compile(r"(?:the|a|an) +(?=\S)")


class ShortAnswer(Record):
    """What is accepted.

    ``text``: one of ``values``. ``number`` and ``year``: the value of ``values[0]``, exactly; with ``unit``
    or without. ``date``: ISO 8601, as precise as the value. ``set``: each of ``values`` once, in any order.
    """

    kind: Literal["text", "number", "year", "date", "set"]
    values: tuple[Json, ...] = Field(min_length=1, max_length=10_000)
    """Accepted forms, the first one the answer itself; of a set its members."""
    unit: Label = ""


def read(raw: str) -> JsonValue:
    """What was submitted: the JSON in it, or the text itself."""
    if len(raw) > MAX_ANSWER_CHARS:
        return None
    text = raw.strip()
    if text[:1] in ('"', "["):
        try:
            found: JsonValue = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return found
    return text


def accepts(answer: ShortAnswer, given: JsonValue) -> bool:
    """Whether what was given is the answer."""
    if answer.kind == "set":
        items = given if isinstance(given, list) else None
        if items is None or not all(isinstance(one, str | int | float) for one in items):
            return False
        return Counter(fold(str(one)) for one in items) == Counter(
            fold(str(one)) for one in answer.values
        )
    if not isinstance(given, str):
        return False
    if len(given) > MAX_ANSWER_CHARS:
        return False
    if answer.kind == "text":
        return any(fold(given) == fold(str(value)) for value in answer.values)
    if answer.kind == "date":
        return _plain(given) == _plain(str(answer.values[0]))
    found = number(given, answer.unit)
    return found is not None and found == Decimal(str(answer.values[0]))


def number(text: str, unit: str = "") -> Decimal | None:
    """The number that a text is, with its unit or without; None if it is anything else.

    ``1,000`` is a thousand and ``1.000`` is one; a percent sign is a unit.
    """
    plain = _plain(text)
    if unit:
        plain = plain.removesuffix(_plain(unit)).rstrip()
    if not _NUMBER.fullmatch(plain):
        return None
    return Decimal(plain.replace(",", ""))


def fold(text: str) -> str:
    """The form in which texts are compared."""
    plain = _plain(text)
    for pair in _PAIRS:
        if len(plain) > 2 and plain[0] == pair[0] and plain[-1] == pair[1]:
            plain = plain[1:-1].strip()
    shorter = plain.rstrip(".!;,\u3002\uff01 ")
    plain = shorter if re.search(r"\w", shorter) else plain
    plain = _BETWEEN_CJK.sub("", _HYPHEN.sub(" ", plain)).translate(_simplified())
    return _ARTICLE.sub("", plain, count=1) if _ARTICLE.match(plain) else plain


@cache
def _simplified() -> dict[int, str]:
    """Traditional characters that have one simplified counterpart, which stands for nothing else."""
    source = files("envgen.verifiers").joinpath("data/chinese_pairs.txt").read_text("utf-8")
    pairs = "".join(line for line in source.splitlines() if not line.startswith("#"))
    return {ord(old): new for old, new in zip(pairs[::2], pairs[1::2], strict=True)}


def _plain(text: str) -> str:
    """Composed, folded, with plain dashes and quotes and single spaces."""
    folded = unicodedata.normalize("NFKC", text.translate(_DASHES).translate(_QUOTES)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).translate(_DASHES).split())

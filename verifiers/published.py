r"""Answers as they are published: what stands around a value, and forms of numbers with one reading there.

Elsewhere ``12\frac{1}{2}`` may be a product, and ``x = 5`` says more than 5; a published gold, and what is
submitted for it, is read like this. Every form is matched as a whole text: what is none stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import comb

from envgen.verifiers.formulas import NoAnswerError

MAX_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Published:
    """A value, in a form that ``formulas`` reads, and what stood before and behind it."""

    value: str
    label: str = ""
    r"""The name of which it is said: x in ``x = 5`` and in ``x \in [0,1]``."""
    unit: str = ""


def read_published(text: str) -> Published:
    """What a published text says; a closing full stop is none of it."""
    text = text.strip()
    if len(text) > MAX_CHARS:
        return Published(text)
    if text.endswith(".") and not text.endswith("..") and len(text) > 1:
        text = text[:-1].rstrip()
    named = _LABEL.fullmatch(text)
    label, text = (named[1], named[2]) if named else ("", text)
    text, unit = _split_unit(text)
    return Published(number(text) or _several(text), label, unit)


_LABEL = re.compile(r"([A-Za-z]|\\[a-z]{2,9})\s*(?:=|\\in(?![a-z])|\u2208)\s*(\S.*)", re.DOTALL)

_WORDS = r"\s*([A-Za-z]+(?:[ /-][A-Za-z]+){0,3})\s*"
_RAISED = r"(?:\^(?:([23])|\{([23])\}))?"
_UNIT = re.compile(
    rf"(?:(\\?%)|(\^\s*\{{?\s*(?:\\circ|\u00b0)\s*\}}?|\u00b0)"
    rf"|\\(?:text|mathrm|textrm|mbox)\s*\{{{_WORDS}{_RAISED}\}}{_RAISED}"
    rf"|(?<=[\d}}) ])(cm|mm|km|kg|mg|ml|mph|ft|inches|feet|meters|miles|hours|minutes|seconds|days|units"
    rf"|[a-z]+ units|degrees|percent|dollars|cents){_RAISED})$"
)
_NAMES = {"percent": "%", "degrees": "\u00b0", "degree": "\u00b0", "dollars": "$", "dollar": "$"}
_NO_UNITS = frozenset(
    "or and if mod base hundred thousand million billion trillion dozen half halves".split()
)
_ONE_LETTER = "mgshLNJWVKCF"


def _split_unit(text: str) -> tuple[str, str]:
    """The text before a unit, and the unit: nothing where there is none."""
    money = re.match(r"\\?\$\s*(?=[\d.])", text)
    if money:
        return text[money.end() :], "$"
    found = _UNIT.search(text)
    head = text[: found.start()] if found else ""
    while head.endswith((" ", "~", "\\,", "\\;", "\\:", "\\!", "\\")):
        head = head[:-1] if head[-1] in " ~\\" else head[:-2]
    if found is None or not head:
        return text, ""
    percent, degree, words, *raised, bare, first, second = found.groups()
    if percent or degree:
        return head, "%" if percent else "\u00b0"
    name = " ".join((words or bare).split())
    if _NO_UNITS & set(name.lower().split()) or (len(name) == 1 and name not in _ONE_LETTER):
        return text, ""
    power = next((one for one in (*raised, first, second) if one), "")
    return head, _NAMES.get(name, name) + (f"^{power}" if power else "")


_SIGN = r"\s*([+\-\u2212\u2013]?)\s*"
_GAP = r"(?:\{,\}|,\\!|\\,|\{\\,\})"
_DECIMAL = re.compile(rf"{_SIGN}(\d{{1,3}}(?:{_GAP}\d{{3}})+|\d+|(?=\.\d))(\.\d+)?", re.ASCII)
_PERIODIC = re.compile(rf"{_SIGN}(\d+)\.(\d*)(?:\\overline|\\bar)\s*\{{(\d{{1,30}})\}}", re.ASCII)
_PART = r"(?:\s*\{\s*(-?\d+)\s*\}|\s*(\d))"
_FRACTION = rf"\\[dt]?frac{_PART}{_PART}\s*"
_RATIO = re.compile(rf"{_SIGN}(?:{_FRACTION}|(\d+)\s*/\s*(-?\d+))", re.ASCII)
_MIXED = re.compile(rf"{_SIGN}(\d+)(?:(?:\\[, ]|~|\s)*{_FRACTION}|\s+(\d+)\s*/\s*(\d+))", re.ASCII)
_CHOOSE = re.compile(r"\\[dt]?binom\s*\{\s*(\d{1,3})\s*\}\s*\{\s*(\d{1,3})\s*\}", re.ASCII)


def number(text: str) -> str:
    """A number written out, as ``-12``, ``0.5`` or ``25/2``; empty if the text is none."""
    if found := _DECIMAL.fullmatch(text):
        return _signed(found[1], re.sub(r"\D", "", found[2]) + (found[3] or ""))
    if found := _PERIODIC.fullmatch(text):
        whole, before, again = found[2], found[3], found[4]
        value = Fraction(int(whole + before + again) - int(whole + before))
        return _signed(found[1], str(value / (10 ** len(before) * (10 ** len(again) - 1))))
    if found := _RATIO.fullmatch(text):
        above, below = (int(one) for one in found.groups()[1:] if one)
        return _signed(found[1], above, below) if below else ""
    if found := _MIXED.fullmatch(text):
        whole_, above, below = (int(one) for one in found.groups()[1:] if one)
        proper = whole_ > 0 and 0 < above < below
        return _signed(found[1], whole_ * below + above, below) if proper else ""
    found = _CHOOSE.fullmatch(text)
    return str(comb(int(found[1]), int(found[2]))) if found else ""


def _signed(sign: str, above: int | str, below: int = 0) -> str:
    minus = sign not in ("", "+")
    if isinstance(above, str):
        return "-" * minus + above
    return "-" * (minus ^ (above < 0) ^ (below < 0)) + f"{abs(above)}/{abs(below)}"


_OR = re.compile(r"\\(?:text|mathrm)\s*\{\s*(?:or|and)\s*\}|\s(?:or|and)\s")
_EITHER = re.compile(r"\\pm(?![A-Za-z])|\u00b1")


def _several(text: str) -> str:
    """What ``or`` and one plus-or-minus sign in a member stand for, as a set; else the text."""
    parts = _OR.split(text)
    if not all(map(str.strip, parts)) or (len(parts) == 1 and not _EITHER.search(text)):
        return text
    found = []
    for member in (one.strip() for part in parts for one in members(part) if one.strip()):
        signs = len(_EITHER.findall(member))
        if signs > 1:
            return text
        both = [_EITHER.sub(sign, member) for sign in "+-"] if signs else [member]
        found += [number(one) or one for one in both]
    return f"\\{{{', '.join(found)}\\}}"


def content(text: str) -> str:
    """What stands in the box, if there is one, else all, without the signs around mathematics."""
    boxes = {part.strip() for part in _boxes(text)}
    if len(boxes) > 1:
        raise NoAnswerError("different boxes")
    text = (boxes.pop() if boxes else text).strip()
    for begin, end in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text[len(begin) : -len(end)]
        if text.startswith(begin) and text.endswith(end) and begin not in inner:
            return inner.strip()
    return text


def _boxes(text: str) -> Iterator[str]:
    for found in re.finditer(r"\\f?box(?:ed)?(?![a-z])\s*", text):
        level, start = 0, found.end()
        for i in range(start, len(text)):
            level += (text[i] == "{") - (text[i] == "}")
            if level <= 0:
                break
        if level or text[start : start + 1] != "{" or "\\box" in text[start:i]:
            raise NoAnswerError("a box without an end, or in a box")
        yield text[start + 1 : i]


def members(text: str) -> list[str]:
    """What commas part that stand in no bracket."""
    found, depth, start = [], 0, 0
    for i, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            found.append(text[start:i])
            start = i + 1
    return [*found, text[start:]]

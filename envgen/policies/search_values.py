"""Take the answer of a question out of a text by rules, English and Chinese; no model."""

from __future__ import annotations

import re
from math import sqrt

from envgen.policies.search_reading import (
    CJK,
    AskedFor,
    nearest_number,
    numbers,
    sentences,
    stems,
)

_LABEL = re.compile(r"([A-Z][^:.“]{1,40}): (\S.*)")
_PERSON = re.compile(
    r"\b(?:by|artist (?:of .{1,200}? )?is) ([A-Z][\w.'\u2019-]*"
    r"(?:,? [A-Z\d][\w.'\u2019-]*| (?:of|the|de|van|von|der|la|[a-z]+(?= [A-Z])|century))*)"
)
_PLACE = re.compile(r"\bin (?:the )?([A-Z][^,.;\d]*?(?:, [A-Z][^,.;\d]*?)*)(?= in |[.;]|, \d|$)")
_YEAR = range(1000, 2101)
_SAID = re.compile(r"\b(is|are|was|were|as|reads|under|in|of)\s+")
_VERBS = ("as", "reads", "is")
"""After these stands what something is, rather than where or when."""
_OFFICE = re.compile("(?:終|卒|仕至|官至|官終|終於|官)(?:於|于)?")
"""How a life says which office was the last."""
_DEGREE = re.compile("^(?:登|擢|舉|举|中|第|進士)+")


def number_in(question: AskedFor, text: str, *, years: bool) -> int | float:
    """The number that is asked for: the one nearest to what it is called, in the best sentence."""
    asked = stems(question.asked)
    units = {one.unit for one in numbers(f"1 {_unit(question.asked)}")} - {""}
    best: tuple[float, int, int | float] = (-1.0, 0, 0)
    for i, sentence in enumerate(sentences(text)):
        found = [one for one in numbers(sentence) if not units or one.unit in units]
        if years:
            found = [one for one in found if one.value in _YEAR and not re.match("[a-z]", one.unit)]
        nearest = nearest_number(found, asked, sentence) or (found[0] if found else None)
        label = _LABEL.match(sentence)
        if nearest is None:
            continue
        alike = float(len(asked & stems(sentence)))
        if label:
            nearest = found[0]
            alike = 2 * len(asked & stems(label[1]))
        best = max(best, (alike, -i, nearest.value))
    return best[2]


def _unit(asked: str) -> str:
    """The unit that a question names, as documents write it."""
    for name, unit in (
        ("square kilomet", "sq km"), ("millimet", "mm"), ("centimet", "cm"), ("kilomet", "km"),
        ("metre", "m"), ("meter", "m"), ("首", "首"),
    ):  # fmt: skip
        if name in asked.casefold():
            return unit
    return ""


def text_in(question: AskedFor, text: str) -> str:
    """The name or value that is asked for."""
    if question.chinese:
        return _chinese(question.asked, text)
    asked = question.asked.casefold()
    if re.match(r"who\b", asked) or re.search(r"\b(?:artist|author|maker|director)\b", asked):
        for sentence in sentences(text):
            if found := _PERSON.search(sentence):
                return found[1].rstrip(". ")
    if re.search("medium|material|made of", asked):
        found = re.search(r"\bmade (?:in|of|from) (?!\d{4})([^.]*?[a-z])(?=\.)", text)
        if found:
            return found[1]
    wanted = stems(question.asked)
    ranked = sorted(sentences(text), key=lambda one: -_about(wanted, one))
    if re.search(r"birth|death|born|died", asked):
        return _place(asked, ranked)
    for sentence in ranked:
        if label := _LABEL.match(sentence):
            return _labelled(asked, label[2])
        if value := _said(wanted, sentence):
            return value
    return ""


def _about(wanted: frozenset[str], sentence: str) -> float:
    label = _LABEL.match(sentence)
    if label:
        words = stems(label[1])
        return 2 * len(wanted & words) / sqrt(1 + len(words))
    return len(wanted & stems(re.sub("“[^”]*”", "", sentence))) / 2


def _labelled(asked: str, value: str) -> str:
    """What stands after a label, without remarks; of a code the code."""
    if "code" in asked:
        found = re.search(r"\b[A-Z]{2,4}\b|\.[a-z]{2}\b", value)
        if found:
            return found[0]
    plain = re.split(r";|\s\(|,\s\d", value)[0].strip()
    return re.sub(r"\s-?\d[\d,.]*\s?(?:m|km|mm|sq km)?$", "", plain)


def _place(asked: str, ranked: list[str]) -> str:
    for sentence in ranked:
        if found := _PLACE.search(sentence):
            parts = found[1].split(", ")
            return parts[-1] if "country" in asked else parts[0]
    return ""


def _said(wanted: frozenset[str], sentence: str) -> str:
    """What a sentence says of what is asked for: the words after its verb, whole where they are quoted."""
    plain = sentence.rstrip(".;")
    places = [one.end() for one in re.finditer(r"\w+", plain) if stems(one[0]) & wanted]
    rest = plain[places[0] :] if places else plain
    quoted = re.search(r"(?:is|as|reads|under|class|to)\s+(?:\w+ )?“([^”]+)”$", rest)
    if quoted:
        return quoted[1]
    found = [(one[1] not in _VERBS, one[1] != "as", one.end()) for one in _SAID.finditer(rest)]
    return rest[min(found)[2] :].strip("“” ") if found else ""


def _chinese(asked: str, text: str) -> str:
    """An office, a year or reign, or a name that is given in a short life, written as such lives are."""
    parts = [one for one in re.split("[\uff0c。\uff1b、\uff08\uff09]", text) if one]
    if re.search("[官職职]", asked):
        ends = [one for one in parts if _OFFICE.match(one)]
        return _OFFICE.sub("", ends[-1]) if ends else ""
    if re.search("年|第|進士|进士", asked):
        degrees = [_DEGREE.sub("", one) for one in parts if re.search("進士|进士|第", one)]
        for one in [*degrees, *parts]:
            if found := re.search(f"([{CJK}]{{2}})[元一二三四五六七八九十]+年", one):
                return found[0] if re.search("哪一?年|何年|几年|幾年", asked) else found[1]
        return degrees[0][:2] if degrees else ""
    mark = "號" if re.search("[號号]", asked) else "字"
    return next((one[1:] for one in parts if one.startswith(mark)), "")

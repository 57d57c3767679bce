"""Does a model write in the language that it was asked in? Judged on prose only, passage by passage.

Code, data, addresses and quotations are in no language of their own: ``prose`` takes them out.

Languages are told by py3langid: a naive Bayes classifier over byte n-grams of 139 languages, BSD-licensed,
its model (4.6 MB, arrays without pickles) inside the package; it never uses the network.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from envgen.core.errors import MissingExtraError, install_hint

MIN_CHARS = 20
"""Less prose than this is in no language that could be told."""
SURE = 0.5
"""Least posterior with which a prompt's language is taken as known."""
DOUBT = 0.1
"""A passage counts against its writer if the expected language's posterior is below this."""
ALIKE = (
    ("no", "nn", "da"),
    ("hr", "bs", "sr"),
    ("id", "ms"),
    ("zh", "yue", "wuu"),
    ("ar", "arz", "ary"),
)
"""Languages that a sentence does not tell apart; the first stands for all."""
_NO_LANGUAGE = "zxx"


def language_of(text: str) -> str | None:
    """The ISO 639 code of the language that a text's prose is in.

    Returns:
        The code (of ``ALIKE`` languages the first); None if there are fewer than ``MIN_CHARS`` characters
        of prose, or no language's posterior reaches ``SURE``.
    """
    found = prose(text)
    if len(found) < MIN_CHARS:
        return None
    posterior = _posterior(found)
    best = max(posterior, key=lambda code: posterior[code])
    return best if best != _NO_LANGUAGE and posterior[best] >= SURE else None


prompt_language = lru_cache(maxsize=4_096)(language_of)
"""``language_of``, remembered: many rollouts answer the same prompt."""


def language_consistency(text: str, language: str) -> float | None:
    """How much of a text's prose is in a language.

    Args:
        text: what a model wrote.
        language: ISO 639 code, as ``language_of`` gives it.

    Returns:
        Share of the prose in passages that may be in ``language``, 0 to 1, weighed by characters; None if
        there are fewer than ``MIN_CHARS`` of them: too little to tell.
    """
    found = prose(text)
    if len(found) < MIN_CHARS:
        return None
    parts = passages(found, MIN_CHARS)
    right = total = 0
    for part in parts:
        posterior = _posterior(part.text)
        if max(posterior, key=lambda code: posterior[code]) == _NO_LANGUAGE:
            continue
        total += part.weight
        right += part.weight * (posterior.get(language, 0.0) >= DOUBT)
    return right / total if total else None


def _posterior(text: str) -> dict[str, float]:
    """Language -> posterior, alike ones added up."""
    found: dict[str, float] = {}
    for code, value in _identifier().rank(text):
        code = _HEADS.get(code, code)
        found[code] = found.get(code, 0.0) + value
    return found


_HEADS = {code: group[0] for group in ALIKE for code in group}


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise MissingExtraError(
            "the py3langid package is not installed", install_hint("train")
        ) from error
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


# ------------------------------------------------------------------ what of a text is prose

_FENCED = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_TOOL_BLOCK = re.compile(
    r"<\W{0,3}(?:\w{1,20}\W)?(function_calls|tool_calls?|tool_response|tools)\b"
    r".*?(?:</[^<>]*\1[^<>]*>|\Z)",
    re.DOTALL,
)
_INLINE_CODE = re.compile(r"``[^\n]+?``|`[^`\n]+`")
_MATHS = re.compile(
    r"\$\$.{0,2000}?\$\$|\\\[.{0,2000}?\\\]|\\\(.{0,2000}?\\\)|\$(?=\S)[^$\n]*?(?<=\S)\$(?!\d)",
    re.DOTALL,
)
_TAG = re.compile(r"</?[A-Za-z|\uff5c][^<>\n]{0,200}>")
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_ADDRESS = re.compile(
    r"(?:\b[a-z][a-z0-9+.-]{0,20}://|\bwww\.)[!-~]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+\.[\w.-]+"
)
_QUOTED = re.compile(
    '"[^"\n]+"'
    "|\u201c[^\u201d\n]{1,1000}\u201d"  # English
    "|\u201e[^\u201c\u201d\n]{1,1000}[\u201c\u201d]"  # German, Polish
    "|\u00ab[^\u00bb\n]{1,1000}\u00bb"  # French, Russian
    "|\u00bb[^\u00ab\n]{1,1000}\u00ab"
    "|\u300c[^\u300d\n]{1,1000}\u300d"  # Chinese, Japanese
    "|\u300e[^\u300f\n]{1,1000}\u300f"
    "|\u300a[^\u300b\n]{1,1000}\u300b"  # titles
)
_WORD = re.compile(r"[!-~]+")
_CODE_SIGNS = frozenset("_/\\=|{}<>")
_SENTENCE = re.compile(r"[^\n.!?\u3002\uff01\uff1f\u0964]+[\n.!?\u3002\uff01\uff1f\u0964]*")
_KEPT_SIGNS = frozenset("'\u2019.!?\u3002\uff01\uff1f\u0964,\uff0c-\u200c\u200d")
_SPACES = re.compile(r"[^\S\n]+")
_DATA = re.compile(r"""["']\s*:|:\s*["'\d{\[]|["']\s*,\s*["']""")
_BRACKET = re.compile(r"[{}\[\]]")
_NEAR = 200
"""Where brackets are not closed, data must begin within so many characters."""


def prose(text: str) -> str:
    """The prose of a text, its line breaks kept.

    Taken out: fenced and inline code, tool calls and tags, JSON (also where it was cut off), maths, web
    and mail addresses, quotations and titles, quoted lines, words that look like code, digits, signs.
    """
    text = unicodedata.normalize("NFC", text)
    for pattern in (_FENCED, _TOOL_BLOCK, _INLINE_CODE, _MATHS, _TAG, _QUOTED_LINE):
        text = pattern.sub(" ", text)
    text = _without_data(text)
    for pattern in (_ADDRESS, _QUOTED):
        text = pattern.sub(" ", text)
    text = _WORD.sub(lambda word: word[0] if _CODE_SIGNS.isdisjoint(word[0]) else " ", text)
    text = "".join(char if _is_written(char) else " " for char in text)
    lines = (_SPACES.sub(" ", line).strip(" -,.") for line in text.split("\n"))
    return "\n".join(line for line in lines if any(map(str.isalpha, line)))


@cache
def _is_written(char: str) -> bool:
    """Letters, the marks that Hindi and its like are written with, spaces, and signs of sentences."""
    return (
        char.isalpha()
        or char.isspace()
        or char in _KEPT_SIGNS
        or unicodedata.category(char).startswith("M")
    )


def _without_data(text: str) -> str:
    """Without objects and arrays: JSON, or what stands between brackets and looks like it."""
    kept, at = [], 0
    for start, end in _bracketed(text):
        if _is_data(text, start, end):
            kept += [text[at:start], " "]
            at = end
    return "".join([*kept, text[at:]])


def _bracketed(text: str) -> Iterator[tuple[int, int]]:
    """The outermost spans between brackets, in order; the last may be open and reach the text's end."""
    opened: list[int] = []
    closed: list[tuple[int, int]] = []
    for match in _BRACKET.finditer(text):
        if match[0] in "{[":
            opened.append(match.start())
        elif opened:
            start = opened.pop()
            while closed and closed[-1][0] > start:
                closed.pop()
            closed.append((start, match.end()))
    cut = next((start for start in opened if _DATA.search(text, start, start + _NEAR)), len(text))
    yield from (span for span in closed if span[0] < cut)
    if cut < len(text):
        yield cut, len(text)


def _is_data(text: str, start: int, end: int) -> bool:
    if _DATA.search(text, start, end):
        return True
    try:
        json.loads(text[start:end])
    except ValueError:
        return False
    except RecursionError:  # nothing but brackets is that deep
        pass
    return True


class Passage(NamedTuple):
    """A part of a text that is judged as one: sentences in one script."""

    text: str
    weight: int
    """Its characters; those of wide scripts (Chinese, Japanese, Korean) count twice."""


def passages(text: str, least: int = 20) -> list[Passage]:
    """Cut prose into passages of ``least`` weight or more.

    A sentence is cut where its script changes; what is short beside another script (a name in a Chinese
    sentence) is left out. Short sentences are joined with those that follow in the same script. What stays
    too short is left out, too.

    Args:
        text: prose.
        least: weight of a passage.
    """
    pieces: dict[str, list[Passage]] = {}
    for script, piece in _pieces(text, least):
        held = pieces.setdefault(script, [])
        if held and held[-1].weight < least:
            piece = _join(held.pop(), piece)
        held.append(piece)
    for held in pieces.values():
        if len(held) > 1 and held[-1].weight < least:
            last = held.pop()
            held.append(_join(held.pop(), last))
    return [piece for held in pieces.values() for piece in held if piece.weight >= least]


def _pieces(text: str, least: int) -> Iterator[tuple[str, Passage]]:
    """(script, piece) of every sentence."""
    for sentence in _SENTENCE.findall(text):
        runs = [(name, Passage(run, _weight(run))) for name, run in _runs(sentence)]
        largest = max((piece.weight for _, piece in runs), default=0)
        for name, piece in runs:
            if piece.weight >= least or piece.weight == largest:
                yield name, piece


def _runs(sentence: str) -> Iterator[tuple[str, str]]:
    """(script, text) where neighbouring letters are of one script; signs go with the letters before."""
    script = next((found for c in sentence if (found := _script(c))), None)
    if script is None:
        return
    letters = []
    for char in sentence:
        script = _script(char) or script
        letters.append((script, char))
    for name, group in groupby(letters, key=lambda pair: pair[0]):
        yield name, "".join(char for _, char in group).strip()


@cache
def _script(char: str) -> str | None:
    """Script of a letter, Chinese and Japanese taken as one; None for anything else."""
    if not char.isalpha():
        return None
    name = unicodedata.name(char, "").split(" ")[0].split("-")[0]
    return "CJK" if name in ("HIRAGANA", "KATAKANA", "IDEOGRAPHIC") else name


def _weight(text: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _join(first: Passage, second: Passage) -> Passage:
    return Passage(f"{first.text} {second.text}", first.weight + 1 + second.weight)

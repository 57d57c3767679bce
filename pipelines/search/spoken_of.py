"""Whether a quote speaks of what it is said to show: of the clue, and of the answer that was verified.

That a quote stands in some document shows nothing: any document holds words. A quote that supports a clue
holds the clue's value; and its document is that of the answer, or names it, or is tied to it by the documents
beside it (a film's page names its director, whose page says where he was born). A verdict whose quote does
neither counts as one that found nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise

from envgen.core.types import GateResult, GateStatus
from envgen.environments.search import OpenCorpus
from envgen.pipelines.search.written import Pass, Vote, WrittenQuestion, quotes_stand, verified
from envgen.pipelines.stored import failed, passed
from envgen.store.corpus import DocumentText
from envgen.verifiers.answers import fold

Page = Callable[[str], DocumentText | None]
Named = Callable[[str], Sequence[str]]
"""The documents that a search for a name shows whose title it is."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_QUOTED = re.compile('["\u201c\u300c\u300a]([^"\u201d\u300d\u300b]{2,})["\u201d\u300d\u300b]')
_INEXACT = re.compile(
    r"\b(?:about|above|after|around|at least|at most|before|below|between|century|circa|decade|early|fewer|"
    r"first half|fifties|greater|larger|late|less|longer|more|over|older|second half|shorter|since|smaller|"
    r"under|until|younger)\b|\d0s\b|\u4e16\u7eaa|\u4e16\u7d00|\u5e74\u4ee3|\u4ee5\u4e0a|\u4ee5\u4e0b",
    re.IGNORECASE,
)
"""What a number beside it need not be equal to."""
_STEM = 5
"""Letters by which forms of one word are known."""
_LEAST = 3


def holds_value(clue: str, quote: str) -> bool:
    """Whether a quote holds what a clue says: its numbers, and one of its names or quoted words.

    A clue without any of these must share a word with the quote (in Chinese, two characters). A number that a
    clue only compares with need not be the quote's, but some number must stand there.
    """
    said = fold(quote)
    numbers, found = _numbers(clue), _numbers(quote)
    if numbers and not (found if _INEXACT.search(clue) else numbers <= found):
        return False
    names = [*_QUOTED.findall(clue), *_names(clue)]
    if names:
        return any(_stem(fold(name)) in said for name in names)
    return bool(numbers) or bool(_words(clue) & _words(quote))


def weighed(question: WrittenQuestion, page: Page, named: Named) -> WrittenQuestion:
    """The question with each verdict that does not speak of its clue and answer as one that found nothing."""
    kept = cache(lambda name: _text(page, name))
    own = str(question.answer.values[0])

    def passes(answer: str, given: Sequence[Pass]) -> tuple[Pass, ...]:
        return tuple(_weighed(question, votes, answer, kept, named) for votes in given)

    others = [
        one.model_copy(update={"passes": passes(one.answer, one.passes)})
        for one in question.candidates
    ]
    truth = passes(own, question.truth)
    return question.model_copy(update={"truth": truth, "candidates": tuple(others)})


def quotes_show(question: WrittenQuestion, opened: OpenCorpus) -> GateResult:
    """Whether every quote stands in its document, and the writer's hold what their clues say."""
    found = quotes_stand(question, opened)
    if found.status is GateStatus.PASSED and (fault := _idle(question, opened.corpus.page)):
        return failed("quotes", fault)
    return found


def agents_agree(question: WrittenQuestion, opened: OpenCorpus) -> GateResult:
    """Whether the stored verdicts, as far as they speak of clue and answer, are such that it is kept.

    One model in several roles fails nothing; it is told.
    """

    def named(answer: str) -> list[str]:
        hits = opened.searcher.search(answer[:200], 10)
        pages = [(one.id, opened.corpus.page(one.id)) for one in hits]
        return [name for name, one in pages if one and fold(one.title) == fold(answer)]

    if fault := verified(weighed(question, opened.corpus.page, named)):
        return failed("verified", fault)
    found = passed("verified", len(question.truth) * (1 + len(question.candidates)))
    return found.model_copy(update={"reason": roles(question)})


def _idle(question: WrittenQuestion, page: Page) -> str:
    """The first clue whose own quote does not hold its value or is tied to no other; empty: none."""
    kept = cache(lambda name: _text(page, name))
    tied = _tied(question.evidence, {question.source}, kept)
    for one in question.clues:
        if not holds_value(one.text, one.quote):
            return (
                f"the quote {one.quote[:80]!r} does not hold what the clue {one.text[:80]!r} says"
            )
        if one.document not in tied:
            return f"the document {one.document!r} does not speak of the answer, nor of what leads to it"
    return ""


def roles(question: WrittenQuestion) -> str:
    """Which roles of a question one model played; empty where each was another's."""
    names = [name for one in question.candidates for name in one.by.split(", ")]
    return one_model(question.writer, question.verifier, names)


def one_model(writer: str, verifier: str, answerers: Sequence[str]) -> str:
    """Which roles one model played, by the names of policies; empty: each was another's."""
    by = {"writer": {_model(writer)}, "verifier": {_model(verifier)}}
    by["answerer"] = set(map(_model, answerers))
    if len(set.union(*by.values())) == 1:
        return "one model in all roles"
    pairs = [("writer", "verifier"), ("writer", "answerer"), ("verifier", "answerer")]
    return "; ".join(f"one model is {a} and {b}" for a, b in pairs if by[a] & by[b])


def _model(name: str) -> str:
    """A policy's name without how it is reached."""
    return name.partition(":")[2] or name


def _weighed(
    question: WrittenQuestion, votes: Pass, answer: str, text: Callable[[str], str], named: Named
) -> Pass:
    quoted = {one.document for one in votes if one.document}
    anchors = {question.source, *named(answer)}
    anchors |= {name for name in quoted if _says(text(name), answer)}
    tied = _tied([*quoted, *question.evidence], anchors, text)

    def weigh(clue: str, vote: Vote) -> Vote:
        if vote.verdict == "not_found" or vote.document is None or vote.quote is None:
            return vote
        speaks = vote.document in tied or _says(vote.quote, answer)
        if speaks and (vote.verdict == "contradicted" or holds_value(clue, vote.quote)):
            return vote
        return Vote(verdict="not_found")

    return tuple(weigh(clue.text, vote) for clue, vote in zip(question.clues, votes, strict=True))


def _tied(names: Sequence[str], anchors: set[str], text: Callable[[str], str]) -> set[str]:
    """The anchors, and the documents that name one of them by its title or are named by one, and so on."""
    found, left = set(anchors), set(names) - anchors
    while True:
        near = {a for a in left if any(_linked(text(a), text(b)) for b in found)}
        if not near:
            return found
        found, left = found | near, left - near


def _linked(one: str, other: str) -> bool:
    """Whether one of two documents says the other's title."""
    return _says(one, other.partition("\n")[0]) or _says(other, one.partition("\n")[0])


def _text(page: Page, name: str) -> str:
    """A document, its title first; empty where there is none."""
    document = page(name)
    return "" if document is None else f"{document.title}\n{document.text}"


def _says(text: str, name: str) -> bool:
    """Whether a text says a name; what titles add in brackets tells namesakes apart."""
    wanted, folded = fold(name.partition(" (")[0]), _folded(text)
    if not wanted or (len(wanted) < _LEAST and wanted.isascii() and not wanted.isdigit()):
        return False
    found = re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", folded)
    return found is not None or (not wanted.isascii() and wanted in folded)


@lru_cache(maxsize=512)
def _folded(text: str) -> str:
    return fold(text)


def _numbers(text: str) -> set[str]:
    return {one.replace(",", "") for one in _NUMBER.findall(text)}


def _names(text: str) -> list[str]:
    """Words with a capital letter that do not begin a sentence."""
    words = re.findall(r"(?<![.!?:]\s)(?<=\s)[\"'(]?([^\W\d_]\w{2,})", text)
    return [word for word in words if word[0].isupper()]


def _stem(word: str) -> str:
    """What forms of a word share: Japan and Japanese."""
    return word[:_STEM] if word.isascii() and " " not in word else word


def _words(text: str) -> set[str]:
    """Stems of words of four letters or more; of Chinese, pairs of characters."""
    folded = fold(text)
    plain = {word[:_STEM] for word in re.findall(r"[^\W\d_]{4,}", folded) if word.isascii()}
    return plain | {a + b for a, b in pairwise(folded) if not (a + b).isascii()}

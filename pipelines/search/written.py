"""A question that a model wrote: its evidence, who answered it, how each answer was verified; and its task.

It is kept if, in passes that know neither which answer is the writer's nor where he found it, the verifier
found every clue supported for the writer's answer and none contradicted, and for each other answer some clue
contradicted. What a verifier did not find is not wrong. Every verdict quotes a document, and the quotes are
looked up here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import PipelineError
from envgen.core.limits import Label, Language, Line
from envgen.core.types import CallRecord, Difficulty, GateResult, GoldRun, Record, TaskSpec
from envgen.environments.search import OpenCorpus, pages, run_tool
from envgen.pipelines.assemble import TaskDraft
from envgen.pipelines.search.tasks import LIMITS, SCHEMAS, environment
from envgen.pipelines.stored import failed, passed
from envgen.store.bundles import TaskBundle
from envgen.store.corpus import DocumentText
from envgen.verifiers.answers import ShortAnswer, accepts

Verdict = Literal["supported", "contradicted", "not_found"]
DocumentId = Annotated[str, Field(min_length=1, max_length=64)]
Quote = Annotated[str, Field(min_length=3, max_length=1_000)]
Question = Annotated[str, Field(min_length=10, max_length=1_500)]
MIN_CLUES, MAX_CLUES = 2, 8
MAX_ANSWER_CHARS = 100


class Vote(Record):
    """What a verifier found of one clue."""

    verdict: Verdict
    document: DocumentId | None = None
    quote: Quote | None = None
    """Words of the document that show it."""

    @model_validator(mode="after")
    def _shown(self) -> Vote:
        if self.verdict != "not_found" and not (self.document and self.quote):
            raise ValueError("a verdict needs a document and a quote")
        return self


Pass = Annotated[tuple[Vote, ...], Field(min_length=1, max_length=MAX_CLUES)]
"""One vote for each clue."""


class OtherAnswer(Record):
    """An answer that somebody gave, and what a verifier found of it."""

    answer: Annotated[str, Field(min_length=1, max_length=2_000)]
    by: Label
    passes: tuple[Pass, ...] = Field(default=(), max_length=20)


class WrittenClue(Record):
    """A part of the question, and where it stands."""

    text: Line
    document: DocumentId
    quote: Quote


class WrittenQuestion(Record):
    """The question, its answer, and its proof."""

    written: Literal[True] = True
    question: Question
    language: Language
    answer: ShortAnswer
    clues: tuple[WrittenClue, ...] = Field(min_length=MIN_CLUES, max_length=MAX_CLUES)
    source: DocumentId
    """The document that states the answer."""
    source_quote: Quote
    writer: Label
    verifier: Label
    truth: tuple[Pass, ...] = Field(default=(), max_length=20)
    """What was found of the writer's answer."""
    candidates: tuple[OtherAnswer, ...] = Field(default=(), max_length=50)
    """Other answers."""

    @property
    def evidence(self) -> tuple[str, ...]:
        """The documents that gold reads, each once."""
        return tuple(dict.fromkeys([*(one.document for one in self.clues), self.source]))

    @property
    def level(self) -> int:
        """By documents and clues, as exact questions count depth and breadth."""
        return min(10, 3 * (len(self.evidence) - 1) + len(self.clues) - 1)


def is_written(solution: str) -> bool:
    """Whether a stored solution is a question that a model wrote."""
    try:
        found = json.loads(solution)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("written") is True


def verified(question: WrittenQuestion) -> str:
    """Why the stored verdicts do not let a question be kept; empty if they do."""
    size, passes = len(question.clues), len(question.truth)
    if not passes:
        return "nobody verified it"
    everything = [*question.truth, *(one for c in question.candidates for one in c.passes)]
    if any(len(votes) != size for votes in everything):
        return "a pass lacks a verdict"
    for number in range(size):
        votes = [one[number].verdict for one in question.truth]
        if "contradicted" in votes:
            return f"clue {number + 1} is contradicted for the writer's own answer"
        if votes.count("supported") * 2 <= passes:
            return f"clue {number + 1} is not supported"
    if not question.candidates:
        return "nobody gave another answer"
    for candidate in question.candidates:
        if accepts(question.answer, candidate.answer):
            return f"too easy: {candidate.by} gave the answer"
        if len(candidate.passes) < passes:
            return f"the answer of {candidate.by} was not verified as often"
        if not contradicted(candidate.passes):
            return f"no clue is contradicted for the answer {candidate.answer[:60]!r}"
    return ""


def contradicted(passes: Sequence[Pass]) -> bool:
    """Whether more than half of the passes contradict one and the same clue."""
    by_clue = zip(*passes, strict=True)
    return any(
        sum(vote.verdict == "contradicted" for vote in votes) * 2 > len(passes) for votes in by_clue
    )


def stands(quote: str, document: DocumentText) -> bool:
    """Whether a document says these words, whatever their case and spaces."""
    wanted = _plain(quote)
    return bool(wanted) and wanted in _plain(f"{document.title}\n{document.text}")


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()


def written_task(question: WrittenQuestion, opened: OpenCorpus) -> TaskDraft:
    """The whole task of a question; the same for the same question and corpus.

    Raises:
        PipelineError: if a document of its evidence is not in the corpus.
    """
    bundle = environment(opened)
    quotes = {one.document: one.quote for one in reversed(question.clues)}
    calls = [
        reading(opened, name, quotes.get(name, question.source_quote)) for name in question.evidence
    ]
    spec = TaskSpec(
        id=f"w-{content_hash(question)[:16]}",
        environment_id=bundle.spec.id,
        family="search",
        prompt=question.question,
        submit_schema=SCHEMAS["text" if question.answer.kind == "date" else question.answer.kind],
        limits=LIMITS,
        difficulty=Difficulty(level=question.level, gold_calls=len(calls), distinct_tools=1),
    )
    task = TaskBundle(
        spec=spec,
        solution=pretty(question),
        verifier=pretty(question.answer),
        gold=GoldRun(calls=tuple(calls), answer=question.answer.values[0]),
    )
    return TaskDraft(bundle, task, group=question.source)


def reading(opened: OpenCorpus, name: str, quote: str) -> CallRecord:
    """The call that opens a document where a quote begins.

    Raises:
        PipelineError: if it is not in the corpus.
    """
    document = opened.corpus.page(name)
    if document is None:
        raise PipelineError(f"the corpus has no document {name!r}")
    words = [re.escape(word) for word in quote.split()]
    found = re.search(r"\s+".join(words), document.text, re.IGNORECASE)
    start = found.start() if found else 0
    number = next(i for i, (_, end) in enumerate(pages(document.text), 1) if start < max(1, end))
    arguments: dict[str, object] = {"document": name, "page": number}
    result = run_tool(opened, "open", arguments)
    return CallRecord.model_validate(
        {"name": "open", "arguments": arguments, "result": result.value}
    )


def quotes_stand(question: WrittenQuestion, opened: OpenCorpus) -> GateResult:
    """Whether every quote, of the writer and of each verdict, stands in its document."""
    quotes = [(one.document, one.quote) for one in question.clues]
    quotes.append((question.source, question.source_quote))
    passes = [*question.truth, *(one for c in question.candidates for one in c.passes)]
    quotes += [(v.document, v.quote) for votes in passes for v in votes if v.document and v.quote]
    return found_quotes(quotes, opened)


def found_quotes(quotes: Sequence[tuple[str, str]], opened: OpenCorpus) -> GateResult:
    """Whether each quote stands in its document, (document, quote)."""
    for name, said in groupby(sorted(set(quotes)), key=itemgetter(0)):  # each document is read once
        document = opened.corpus.page(name)
        text = "" if document is None else _plain(f"{document.title}\n{document.text}")
        for _, quote in said:
            if (wanted := _plain(quote)) == "" or wanted not in text:
                return failed("quotes", f"{name!r} does not say {quote[:100]!r}")
    return passed("quotes", len(quotes))

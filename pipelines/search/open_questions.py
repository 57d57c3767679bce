"""An open question that a model wrote: its rubric, where each fact of it stands, and how answers were judged.

It is kept if a verifier with search found every fact of the rubric supported and none contradicted, the
writer's own answer meets nearly all of it, and poor answers (made of the question and the rubric alone, cut
off, or given without a look at the documents) score less than half. Verdicts are stored with the words that
they rest on, and weighed again here; whether the words mean what a judge says only a judge can tell.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import UnjudgedError
from envgen.core.limits import Label, Language
from envgen.core.types import Difficulty, GateResult, GoldRun, Record, Schema, Score, TaskSpec
from envgen.environments.search import OpenCorpus
from envgen.pipelines.assemble import TaskDraft
from envgen.pipelines.rubric.attacks import plain_attacks
from envgen.pipelines.search.tasks import LIMITS, environment
from envgen.pipelines.search.written import (
    DocumentId,
    Pass,
    Question,
    Quote,
    found_quotes,
    reading,
)
from envgen.pipelines.stored import failed, passed
from envgen.store.bundles import TaskBundle
from envgen.verifiers.rubrics.cache import ItemVote
from envgen.verifiers.rubrics.judge import RubricScore, as_score, tally
from envgen.verifiers.rubrics.rubric import PASS, Rubric, RubricItem

LEAST_OF_REFERENCE = 0.9
"""Of the weight, that the writer's own answer meets."""
MAX_ANSWER_CHARS = 20_000
SUBMIT: Schema = {"type": "string", "maxLength": MAX_ANSWER_CHARS}


class OpenItem(Record):
    """An item of the rubric, and where its fact stands; what says how to answer stands nowhere."""

    item: RubricItem
    document: DocumentId | None = None
    quote: Quote | None = None

    @property
    def is_fact(self) -> bool:
        """Whether documents say it."""
        return self.document is not None and self.quote is not None


class JudgedAnswer(Record):
    """An answer, and what the judge's votes said of it."""

    answer: Annotated[str, Field(max_length=4 * MAX_ANSWER_CHARS)]
    by: Label
    kind: Literal["reference", "answerer", "plain", "attack"]
    votes: tuple[tuple[ItemVote, ...], ...] = Field(default=(), max_length=99)
    """Those that could be read."""


class OpenQuestion(Record):
    """The question, its rubric, and its proof."""

    written: Literal[True] = True
    open: Literal[True] = True
    question: Question
    language: Language
    items: tuple[OpenItem, ...] = Field(min_length=5, max_length=20)
    writer: Label
    verifier: Label
    passes: tuple[Pass, ...] = Field(default=(), max_length=20)
    """What the verifier found of the facts, a vote for each."""
    answers: tuple[JudgedAnswer, ...] = Field(default=(), max_length=100)
    """The writer's own, those of answerers, and poor ones."""

    @property
    def rubric(self) -> Rubric:
        """As a judge gets it."""
        return Rubric(question=self.question, items=tuple(one.item for one in self.items))

    @property
    def facts(self) -> tuple[OpenItem, ...]:
        """Items that documents say."""
        return tuple(one for one in self.items if one.is_fact)

    @property
    def reference(self) -> str:
        """The writer's own answer."""
        return next((one.answer for one in self.answers if one.kind == "reference"), "")

    @property
    def evidence(self) -> tuple[str, ...]:
        """The documents that gold reads, each once."""
        return tuple(dict.fromkeys(one.document for one in self.facts if one.document))

    @property
    def level(self) -> int:
        """By documents and facts, as questions with short answers count them."""
        return min(10, 3 * (len(self.evidence) - 1) + len(self.facts) - 1)


def is_open(solution: str) -> bool:
    """Whether a stored solution is an open question."""
    try:
        found = json.loads(solution)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("open") is True


def score_of(question: OpenQuestion, answer: JudgedAnswer) -> RubricScore:
    """The score that the stored votes give."""
    return tally(question.rubric, answer.answer, answer.votes)


def open_fault(question: OpenQuestion) -> str:
    """Why what is stored does not let a question be kept; empty if it does."""
    return unsupported(question) or _misjudged(question)


def unsupported(question: OpenQuestion) -> str:
    """Why the passes over its facts do not hold; empty if they do."""
    size, passes = len(question.facts), len(question.passes)
    if not passes:
        return "nobody verified its facts"
    if any(len(votes) != size for votes in question.passes):
        return "a pass lacks a verdict"
    for number in range(size):
        votes = [one[number].verdict for one in question.passes]
        if "contradicted" in votes:
            return f"fact {number + 1} is contradicted"
        if votes.count("supported") * 2 <= passes:
            return f"fact {number + 1} is not supported"
    return ""


def _misjudged(question: OpenQuestion) -> str:
    wanted = set(plain_attacks(question.rubric, question.reference))
    attacked = {(one.by, one.answer) for one in question.answers if one.kind == "attack"}
    if missing := sorted(name for name, text in wanted if (name, text) not in attacked):
        return f"the attack {missing[0]!r} was not judged"
    read: list[float] = []
    for one in question.answers:
        value = score_of(question, one).score
        if value is None:
            return f"an answer was not judged ({one.kind})"
        if one.kind == "reference" and value < LEAST_OF_REFERENCE:
            return "the writer's own answer does not meet the rubric"
        if one.kind == "attack" and value >= PASS:
            return f"the attack {one.by!r} passes"
        if one.kind == "plain" and value >= PASS:
            return "too easy: an answer without the documents passes"
        if one.kind == "answerer":
            read.append(value)
    if not question.reference:
        return "there is no answer that meets the rubric"
    if not read:
        return "nobody answered"
    if min(read) >= LEAST_OF_REFERENCE:
        return "too easy: every answerer meets the rubric"
    return ""


def stored_rate(question: OpenQuestion, rubric: Rubric, answer: str) -> Score:
    """The score of an answer that was judged when the question was made, for ``SearchEnv(judge=...)``.

    Raises:
        UnjudgedError: if it was not.
    """
    for one in question.answers:
        if one.answer == answer and rubric == question.rubric:
            return as_score(rubric, score_of(question, one))
    raise UnjudgedError("nobody judged this answer")


def open_task(question: OpenQuestion, opened: OpenCorpus) -> TaskDraft:
    """The whole task of a question; the same for the same question and corpus.

    Raises:
        PipelineError: if a document of its evidence is not in the corpus.
    """
    bundle = environment(opened)
    quotes = {one.document: one.quote for one in reversed(question.facts)}
    calls = [reading(opened, name, quotes[name] or "") for name in question.evidence]
    spec = TaskSpec(
        id=f"o-{content_hash(question)[:16]}",
        environment_id=bundle.spec.id,
        family="search",
        prompt=question.question,
        submit_schema=SUBMIT,
        limits=LIMITS,
        difficulty=Difficulty(level=question.level, gold_calls=len(calls), distinct_tools=1),
    )
    task = TaskBundle(
        spec=spec,
        solution=pretty(question),
        verifier=pretty(question.rubric),
        gold=GoldRun(calls=tuple(calls), answer=question.reference),
    )
    return TaskDraft(bundle, task, group=question.evidence[0])


def open_quotes(question: OpenQuestion, opened: OpenCorpus) -> GateResult:
    """Whether every quote, of the writer and of the verifier, stands in its document."""
    quotes = [(one.document, one.quote) for one in question.facts]
    quotes += [(v.document, v.quote) for votes in question.passes for v in votes]
    return found_quotes([(a, b) for a, b in quotes if a and b], opened)


def judged_right(question: OpenQuestion) -> GateResult:
    """Whether the stored verdicts are such that the question is kept."""
    if fault := open_fault(question):
        return failed("judged", fault)
    return passed("judged", len(question.answers) + len(question.passes))


def untold(question: OpenQuestion) -> GateResult:
    """Whether the question says no item and no quote of its rubric."""
    said = _plain(question.question)
    texts = [one.item.text for one in question.items] + [one.quote or "" for one in question.facts]
    for text in filter(None, map(_plain, texts)):
        if text in said:
            return failed("leak", f"the question says {text[:100]!r}")
    return passed("leak", len(texts))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()

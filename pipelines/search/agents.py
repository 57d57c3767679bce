"""Search questions written, answered and verified by models (DeepSeek-V3.2, section 3.2.3).

A writer explores the corpus and hands in a question with quotes; it is made shorter and harder; answerers of
different make answer it; a verifier with search checks the writer's answer and each other one, clue by clue,
in several passes. A question is kept if ``written.verified`` says so and every gate holds. A question that an
answerer got right is too easy: it is made harder, or dropped.

All that models say is recorded beside the dataset, in ``OUT.calls``: a run that was stopped goes on, and pays
nothing twice.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import ClassVar, NamedTuple, get_args

from pydantic import Field, ValidationError

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, PipelineError, PolicyError, SearchEngineError
from envgen.core.limits import Json, Label, Line, Whole, fault
from envgen.core.seeding import rng
from envgen.core.types import GateStatus, Record, Sampling, Usage
from envgen.environments.search import CorpusNote, OpenCorpus
from envgen.pipelines.assemble import AssembleSummary, assemble
from envgen.pipelines.search.config import Breadth, Depth, Languages, SearchEngine, bounds
from envgen.pipelines.search.roles import (
    ANSWERERS,
    PLAIN,
    CorpusLibrary,
    Draft,
    Library,
    Role,
    WebLibrary,
    answer,
    shorten,
    verify,
    write,
)
from envgen.pipelines.search.sources import build_corpus
from envgen.pipelines.search.validate import written_leak, written_single_search
from envgen.pipelines.search.web.cache import WebCache
from envgen.pipelines.search.web.engines import KeyRefusedError, QuotaSpentError, open_engine
from envgen.pipelines.search.web.live import LiveWeb
from envgen.pipelines.search.written import (
    Candidate,
    Pass,
    WrittenQuestion,
    verified,
    written_task,
)
from envgen.policies.base import BudgetExceededError, Policy
from envgen.policies.budget import Budget, Price
from envgen.policies.preflight import preflight
from envgen.policies.registry import PolicyConfig, parse_policy
from envgen.policies.repeats import Repeats
from envgen.policies.replay import RecordPolicy
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.corpus import Corpus
from envgen.store.corpus_engines import Engine
from envgen.store.corpus_lines import package_corpus
from envgen.verifiers.answers import accepts, fold, read

Progress = Callable[[int, int, str], None]
PLAIN_MARK = "#plain"
_TEMPERATURES = (0.3, 0.7, 1.0)
_MIN_SEED_CHARS = 80
"""A document that says less is no place to begin."""
_NOT_BEGUN = "not begun"
_VERIFIER = Role(sampling=Sampling(temperature=0.7), turns=30)
_RECORDED = ("replay:", "record:", "batch:")


class WrittenConfig(Record):
    """Which questions, and who writes, answers and verifies them."""

    family: ClassVar[str] = "search"
    corpus: Path | None = None
    questions: int = Field(default=60, ge=1, le=100_000)
    depth: Depth = "2"
    breadth: Breadth = "3"
    language: Languages = "en"
    engine: SearchEngine = "fts5"
    seed: Whole = 0
    writer: Line = ""
    answerers: Line = ""
    verifier: Line = ""
    options: dict[Label, Json] = Field(default_factory=dict)
    passes: int = Field(default=3, ge=1, le=20)
    attempts: int = Field(default=3, ge=1, le=100)
    rewrites: int = Field(default=2, ge=0, le=10)
    allow_private: bool = False


_TOKENS = {"write": 45_000, "shorten": 500, "answer": 27_000, "verify": 50_000}
"""Prompt tokens of the longest conversation of each role among the recordings in ``tests/data/written``."""
_REPLY_SHARE = 0.05
"""Completion tokens beside them."""


def estimate(config: WrittenConfig, questions: int | None = None) -> Usage:
    """About what so many questions need, if each attempt that is allowed is made and verified to its end.

    Raises:
        ConfigError: if the option ``price`` is none.
    """
    attempts = config.attempts * config.questions if questions is None else questions
    answerers = len(config.answerers.split(","))
    prompt = attempts * (
        _TOKENS["write"]
        + config.rewrites * _TOKENS["shorten"]
        + (config.rewrites + 1) * answerers * _TOKENS["answer"]
        + config.passes * (1 + answerers) * _TOKENS["verify"]
    )
    completion = round(prompt * _REPLY_SHARE)
    try:
        price = Price.model_validate(config.options.get("price") or {})
    except ValidationError as error:
        raise ConfigError(f"policy option 'price': {fault(error)}") from None
    cost = price.cost(prompt, completion)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost, estimated=True)


class WrittenSummary(AssembleSummary):
    """The outcome of a run, with what models cost."""

    attempts: int
    """Questions begun."""
    dropped: dict[str, int]
    """Questions by why they were dropped before the gates."""
    conversations: int
    usage: Usage
    stopped: str = ""
    """Why no more was written; empty: there were enough, or all attempts were used."""


class _Outcome(NamedTuple):
    question: WrittenQuestion | None
    why: str = ""


class _Agents(NamedTuple):
    writer: Policy
    answerers: tuple[tuple[Policy, Role], ...]
    verifier: Policy


def generate_written(
    config: WrittenConfig,
    out: str | Path,
    *,
    max_cost_usd: float | None = None,
    concurrency: int = 8,
    check: bool = True,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    progress: Progress | None = None,
) -> WrittenSummary:
    """Generate a dataset of questions that models wrote, at ``out``.

    Args:
        config: what to ask, and who asks.
        out: the dataset folder; it must not exist.
        max_cost_usd: what all models together may cost.
        concurrency: questions worked on at the same time.
        check: send each model server one small request first.
        workers: processes that prove; default: one per core.
        backend: as other families have it.
        progress: called as questions are written and proven.

    Raises:
        ConfigError: if ``out`` exists, a role is missing, or one question may cost more than all.
        PipelineError: if no question was kept; the hint tells why.
        PolicyError, SearchEngineError: if a model or engine fails again and again, and nothing was kept.
    """
    out = Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    one = estimate(config, 1).cost_usd
    if max_cost_usd is not None and one > max_cost_usd:
        raise ConfigError(
            f"one question may cost {one:.2f} USD, and {max_cost_usd:g} USD are the most",
            "raise --max-cost, or ask for fewer --passes, --rewrites and --answerers",
        )
    corpus = package_corpus() if config.corpus is None else Corpus(config.corpus)
    corpus.remember()
    web = _web(config, out)
    library: Library = WebLibrary(web) if web else CorpusLibrary(_opened(corpus, config.engine))
    agents = _agents(config, out, Budget(max_cost_usd), check)
    work = _Work(config, library, agents, _seeds(corpus, web))
    questions = list(work.questions(concurrency, progress))
    if not questions:
        why = "; ".join(f"{reason} ({n})" for reason, n in work.dropped.most_common(6))
        raise PipelineError("no question was kept", work.stopped or why)
    opened = _opened(_read_pages(web, out) if web else corpus, "fts5" if web else config.engine)
    drafts = [written_task(one, opened) for one in questions]
    summary = assemble(
        config, out, drafts, name="search", seed=config.seed, most=config.questions,
        workers=workers, backend=backend, progress=progress,
    )  # fmt: skip
    return WrittenSummary(
        **summary.model_dump(), attempts=work.begun, dropped=dict(work.dropped.most_common()),
        conversations=work.conversations, usage=work.usage,
        stopped="" if len(questions) == config.questions else work.stopped,
    )  # fmt: skip


def _agents(config: WrittenConfig, out: Path, budget: Budget, check: bool) -> _Agents:
    """The models of all roles, each recorded beside the dataset.

    Raises:
        ConfigError: if a role is missing, or a server can't be used.
    """
    calls = out.with_name(f"{out.name}.calls")
    for name in ("writer", "answerers", "verifier"):
        if not getattr(config, name):
            raise ConfigError(f"--{name} is missing", f"write --{name} openai:MODEL@URL")

    def make(spec: str, role: str, tools: bool) -> Policy:
        policy = parse_policy(PolicyConfig(spec=spec, options=config.options), budget=budget)
        if check:
            preflight(policy, Sampling(), tools=tools)
        if spec.startswith(_RECORDED):
            return policy
        return RecordPolicy(policy, calls / f"{role}.jsonl")

    answerers = []
    for number, spec in enumerate(config.answerers.split(",")):
        plain = spec.endswith(PLAIN_MARK)
        policy = make(spec.removesuffix(PLAIN_MARK), f"answerer-{number + 1}", not plain)
        system = PLAIN if plain else ANSWERERS[number % len(ANSWERERS)]
        sampling = Sampling(temperature=_TEMPERATURES[number % len(_TEMPERATURES)])
        answerers.append(
            (policy, Role(system=system, sampling=sampling, turns=20, tools=not plain))
        )
    writer, verifier = make(config.writer, "writer", True), make(config.verifier, "verifier", True)
    return _Agents(writer, tuple(answerers), verifier)


def _opened(corpus: Corpus, engine: str) -> OpenCorpus:
    return CorpusNote(corpus=corpus.hash, engine=engine).open()


def _web(config: WrittenConfig, out: Path) -> LiveWeb | None:
    """The web, if its engine is named, with what was asked before."""
    if config.engine in get_args(Engine):
        return None
    return LiveWeb(
        open_engine(config.engine), WebCache(out.with_name(f"{out.name}.web")), config.allow_private
    )


def _read_pages(web: LiveWeb, out: Path) -> Corpus:
    """All pages that agents read, as the corpus that episodes play over."""
    folder = out.with_name(f"{out.name}.web")
    lines = folder / "documents.jsonl"
    lines.write_text("".join(f"{dumps(one)}\n" for one in web.documents()), "utf-8")
    shutil.rmtree(folder / "corpus", ignore_errors=True)
    corpus = build_corpus(
        [lines],
        folder / "corpus",
        name="web",
        title="the web",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    corpus.remember()
    return corpus


def _seeds(corpus: Corpus, web: LiveWeb | None) -> list[str]:
    """Documents to begin at, those that say something; on the web, what they are about."""
    found = [
        one.title if web else json.dumps({"id": one.id, "title": one.title}, ensure_ascii=False)
        for one in corpus.documents()
        if len(one.text) >= _MIN_SEED_CHARS
    ]
    if not found:
        raise PipelineError(
            "the corpus has no document to begin at", f"none has {_MIN_SEED_CHARS} characters"
        )
    return found


class _Work:
    """Questions at work, several at a time."""

    def __init__(
        self, config: WrittenConfig, library: Library, agents: _Agents, seeds: Sequence[str]
    ) -> None:
        self.config, self.library, self.agents, self.seeds = config, library, agents, seeds
        self.dropped: Counter[str] = Counter()
        self.usage, self.conversations, self.begun, self.stopped = Usage(), 0, 0, ""
        self._lock = Lock()
        self._repeats = Repeats(5)
        self._fatal: PolicyError | SearchEngineError | None = None
        self._over = False
        self._beside: ThreadPoolExecutor

    def questions(self, concurrency: int, progress: Progress | None) -> Iterator[WrittenQuestion]:
        """The questions that were kept, in the order of their numbers, until there are enough."""
        wanted, kept, seen = self.config.questions, 0, set[str]()
        for outcome in self._outcomes(concurrency):
            if outcome.why == _NOT_BEGUN:
                continue
            self.begun += 1
            question = outcome.question
            if question is None or fold(question.question) in seen:
                self.dropped[outcome.why or "asked twice"] += 1
            else:
                seen.add(fold(question.question))
                kept += 1
                yield question
            if progress:
                progress(kept, wanted, f"{self.begun} tried, {self.usage.cost_usd:.2f} USD")
            if kept == wanted:
                break
        if self._fatal is not None and not kept:
            raise self._fatal

    def _outcomes(self, concurrency: int) -> Iterator[_Outcome]:
        """What became of each question, in order; some later ones are at work meanwhile."""
        numbers = iter(range(self.config.questions * self.config.attempts))
        # Two pools: a question waits for its answerers and verifiers, who never wait for one another.
        beside = ThreadPoolExecutor(
            concurrency * max(self.config.passes, len(self.agents.answerers))
        )
        with ThreadPoolExecutor(concurrency) as pool, beside as self._beside:
            waiting = deque(pool.submit(self._guarded, one) for one in islice(numbers, concurrency))
            try:
                while waiting:
                    yield waiting.popleft().result()
                    if not self.stopped:  # what is at work then may still be kept
                        waiting += (pool.submit(self._guarded, one) for one in islice(numbers, 1))
            finally:
                self._over = True
                for one in waiting:
                    one.cancel()

    def _guarded(self, number: int) -> _Outcome:
        """One question. What breaks in it drops it alone, but for a model or engine that keeps failing so."""
        if self.stopped or self._over:
            return _Outcome(None, _NOT_BEGUN)
        try:
            outcome = self._question(number)
        except BudgetExceededError as error:
            self.stopped = str(error)
            return _Outcome(None, "the budget was spent")
        except (PolicyError, SearchEngineError) as error:
            hopeless = isinstance(error, KeyRefusedError | QuotaSpentError)
            refused = isinstance(error, PolicyError) and error.status == HTTPStatus.UNAUTHORIZED
            if hopeless or refused or self._repeats.too_many(str(error)):
                self._fatal, self.stopped = error, f"stopped, since this will not pass: {error}"
            return _Outcome(None, f"no reply: {str(error)[:200]}")
        self._repeats.clear()
        return outcome

    def _question(self, number: int) -> _Outcome:
        """Write a question, make it harder while it is too easy, and have it verified."""
        config = self.config
        draws = rng(config.seed, "written", number)
        languages = config.language.split(",")
        language = languages[number % len(languages)]
        depth, breadth = (draws.choice(bounds(one)) for one in (config.depth, config.breadth))
        run, draft = write(
            self.agents.writer, self.library, draws.choice(self.seeds), Role(),
            depth=depth, breadth=breadth, language=language, name=self._name(number, "write"),
        )  # fmt: skip
        self._count(run.usage)
        if draft is None:
            return _Outcome(None, f"the writer: {run.ended}")
        why = ""
        for turn in range(config.rewrites + 1):
            if turn < config.rewrites:
                name = self._name(number, "shorten", turn)
                asked, shorter = shorten(
                    self.agents.writer, self.library, draft, Role(), language=language, name=name
                )
                self._count(asked.usage)
                if shorter is None and turn:
                    break
                draft = shorter or draft
            question = self._blank(draft, language)
            why = _shown_at_once(question, self.library)
            if not why:
                others, why = self._answers(draft, number, turn)
            if not why:
                return self._verified(question, draft, others, number, turn)
        return _Outcome(None, why)

    def _blank(self, draft: Draft, language: str) -> WrittenQuestion:
        return WrittenQuestion(
            question=draft.question, language=language, answer=draft.answer, clues=draft.clues,
            source=draft.source, source_quote=draft.source_quote,
            writer=self.agents.writer.name, verifier=self.agents.verifier.name,
        )  # fmt: skip

    def _answers(self, draft: Draft, number: int, turn: int) -> tuple[dict[str, str], str]:
        """Other answers than the writer's and who gave them; or why the question is not kept."""

        def ask(place: int) -> str:
            policy, role = self.agents.answerers[place]
            name = self._name(number, "answer", turn, place)
            run = answer(policy, self.library, draft.question, role, name=name)
            self._count(run.usage)
            return run.answer.answer.strip() if run.answer else ""

        others: dict[str, str] = {}
        given = list(self._beside.map(ask, range(len(self.agents.answerers))))
        for one, (policy, _) in zip(given, self.agents.answerers, strict=True):
            if one and accepts(draft.answer, read(one)):
                return {}, "too easy: an answerer gave the answer"
            if one:
                same = next((other for other in others if fold(other) == fold(one)), one)
                others[same] = ", ".join(filter(None, (others.get(same), policy.name)))
        return others, "" if others else "nobody gave another answer"

    def _verified(
        self,
        question: WrittenQuestion,
        draft: Draft,
        others: dict[str, str],
        number: int,
        turn: int,
    ) -> _Outcome:
        """Have all answers verified, the writer's first: what can't be kept then ends it."""
        (truth,) = self._passes(draft, [str(draft.answer.values[0])], number, turn, 0)
        found = question.model_copy(update={"truth": truth})
        why = verified(found)
        if why != "nobody gave another answer":
            return _Outcome(None, _without_names(why))
        passes = self._passes(draft, list(others), number, turn, 1)
        candidates = tuple(
            Candidate(answer=given[:2_000], by=by[:200], passes=votes)
            for (given, by), votes in zip(others.items(), passes, strict=True)
        )
        found = found.model_copy(update={"candidates": candidates})
        why = verified(found)
        return _Outcome(None, _without_names(why)) if why else _Outcome(found)

    def _passes(
        self, draft: Draft, answers: Sequence[str], number: int, turn: int, first: int
    ) -> list[tuple[Pass, ...]]:
        """The passes over each answer, all at the same time."""

        def one(place: int, which: int) -> Pass:
            name = self._name(number, "verify", turn, first + place, which)
            given = answers[place]
            run, votes = verify(
                self.agents.verifier, self.library, draft, given, _VERIFIER, name=name
            )
            self._count(run.usage)
            return votes

        asked = [
            [self._beside.submit(one, place, which) for which in range(self.config.passes)]
            for place in range(len(answers))
        ]
        return [tuple(future.result() for future in futures) for futures in asked]

    def _name(self, *parts: int | str) -> str:
        """Of a conversation: its draws follow from it."""
        return "/".join(map(str, ("search", self.config.seed, *parts)))

    def _count(self, usage: Usage) -> None:
        with self._lock:
            self.usage += usage
            self.conversations += 1


def _shown_at_once(question: WrittenQuestion, library: Library) -> str:
    """Why the cheap gates refuse a question; empty: they don't."""
    for found in (
        written_leak(question, library.page),
        written_single_search(question, library.top),
    ):
        if found.status is not GateStatus.PASSED:
            return f"{found.gate}: the answer is shown"
    return ""


def _without_names(why: str) -> str:
    """A reason that can be counted: without numbers, answers and names."""
    return re.sub(r"\d+|'.*'|of .* was", "", why)

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
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.types import Sampling, Usage
from envgen.environments.search import CorpusNote, OpenCorpus
from envgen.pipelines.assemble import AssembleSummary, assemble
from envgen.pipelines.search.config import WrittenConfig
from envgen.pipelines.search.open_questions import OpenQuestion, open_task
from envgen.pipelines.search.open_work import OpenWork
from envgen.pipelines.search.roles import (
    ANSWERERS,
    PLAIN,
    CorpusLibrary,
    Library,
    Role,
    WebLibrary,
)
from envgen.pipelines.search.sources import build_corpus
from envgen.pipelines.search.spoken_of import one_model
from envgen.pipelines.search.web.cache import WebCache
from envgen.pipelines.search.web.engines import open_engine
from envgen.pipelines.search.web.live import LiveWeb
from envgen.pipelines.search.work import Agents
from envgen.pipelines.search.written import (
    written_task,
)
from envgen.pipelines.search.written_work import WrittenWork
from envgen.policies.base import Policy
from envgen.policies.budget import Budget, estimated_usage
from envgen.policies.preflight import preflight
from envgen.policies.registry import PolicyConfig, parse_policy
from envgen.policies.replay import RecordPolicy
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.corpus import Corpus
from envgen.store.corpus_engines import Engine
from envgen.store.corpus_lines import package_corpus

Progress = Callable[[int, int, str], None]
PLAIN_MARK = "#plain"
_TEMPERATURES = (0.3, 0.7, 1.0)
_MIN_SEED_CHARS = 80
"""A document that says less is no place to begin."""
_VERIFIER = Role(sampling=Sampling(temperature=0.7), turns=30)
_RECORDED = ("replay:", "record:", "batch:")


_TOKENS = {"write": 45_000, "shorten": 500, "answer": 27_000, "verify": 50_000, "judge": 3_000}
"""Prompt tokens of the longest conversation of each role among the recordings in ``tests/data/written``."""
_ATTACKS = 7
"""On each open question, judged once."""


def estimate(config: WrittenConfig, questions: int | None = None) -> Usage:
    """About what so many questions need, if each attempt that is allowed is made and verified to its end.

    Raises:
        ConfigError: if the option ``price`` is none.
    """
    attempts = config.attempts * config.questions if questions is None else questions
    answerers, passes, tokens = len(config.answerers.split(",")), config.passes, _TOKENS
    rest = (config.rewrites + 1) * answerers * tokens["answer"]
    rest += config.rewrites * tokens["shorten"] + passes * (1 + answerers) * tokens["verify"]
    if config.kind == "open":
        judged = passes * (1 + answerers) + _ATTACKS
        rest = answerers * tokens["answer"] + passes * tokens["verify"] + judged * tokens["judge"]
    prompt = attempts * (tokens["write"] + rest)
    return estimated_usage(prompt, config.options)


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
    work = (OpenWork if config.kind == "open" else WrittenWork)(
        config, library, agents, _seeds(corpus, web)
    )
    questions = list(work.questions(concurrency, progress))
    if not questions:
        why = "; ".join(f"{reason} ({n})" for reason, n in work.dropped.most_common(6))
        raise PipelineError("no question was kept", work.stopped or why)
    opened = _opened(_read_pages(web, out) if web else corpus, "fts5" if web else config.engine)
    drafts = [
        open_task(one, opened) if isinstance(one, OpenQuestion) else written_task(one, opened)
        for one in questions
    ]
    summary = assemble(
        config, out, drafts, name="search", seed=config.seed, most=config.questions,
        told={"models": _told(agents)},
        workers=workers, backend=backend, progress=progress,
    )  # fmt: skip
    return WrittenSummary(
        **summary.model_dump(), attempts=work.begun, dropped=dict(work.dropped.most_common()),
        conversations=work.conversations, usage=work.usage,
        stopped="" if len(questions) == config.questions else work.stopped,
    )  # fmt: skip


def _agents(config: WrittenConfig, out: Path, budget: Budget, check: bool) -> Agents:
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
    return Agents(writer, tuple(answerers), verifier)


def _told(agents: Agents) -> str:
    """Which models played which roles, and which of these one model played."""
    answerers = tuple(dict.fromkeys(policy.name for policy, _ in agents.answerers))
    same = one_model(agents.writer.name, agents.verifier.name, answerers)
    by = f"writer {agents.writer.name}, verifier {agents.verifier.name}, answerers {', '.join(answerers)}"
    return f"{by}: {same}" if same else by


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

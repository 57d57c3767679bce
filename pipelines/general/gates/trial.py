"""The state that gates share: one draft, made runnable, and the facts found about it so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import PipelineError
from envgen.core.ir import Problem, Reach
from envgen.core.seeding import derive, rng
from envgen.core.types import (
    Density,
    GateResult,
    GateStatus,
    GoldRun,
    Probe,
    Score,
    Submission,
    ToolSpec,
)
from envgen.environments.runner import GoldResult, replay, run_gold
from envgen.pipelines.general.difficulty.figures import Measures
from envgen.pipelines.general.draft import Author, Draft
from envgen.pipelines.general.programs.emit import replace_params
from envgen.pipelines.general.semantics.calls import Call, Plan
from envgen.pipelines.general.semantics.evaluate import rules_of
from envgen.pipelines.general.semantics.tables import Tables, read_sqlite, write_sqlite
from envgen.pipelines.general.space.answers import solve
from envgen.pipelines.general.space.density import density
from envgen.pipelines.general.space.near_misses import near_misses
from envgen.sandboxes.solution import SolutionHost, solution_host
from envgen.sandboxes.tools import ToolHost, ToolSession, tool_host
from envgen.sandboxes.verifier import Judged, VerifierInput, WorkerVerifierHost
from envgen.sandboxes.zygote import WorkerBackend, choose
from envgen.verifiers.general import GeneralVerifier

Calls = tuple[Call, ...]
"""Write calls in order: (tool, arguments)."""
Verdict = tuple[str, ...] | None
"""Broken rules; None for a fault."""

VERDICT_S = 600.0
"""For a verdict of a mutant. What bounds it is the steps of its queries, the same on every machine: with
seconds, a busy machine stored evidence that did not hold on a quiet one."""
MOST_TWINS = 12
"""Re-seeds of an escalated task among which one is sought on which nothing must be escalated."""


class Hosts:
    """The sandboxed interpreters that gates reuse over many drafts, each started when it is first asked for.

    Args:
        backend: a sandbox backend, or ``auto``.
        trusted: the code comes from this package or user, so a plain process will do.
    """

    def __init__(self, *, backend: WorkerBackend = "auto", trusted: bool = False) -> None:
        self.backend = backend
        self.trusted = trusted
        self._stack = ExitStack()
        self._solutions: dict[int, SolutionHost] = {}
        self._shared: dict[str, GateResult] = {}

    def solutions(self, which: int = 0) -> SolutionHost:
        """A host for solutions; each ``which`` orders sets and hashes in another way."""
        if which not in self._solutions:
            host = solution_host(hash_seed=4711 * which, backend=self.backend, trusted=self.trusted)
            self._solutions[which] = self._stack.enter_context(closing(host))
        return self._solutions[which]

    @cached_property
    def verifier(self) -> WorkerVerifierHost:
        """The host of verifiers: never in this process, for mutants may run for ever."""
        chosen = choose(self.backend, self.trusted)
        host = WorkerVerifierHost("process" if chosen == "inline" else chosen)
        return self._stack.enter_context(closing(host))

    def tools(self, draft: Draft, database: Path) -> ToolHost:
        """A tool host for ``draft``; the caller closes it."""
        return tool_host(
            draft.tools_source, draft.tools, database, backend=self.backend, trusted=self.trusted
        )

    def once(self, key: str, find: Callable[[], GateResult]) -> GateResult:
        """Call ``find`` for the first task of an environment; its result is kept until another key comes."""
        if key not in self._shared:
            self._shared = {key: find()}
        return self._shared[key]

    def close(self) -> None:
        """Stop all interpreters."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def shared_hosts(backend: WorkerBackend, trusted: bool) -> Hosts:
    """Return this process's interpreters; what comes of the package's pages is trusted."""
    return Hosts(backend=backend, trusted=trusted)


class Case(NamedTuple):
    """A submission to judge: an answer, after write calls (those that tools refuse have no effect)."""

    answer: JsonValue
    plan: Calls = ()


class NearMiss(NamedTuple):
    """A case that keeps every clause but one."""

    case: Case
    clause: str


class Trial:
    """A draft under proof. Expensive facts are found once, when the first gate asks.

    Args:
        draft: the task; gates read nothing else.
        hosts: sandboxed interpreters.
        folder: an empty scratch folder.
        author: who can re-seed the draft; None if nobody can.
        seed: seeds every random choice of the gates.
        parent: the trial of which this is a re-seed's.
        incomparable: why the texts can't be those that this envgen compiles; empty where they must be.
    """

    def __init__(
        self,
        draft: Draft,
        hosts: Hosts,
        folder: Path,
        author: Author | None,
        seed: int,
        *,
        parent: Trial | None = None,
        incomparable: str = "",
    ) -> None:
        self.draft, self.hosts, self.folder = draft, hosts, folder
        self.author, self.seed, self.incomparable = author, seed, incomparable
        self.children: list[Trial] = []
        self.reseeds: list[Draft | None] = []
        """The first re-seeds, as far as gates asked for them; None where none could be re-bound."""
        self.measures: Measures | None = None
        """How hard the task is, once that is measured."""
        self.measuring_s = 0.0
        """Seconds that ``measures`` took."""
        self.judged: list[Judged] | None = None
        """The probes, with what the verifier says of them."""
        self.other_states: list[Judged] = []
        """States that gold does not leave, found by the gate ``unrequested``, with the verdicts."""
        self._parent = parent
        self._tools: ToolHost | None = None
        self._finals: dict[str, Path] = {}
        self._rows: dict[Path | bytes, Tables] = {}

    def rng(self, *names: str | int) -> Random:
        """A private generator for one purpose."""
        return rng(self.seed, *names)

    def child(self, draft: Draft, name: str) -> Trial:
        """A trial of a re-seeded draft, in a folder of its own."""
        folder = self.folder / name
        folder.mkdir()
        seed = derive(self.seed, name)
        return Trial(
            draft,
            self.hosts,
            folder,
            self.author,
            seed,
            parent=self,
            incomparable=self.incomparable,
        )

    def close(self) -> None:
        """Stop the tools, of re-seeds too."""
        for child in self.children:
            child.close()
        if self._tools is not None:
            self._tools.close()
            self._tools = None

    @property
    def problem(self) -> Problem:
        """The IR behind the draft.

        Raises:
            PipelineError: if there is none.
        """
        if self.draft.problem is None:
            raise PipelineError(f"draft {self.draft.task_id!r} has no constraint IR")
        return self.draft.problem

    @property
    def writes(self) -> bool:
        """Whether the task is about changing the database."""
        return isinstance(self.problem.goal, Reach)

    @cached_property
    def density(self) -> Density:
        """The share of the answer space that is right."""
        return density(self.problem, self.draft.tables, self.rng("density"))

    def instance(self, i: int) -> tuple[Problem, Tables] | None:
        """The problem and rows of re-seed ``i``."""
        if i < len(self.reseeds):
            draw = self.reseeds[i]
            return None if draw is None or draw.problem is None else (draw.problem, draw.tables)
        if self.author is None:
            return None
        return self.author.instance(self.draft, reseed_seed(self.seed, i))

    # --- rows and tools ------------------------------------------------------------------------------

    @cached_property
    def database(self) -> Path:
        """The initial database as a file."""
        return self.stored(self.draft.tables, "initial")

    def stored(self, tables: Tables, name: str) -> Path:
        """A new file of these rows; ``rows`` remembers them."""
        path = self.folder / f"{name}.sqlite"
        write_sqlite(self.draft.relations, tables, path)
        self._rows[path] = tables
        return path

    def rows(self, path: Path | bytes) -> Tables:
        """The rows in a database file, read once."""
        if path not in self._rows:
            self._rows[path] = read_sqlite(self.draft.relations, str(path))
        return self._rows[path]

    @property
    def tools(self) -> ToolHost:
        """The draft's tools, ready to open episodes; a re-seed's are its parent's."""
        if self._parent is not None and self._parent.draft.tools_source == self.draft.tools_source:
            return self._parent.tools
        if self._tools is None:
            self._tools = self.hosts.tools(self.draft, self.database)
        return self._tools

    def session(self, initial: Path | None = None) -> ToolSession:
        """An episode of the tools on the initial database (or another)."""
        return self.tools.open(initial or self.database)

    def final(self, plan: Calls, initial: Path | None = None) -> Path:
        """The database after the calls of ``plan``, made through the tools (on ``initial`` if given)."""
        if not plan:
            return initial or self.database
        key = dumps([plan, str(initial or self.database)])
        if key not in self._finals:
            path = self.folder / f"final-{len(self._finals)}.sqlite"
            with closing(self.session(initial)) as session:
                for name, args in plan:
                    session.call(name, dict(args))
                session.snapshot(path)
            self._finals[key] = path
        return self._finals[key]

    # --- gold and other answers ----------------------------------------------------------------------

    def run_gold(self, host: int = 0, database: Path | None = None) -> GoldResult:
        """Run the solution once, in a fresh process of solution host ``host`` (on another database)."""
        return run_gold(
            self.draft.solution,
            self.draft.tools,
            self.tools,
            self.hosts.solutions(host),
            database=database or self.database,
        )

    @cached_property
    def gold_result(self) -> GoldResult:
        """The first gold run, with its fault if it had one."""
        return self.run_gold()

    @property
    def gold(self) -> GoldRun:
        """The first gold run."""
        return self.gold_result.gold

    @property
    def gold_plan(self) -> Calls:
        """The gold run's successful write calls."""
        calls = (call for call in self.gold.calls if call.mutates and call.error is None)
        return tuple((call.name, dict(call.arguments)) for call in calls)

    @property
    def gold_case(self) -> Case:
        """Gold as a case."""
        return Case(self.gold.answer, self.gold_plan)

    @cached_property
    def alternatives(self) -> tuple[Case, ...]:
        """Up to 24 accepted cases that the solver found on the tables, gold excluded."""
        rand = self.rng("alternatives")
        cases = map(as_case, islice(solve(self.problem, self.draft.tables, rand), 25))
        found = {dumps(case): case for case in cases}
        found.pop(dumps(self.gold_case), None)
        return tuple(found.values())[:24]

    @property
    def ordinary(self) -> tuple[Case, ...]:
        """Cases around which others are tried: gold and alternatives."""
        return (self.gold_case, *self.alternatives)

    @cached_property
    def escalated(self) -> bool:
        """Whether the one right thing is to change nothing and to say escalated."""
        due = self.problem.goal.escalate_when if isinstance(self.problem.goal, Reach) else None
        if due is None:
            return False
        rules, tables = rules_of(self.problem), self.draft.tables
        return rules.value(due, rules.compiler.frame(tables, tables)) is True

    @cached_property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """Cases that break exactly one clause, from accepted ones."""
        rand = self.rng("near-misses")
        found: dict[str, NearMiss] = {}
        for case in (self.gold_case, *self.alternatives[:2]):
            base = Plan(case.plan, case.answer) if self.writes else case.answer
            for item, clause in near_misses(self.problem, self.draft.tables, base, rand):
                miss = NearMiss(as_case(item), clause)
                found.setdefault(dumps(miss.case), miss)
        return tuple(found.values())

    # --- verdicts ------------------------------------------------------------------------------------

    def submission(self, case: Case, initial: Path | None = None) -> Submission:
        """``case`` as a verifier gets it (on another database)."""
        return _submission(case.answer, initial or self.database, self.final(case.plan, initial))

    def verifier(self, source: str | None = None, *, check_schema: bool = False) -> GeneralVerifier:
        """The draft's verifier (or another source) over its submit schema."""
        return GeneralVerifier(
            self.draft.verifier if source is None else source,
            self.draft.submit_schema,
            self.hosts.verifier,
            check_schema=check_schema,
        )

    def judge(self, cases: Sequence[Case]) -> list[Score]:
        """The verifier's verdicts."""
        return self.verifier().verify_many([self.submission(case) for case in cases])

    def verdicts(self, source: str, inputs: Sequence[VerifierInput]) -> list[Verdict]:
        """Judge each input by a verifier that may break."""
        replies = self.hosts.verifier.verify_many(source, inputs, VERDICT_S, bounded=True)
        return [None if r.fault or r.broken is None else tuple(sorted(r.broken)) for r in replies]


def trial_seed(seed: int, task_id: str) -> int:
    """The seed of a task's trial, of the seed of its proof."""
    return derive(seed, "gates", task_id)


def reseed_seed(seed: int, i: int) -> int:
    """The seed of a trial's re-seed ``i``, of the trial's own seed."""
    return derive(seed, "reseed", i)


def as_case(item: Any) -> Case:
    """A case from what the solver gives: an answer, or for workflows a plan."""
    if not isinstance(item, Plan):
        return Case(item)
    return Case(item.answer, tuple((name, dict(args)) for name, args in item.calls))


def _submission(answer: JsonValue, initial: Path, final: Path) -> Submission:
    return Submission(answer=answer, raw=dumps(answer), initial=str(initial), final=str(final))


def gold_probe(gold: GoldRun, *, expected: bool = True) -> Probe:
    """The probe that does what gold does: its writes, then its answer."""
    writes = tuple(call for call in gold.calls if call.mutates and call.error is None)
    return Probe(answer=gold.answer, calls=writes or None, expected=expected, origin="gold")


def probe_submissions(
    probes: Sequence[Probe],
    specs: Sequence[ToolSpec],
    database: Path,
    folder: Path,
    tools: ToolHost,
) -> list[Submission]:
    """Do as the probes say, and return the submissions of an agent that did.

    Args:
        probes: what is done.
        specs: of the tools.
        database: before.
        folder: where the databases after go; read by the verifier later.
        tools: over ``database``.
    """
    submissions = []
    for i, probe in enumerate(probes):
        final = folder / f"{i}.sqlite"
        if probe.calls:
            replay(probe.calls, specs, tools, final=final)
        after = final if final.exists() else database
        submissions.append(_submission(probe.answer, database, after))
    return submissions


def judge(verifier: str, submissions: Sequence[Submission], hosts: Hosts) -> list[Score]:
    """Score submissions by a ``verifier.py``, its schema check left out.

    Raises:
        VerifierError: if it breaks.
    """
    checked = GeneralVerifier(verifier, None, hosts.verifier, check_schema=False)
    return checked.verify_many(submissions)


def outcome(
    gate: str,
    passed: bool,
    n: int,
    *,
    figure: float | None = None,
    reason: str = "",
    **details: JsonValue,
) -> GateResult:
    """A gate's result from a verdict over ``n`` trials; an n of 0 never passes."""
    if n == 0:
        status, reason, figure = GateStatus.NOT_RUN, reason or "nothing to try", None
    elif passed:
        status, reason = GateStatus.PASSED, ""
    else:
        status = GateStatus.FAILED
    return GateResult(gate=gate, status=status, n=n, figure=figure, reason=reason, details=details)


def not_applicable(gate: str, reason: str) -> GateResult:
    """The gate makes no sense for this draft."""
    return GateResult(gate=gate, status=GateStatus.NOT_APPLICABLE, reason=reason)


def trial_children(trial: Trial, n: int) -> list[Trial] | None:
    """The first ``n`` re-seeds that can be re-bound (made once per trial); None without an author."""
    if trial.author is None or trial.draft.blueprint is None:
        return None
    for i in range(len(trial.reseeds), 4 * n):
        if len(trial.children) >= n:
            break
        draft = trial.author.reseed(trial.draft, reseed_seed(trial.seed, i))
        trial.reseeds.append(draft)
        if draft is not None and trial.incomparable:
            draft = _with_programs_of(trial.draft, draft)
        if draft is not None:
            trial.children.append(trial.child(draft, f"reseed-{i}"))
    return trial.children[:n]


def twin_of(trial: Trial) -> Trial | None:
    """The first re-seed of an escalated task on which nothing must be escalated: there its rules matter."""
    for n in range(MOST_TWINS):
        children = trial_children(trial, n + 1) or []
        if len(children) <= n:
            return None
        if not children[n].escalated:
            return children[n]
    return None


def _with_programs_of(parent: Draft, child: Draft) -> Draft:
    """A re-seed whose programs are its parent's, but for the parameters."""
    assert child.problem is not None  # only drafts with an IR are re-seeded
    return replace(
        child,
        tools=parent.tools,
        tools_source=parent.tools_source,
        solution=replace_params(parent.solution, child.problem.params),
        verifier=replace_params(parent.verifier, child.problem.params),
    )

"""Run all gates over a draft."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from envgen.core.ir import Optimise, Problem
from envgen.core.types import CallRecord, GateResult, GateStatus, Probe
from envgen.pipelines.boundary import broken, failure, guarded
from envgen.pipelines.general.draft import Author, Draft, Proof, as_stored
from envgen.pipelines.general.gates import (
    difficulty,
    execution,
    meaning,
    mutation,
    shortcuts,
    soundness,
    tools,
    unrequested,
)
from envgen.pipelines.general.gates.trial import Case, Hosts, Trial, trial_seed

Origin = Literal["gold", "alternative", "near_miss"]
"""The source of a stored probe."""
GATES: tuple[tuple[str, Callable[[Trial], GateResult]], ...] = (
    ("restricted", execution.restricted),
    ("rebuild", execution.rebuild),
    ("stated", meaning.stated),
    ("compiled", execution.compiled),
    ("tools", tools.tools),
    ("gold", execution.gold),
    ("leaks", meaning.leaks),
    ("density", meaning.density_gate),
    ("certified", meaning.certified),
    ("prefixes", soundness.prefixes),
    ("alternatives", soundness.alternatives),
    ("near_misses", soundness.near_misses),
    ("binding", meaning.binding),
    ("attacks", soundness.attacks),
    ("collateral", soundness.collateral),
    ("unrequested", unrequested.unrequested),
    ("reseeds", execution.reseeds),
    ("shortcuts", shortcuts.shortcuts),
    ("evaluation", soundness.evaluation),
    ("mutants", mutation.mutants_killed),
    ("difficulty", difficulty.difficulty),
)
"""Name and function of every gate that needs one draft only, cheap ones first."""


def gates_of(problem: Problem | None) -> tuple[tuple[str, Callable[[Trial], GateResult]], ...]:
    """The gates of a draft.

    ``certified`` is for those that ask for the best answer, or for the nearest to a rule that gives way.
    """
    best = problem is not None and (isinstance(problem.goal, Optimise) or problem.giving_way)
    return tuple(gate for gate in GATES if best or gate[0] != "certified")


def prove(
    draft: Draft,
    hosts: Hosts,
    *,
    author: Author | None = None,
    seed: int = 0,
    incomparable: str = "",
) -> Proof:
    """Run the gates over ``draft``; after the first failure the rest is ``not_run``.

    ``incomparable`` says why the draft's texts can't be those that this envgen compiles: another version or a
    model wrote them. They are then judged by playing and evaluation alone.

    Whatever breaks during a gate fails that gate. The gates draw from ``seed`` and the task's id alone, so
    ``validate`` derives the very figures again that generation stored.

    Raises:
        SandboxUnavailableError: nothing can be proven on this machine.
    """
    seed = trial_seed(seed, draft.task_id)
    try:
        stored = as_stored(draft)  # random draws go over rows and keys as they lie
        with TemporaryDirectory(prefix="envgen-proof-") as folder:
            trial = Trial(stored, hosts, Path(folder), author, seed, incomparable=incomparable)
            with closing(trial):
                return _proof(trial)
    except Exception as error:  # before, between or after gates
        return Proof((broken("proof", error),))


def _proof(trial: Trial) -> Proof:
    results: list[GateResult] = []
    for name, gate in gates_of(trial.draft.problem):
        failed = failure(tuple(results))
        if failed is None:
            results.append(guarded(name, partial(gate, trial)))
        else:
            reason = f"gate {failed.gate} failed"
            results.append(GateResult(gate=name, status=GateStatus.NOT_RUN, reason=reason))
    if failure(tuple(results)) is not None:
        return Proof(tuple(results))
    measures = difficulty.measures_of(trial)
    return Proof(
        tuple(results), trial.gold, _probes(trial), trial.density, measures, trial.measuring_s
    )


def _probes(trial: Trial) -> tuple[Probe, ...]:
    """Gold, alternatives and near-misses with their verdicts, as the dataset stores them."""
    return (
        _probe(trial.gold_case, True, "gold"),
        *(_probe(case, True, "alternative") for case in trial.alternatives),
        *(_probe(miss.case, False, "near_miss", miss.clause) for miss in trial.near_misses),
    )


def _probe(case: Case, expected: bool, origin: Origin, clause: str | None = None) -> Probe:
    plan = ((name, dict(args)) for name, args in case.plan)
    calls = tuple(CallRecord(name=name, arguments=args, mutates=True) for name, args in plan)
    return Probe(
        answer=case.answer, calls=calls or None, expected=expected, origin=origin, clause=clause
    )

"""Run all gates over a draft."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from envgen.core.seeding import derive
from envgen.core.types import (
    CallRecord,
    Density,
    Evidence,
    GateResult,
    GateStatus,
    GoldRun,
    Probe,
)
from envgen.pipelines.boundary import broken, guarded
from envgen.pipelines.general.draft import Author, Draft
from envgen.pipelines.general.gates import (
    execution,
    generality,
    meaning,
    mutation,
    shortcuts,
    soundness,
    tools,
)
from envgen.pipelines.general.gates.trial import Case, Hosts, Trial
from envgen.pipelines.general.reload import as_stored

GATES: tuple[tuple[str, Callable[[Trial], GateResult]], ...] = (
    ("restricted", execution.restricted),
    ("rebuild", execution.rebuild),
    ("stated", meaning.stated),
    ("compiled", execution.compiled),
    ("tools", tools.tools),
    ("gold", execution.gold),
    ("leaks", meaning.leaks),
    ("density", meaning.density_gate),
    ("prefixes", soundness.prefixes),
    ("alternatives", soundness.alternatives),
    ("near_misses", soundness.near_misses),
    ("binding", meaning.binding),
    ("attacks", soundness.attacks),
    ("collateral", soundness.collateral),
    ("reseeds", generality.reseeds),
    ("shortcuts", shortcuts.shortcuts),
    ("evaluation", soundness.evaluation),
    ("mutants", mutation.mutants_killed),
)
"""Name and function of every gate that needs one draft only, cheap ones first."""


class Proof(NamedTuple):
    """What the gates found: the evidence, and what the dataset stores of it."""

    evidence: Evidence
    gold: GoldRun | None
    probes: tuple[Probe, ...]
    density: Density | None

    @property
    def passed(self) -> bool:
        """Whether no gate failed and none was left out for an earlier failure."""
        return self.failure is None

    @property
    def failure(self) -> GateResult | None:
        """The first gate that failed or, with nothing to try, couldn't be run."""
        for result in self.evidence:
            if result.status in (GateStatus.FAILED, GateStatus.NOT_RUN):
                return result
        return None


def prove(
    draft: Draft, hosts: Hosts, *, author: Author | None = None, seed: int = 0, foreign: str = ""
) -> Proof:
    """Run the gates over ``draft``; after the first failure the rest is ``not_run``.

    ``foreign`` says why the draft's texts can't be those that this envgen compiles: another version or a
    model wrote them. They are then judged by playing and evaluation alone.

    Whatever breaks during a gate fails that gate. The gates draw from ``seed`` and the task's id alone, so
    ``validate`` derives the very figures again that generation stored.

    Raises:
        SandboxUnavailableError: nothing can be proven on this machine.
    """
    try:
        return _prove(draft, hosts, author, derive(seed, "gates", draft.task_id), foreign)
    except Exception as error:  # before, between or after gates
        return Proof((broken("proof", error),), None, (), None)


def _prove(draft: Draft, hosts: Hosts, author: Author | None, seed: int, foreign: str) -> Proof:
    draft = as_stored(draft)  # random draws go over rows and keys as they lie
    with TemporaryDirectory(prefix="envgen-proof-") as folder:
        with closing(Trial(draft, hosts, Path(folder), author, seed, foreign=foreign)) as trial:
            evidence = tuple(_run(trial))
            proof = Proof(evidence, None, (), trial.density)
            if not proof.passed:
                return proof
            return proof._replace(gold=trial.gold, probes=_probes(trial))


def _run(trial: Trial) -> list[GateResult]:
    results: list[GateResult] = []
    failed = ""
    for name, gate in GATES:
        if failed:
            reason = f"gate {failed} failed"
            results.append(GateResult(gate=name, status=GateStatus.NOT_RUN, reason=reason))
            continue
        result = guarded(name, partial(gate, trial))
        results.append(result)
        if result.status in (GateStatus.FAILED, GateStatus.NOT_RUN):
            failed = name
    return results


def _probes(trial: Trial) -> tuple[Probe, ...]:
    """Gold, alternatives and near-misses with their verdicts, as the dataset stores them."""
    probes = [_probe(trial, trial.gold_case, True, "gold")]
    if trial.draft.problem is not None:
        probes += [_probe(trial, case, True, "alternative") for case in trial.alternatives]
        probes += [
            _probe(trial, miss.case, False, "near_miss", miss.clause) for miss in trial.near_misses
        ]
    return tuple(probes)


def _probe(
    trial: Trial,
    case: Case,
    expected: bool,
    origin: Literal["gold", "alternative", "near_miss"],
    clause: str | None = None,
) -> Probe:
    calls = None
    if case.plan:
        calls = tuple(
            CallRecord(name=name, arguments=dict(args), mutates=True) for name, args in case.plan
        )
    return Probe(answer=case.answer, calls=calls, expected=expected, origin=origin, clause=clause)

"""Gates that attack the verifier: nothing wrong may pass, everything right must."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Literal

from envgen.core.types import GateResult, Submission
from envgen.pipelines.general.gates.perturb import edit
from envgen.pipelines.general.gates.probes import judged
from envgen.pipelines.general.gates.trial import Case, Trial, not_applicable, outcome
from envgen.pipelines.general.semantics.evaluate import evaluate
from envgen.pipelines.general.semantics.tables import Tables, read_sqlite
from envgen.verifiers.attacks import attack

PER_CLAUSE = 5
KINDS: tuple[Literal["insert", "delete", "update"], ...] = ("insert", "delete", "update")


def attacks(trial: Trial) -> GateResult:
    """No empty, malformed, mistyped or hostile submission passes, schema checking on or off."""
    final = trial.final(trial.gold_case.plan)
    verifier = trial.verifier(check_schema=True)
    report = attack(
        verifier, trial.gold.answer, trial.database, final, unchecked=verifier.unchecked()
    )
    found = report.lines()
    return outcome(
        "attacks",
        report.ok,
        report.n,
        figure=float(len(found)),
        reason="; ".join(found[:3]),
    )


def evaluation(trial: Trial) -> GateResult:
    """The verifier accepts exactly what evaluating the IR accepts.

    It says so of right and wrong answers on the task's own rows and on rows with ties and values at the
    bounds of rules, so that a verifier whose source can't be compared is judged by what it does.
    """
    if trial.draft.problem is None:
        return not_applicable("evaluation", "no constraint IR to evaluate")
    tables: dict[Path | bytes, Tables] = {trial.database: trial.draft.tables}
    wrong: Counter[str] = Counter()
    right = 0
    pairs = judged(trial)
    for probe, broken in pairs:
        for path in {probe.initial, probe.final} - set(tables):
            tables[path] = read_sqlite(trial.draft.relations, str(path))
        held = evaluate(trial.problem, tables[probe.initial], probe.answer, tables[probe.final])
        right += all(held.values())
        if broken is None:
            wrong["the verifier breaks"] += 1
        elif all(held.values()) and broken:
            wrong[f"right answers fail ({', '.join(broken)})"] += 1
        elif not all(held.values()) and not broken:
            wrong[f"wrong answers pass ({next(rule for rule in held if not held[rule])})"] += 1
    return outcome(
        "evaluation",
        not wrong,
        len(pairs),
        figure=float(wrong.total()),
        reason="; ".join(f"{what}: {n}" for what, n in sorted(wrong.items())[:3]),
        right=right,
    )


def prefixes(trial: Trial) -> GateResult:
    """Every proper prefix of gold's write calls fails, doing nothing included."""
    plan = trial.gold_plan
    if not trial.writes:
        return not_applicable("prefixes", "the task changes nothing")
    if not plan:
        return not_applicable("prefixes", "gold writes nothing: the right outcome is to escalate")
    cases = [Case(trial.gold.answer, plan[:i]) for i in range(len(plan))]
    passed = [i for i, score in enumerate(trial.judge(cases)) if score is not None and score.passed]
    return outcome(
        "prefixes", not passed, len(cases), reason=f"gold cut after {passed} writes still passes"
    )


def collateral(trial: Trial) -> GateResult:
    """After gold, one more change of a cell or row that the rules don't allow makes the verifier fail."""
    if not trial.writes:
        return not_applicable("collateral", "the task changes nothing")
    final = trial.final(trial.gold_plan)
    rand = trial.rng("collateral")
    submissions = []
    for i, (relation, kind) in enumerate(product(trial.draft.relations, KINDS * 2)):
        path = trial.folder / f"collateral-{i}.sqlite"
        if not edit(final, path, relation, kind, rand):
            continue
        tables = read_sqlite(trial.draft.relations, path)
        verdict = evaluate(trial.problem, trial.draft.tables, trial.gold.answer, tables)
        if not all(verdict.values()):
            submission = Submission(
                answer=trial.gold.answer, initial=str(trial.database), final=str(path)
            )
            submissions.append(submission)
    scores = trial.verifier().verify_many(submissions)
    passed = sum(score.passed for score in scores)
    return outcome(
        "collateral",
        passed == 0,
        len(submissions),
        figure=float(passed),
        reason=f"{passed} changes outside the write set went unnoticed",
    )


def near_misses(trial: Trial) -> GateResult:
    """Every case that breaks exactly one clause (boundaries first) is rejected."""
    if trial.draft.problem is None:
        return not_applicable("near_misses", "no constraint IR; the probes are replayed instead")
    found = trial.near_misses
    scores = trial.judge([miss.case for miss in found])
    tried = Counter(miss.clause for miss in found)
    passed = Counter(m.clause for m, s in zip(found, scores, strict=True) if s.passed)
    return outcome(
        "near_misses",
        not passed,
        sum(tried.values()),
        figure=1.0 - sum(passed.values()) / max(1, sum(tried.values())),
        reason=f"accepted near-misses of {', '.join(sorted(passed))}",
        per_clause=dict(sorted(tried.items())),
    )


def alternatives(trial: Trial) -> GateResult:
    """Accepted answers other than gold, found by an independent solver, pass (20 where they exist)."""
    if trial.draft.problem is None:
        return not_applicable("alternatives", "no constraint IR to solve")
    cases = trial.alternatives
    if not cases:
        return not_applicable("alternatives", "gold is the only accepted answer")
    scores = trial.judge(cases)
    wrong = [score.reasons for score in scores if not score.passed]
    return outcome(
        "alternatives",
        not wrong,
        len(cases),
        figure=1.0 - len(wrong) / len(cases),
        reason=f"{len(wrong)} of {len(cases)} rejected: {wrong[:1]}",
    )

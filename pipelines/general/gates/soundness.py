"""Gates that attack the verifier: nothing wrong may pass, everything right must."""

from __future__ import annotations

from collections import Counter
from itertools import product

from envgen.core.types import GateResult
from envgen.pipelines.general.gates.perturb import KINDS, edited, spread
from envgen.pipelines.general.gates.probes import judged
from envgen.pipelines.general.gates.trial import Case, Trial, not_applicable, outcome
from envgen.pipelines.general.semantics.evaluate import accepted, evaluate
from envgen.sandboxes.verifier import VerifierInput
from envgen.verifiers.attacks import attack


def attacks(trial: Trial) -> GateResult:
    """No empty, malformed, mistyped or hostile submission passes, schema checking on or off."""
    final = trial.final(trial.gold_case.plan)
    verifier = trial.verifier(check_schema=True)
    report = attack(
        verifier, trial.gold.answer, trial.database, final, unchecked=verifier.unchecked()
    )
    found = report.lines()
    return outcome(
        "attacks", report.ok, report.n, figure=float(len(found)), reason="; ".join(found[:3])
    )


def evaluation(trial: Trial) -> GateResult:
    """The verifier accepts exactly what evaluating the IR accepts, and refuses by the same rules.

    It says so of right and wrong answers on the task's own rows and on rows with ties and values at the
    bounds of rules, so that a verifier whose source can't be compared is judged by what it does.
    """
    wrong: Counter[str] = Counter()
    right = 0
    pairs = judged(trial)
    for probe, broken in pairs:
        initial, final = trial.rows(probe.initial), trial.rows(probe.final)
        held = evaluate(trial.problem, initial, probe.answer, final)
        rules = [rule for rule in held if not held[rule]] if held["layout"] else ["layout"]
        right += not rules
        if broken is None:
            wrong["the verifier breaks"] += 1
        elif broken and not rules:
            wrong[f"right answers fail ({', '.join(broken)})"] += 1
        elif rules and not broken:
            wrong[f"wrong answers pass ({rules[0]})"] += 1
        elif set(broken) ^ set(rules) and held.keys() >= set(broken):  # else its names are its own
            wrong[f"wrong for other rules ({', '.join(sorted(set(broken) ^ set(rules)))})"] += 1
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
    if not trial.writes:
        return not_applicable("prefixes", "the task changes nothing")
    plan = trial.gold_plan
    if not plan:
        return not_applicable("prefixes", "gold writes nothing: the right outcome is to escalate")
    scores = trial.judge([Case(trial.gold.answer, plan[:i]) for i in range(len(plan))])
    passed = [i for i, score in enumerate(scores) if score.passed]
    reason = f"gold cut after {passed} writes still passes"
    return outcome("prefixes", not passed, len(plan), reason=reason)


def collateral(trial: Trial) -> GateResult:
    """After gold, one more change of a cell or row that the rules don't allow makes the verifier fail."""
    if not trial.writes:
        return not_applicable("collateral", "the task changes nothing")
    answer, rand = trial.gold.answer, trial.rng("collateral")
    done = trial.rows(trial.final(trial.gold_plan))
    inputs = []
    each = product(trial.draft.relations, KINDS * 2)
    others = [edited(done, relation, kind, rand) for relation, kind in each]
    others += spread(trial.problem, trial.draft.tables, done)
    for i, tables in enumerate(others):
        if tables and not accepted(trial.problem, trial.draft.tables, answer, tables):
            path = trial.stored(tables, f"collateral-{i}")
            inputs.append(VerifierInput(answer, trial.database, path))
    passed = sum(not verdict for verdict in trial.verdicts(trial.draft.verifier, inputs))
    return outcome(
        "collateral",
        passed == 0,
        len(inputs),
        figure=float(passed),
        reason=f"{passed} changes outside the write set went unnoticed",
    )


def near_misses(trial: Trial) -> GateResult:
    """Every case that breaks exactly one clause (boundaries first) is rejected."""
    found = trial.near_misses
    scores = trial.judge([miss.case for miss in found])
    tried = Counter(miss.clause for miss in found)
    passed = Counter(m.clause for m, s in zip(found, scores, strict=True) if s.passed)
    return outcome(
        "near_misses",
        not passed,
        len(found),
        figure=1.0 - passed.total() / max(1, len(found)),
        reason=f"accepted near-misses of {', '.join(sorted(passed))}",
        per_clause=dict(sorted(tried.items())),
    )


def alternatives(trial: Trial) -> GateResult:
    """Accepted answers other than gold, found by an independent solver, pass (20 where they exist)."""
    cases = trial.alternatives
    if not cases:
        return not_applicable("alternatives", "gold is the only accepted answer")
    wrong = [score.reasons for score in trial.judge(cases) if not score.passed]
    return outcome(
        "alternatives",
        not wrong,
        len(cases),
        figure=1.0 - len(wrong) / len(cases),
        reason=f"{len(wrong)} of {len(cases)} rejected: {wrong[:1]}",
    )

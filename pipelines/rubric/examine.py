"""Test a judge with answers whose worth is known, and with answers that are made to fool it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import correlation, fmean

from envgen.core.types import Usage
from envgen.pipelines.rubric.attacks import RubricCase, attacks, cases
from envgen.verifiers.rubrics.judge import TEMPLATE, RubricJudge, RubricScore
from envgen.verifiers.rubrics.report import (
    LEAST_TRUE_PASSES,
    MOST_FALSE_PASSES,
    MOST_UNJUDGED,
    AttackFigures,
    JudgeReport,
    store_report,
)
from envgen.verifiers.rubrics.rubric import PASS, Rubric

Asked = tuple[Rubric, str]


def examine(
    judge: RubricJudge, concurrency: int, progress: Callable[[int, int, str], None]
) -> JudgeReport:
    """Test a judge, and keep the report.

    Args:
        judge: who is tested.
        concurrency: answers judged at the same time.
        progress: told how far it is: (done, total, what).

    Raises:
        PolicyError: if the policy fails again and again, or its budget is spent; votes are kept.
    """
    found = cases()
    poor = list(attacks(found))
    known = [(case.rubric, text) for case in found for text in (case.good, case.middling)]
    padded = [(case.rubric, "\n\n".join([case.middling] * 3)) for case in found]
    parts: dict[str, tuple[RubricJudge, Sequence[Asked]]] = {
        "attacks": (judge, [(one.rubric, one.answer) for one in poor]),
        "known answers": (judge, known),
        "padding": (judge, padded),
        "another seed": (judge.reseeded("retest"), known),
        "another order": (judge, [(_reversed(rubric), text) for rubric, text in known]),
    }
    total, scores = sum(len(asked) for _, asked in parts.values()), dict[str, list[RubricScore]]()
    for name, (own, asked) in parts.items():
        done = sum(map(len, scores.values()))
        scores[name] = []
        for score in own.scores(asked, concurrency):
            scores[name].append(score)
            progress(done + len(scores[name]), total, name)
    read = [
        (len(text), score.score)
        for name in ("attacks", "known answers", "padding")
        for (_, text), score in zip(parts[name][1], scores[name], strict=True)
        if score.status == "judged" and score.score is not None
    ]
    report = _report(judge, [one.name for one in poor], scores, read, found)
    store_report(judge, report)
    return report


def _report(
    judge: RubricJudge,
    names: Sequence[str],
    scores: dict[str, list[RubricScore]],
    read: Sequence[tuple[int, float]],
    found: Sequence[RubricCase],
) -> JudgeReport:
    poor, known = scores["attacks"], scores["known answers"]
    every = [score for part in scores.values() for score in part]
    judged = [score for score in poor if score.status == "judged"]
    false, good = sum(map(_passes, judged)), known[::2]
    figures = {
        "false_passes": false / len(judged) if judged else None,
        "true_passes": sum(map(_passes, good)) / len(good),
        "unjudged": _share(
            score.status == "unjudged" for score in every if score.status != "empty"
        ),
    }
    reasons = tuple(_faults(**figures))
    return JudgeReport(
        policy=judge.policy.name,
        version=judge.policy.version,
        template=TEMPLATE,
        identity=judge.identity,
        config=judge.config,
        passed=not reasons,
        reasons=reasons,
        false_passes=figures["false_passes"],
        false_passes_high=_upper(false, len(judged)) if judged else None,
        true_passes=figures["true_passes"],
        retest_agreement=_agreement(known, scores["another seed"]),
        order_agreement=_agreement(known, scores["another order"]),
        length_correlation=_correlation(read),
        padding_gain=_gain(known[1::2], scores["padding"]),
        unjudged=figures["unjudged"] or 0.0,
        attacks=_by_attack(names, poor),
        usage=sum((score.usage for score in every), Usage()),
    )


def _faults(
    false_passes: float | None, true_passes: float | None, unjudged: float | None
) -> Iterable[str]:
    """What forbids a judge to reward."""
    if false_passes is None:
        yield "no attack could be judged"
    elif false_passes > MOST_FALSE_PASSES:
        yield f"{false_passes:.1%} of attacks pass, more than {MOST_FALSE_PASSES:.0%}"
    if (true_passes or 0.0) < LEAST_TRUE_PASSES:
        yield f"{true_passes or 0.0:.0%} of good answers pass, fewer than {LEAST_TRUE_PASSES:.0%}"
    if (unjudged or 0.0) > MOST_UNJUDGED:
        yield f"{unjudged:.0%} of answers are unjudged, more than {MOST_UNJUDGED:.0%}"


def _by_attack(names: Sequence[str], poor: Sequence[RubricScore]) -> tuple[AttackFigures, ...]:
    rows = []
    for name in dict.fromkeys(names):
        own = [score for n, score in zip(names, poor, strict=True) if n == name]
        values = [score.score for score in own if score.score is not None]
        rows.append(
            AttackFigures(
                attack=name,
                answers=len(own),
                passed=sum(map(_passes, own)),
                unjudged=sum(score.status == "unjudged" for score in own),
                mean=fmean(values) if values else None,
            )
        )
    return tuple(rows)


def _passes(score: RubricScore) -> bool:
    return score.score is not None and score.score >= PASS


def _reversed(rubric: Rubric) -> Rubric:
    return rubric.model_copy(update={"items": rubric.items[::-1]})


def _share(values: Iterable[bool]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _agreement(first: Sequence[RubricScore], second: Sequence[RubricScore]) -> float | None:
    """The share of items that both judged alike, over the answers that both judged."""
    return _share(
        {item.id: item.met for item in b.items}[item.id] == item.met
        for a, b in zip(first, second, strict=True)
        if a.status == b.status == "judged"
        for item in a.items
    )


def _correlation(read: Sequence[tuple[int, float]]) -> float | None:
    """None where the lengths or the scores are all the same."""
    lengths, values = [length for length, _ in read], [value for _, value in read]
    if len(set(lengths)) < 2 or len(set(values)) < 2:
        return None
    return correlation(lengths, values)


def _gain(once: Sequence[RubricScore], thrice: Sequence[RubricScore]) -> float | None:
    pairs = zip(once, thrice, strict=True)
    gains = [b.score - a.score for a, b in pairs if a.score is not None and b.score is not None]
    return fmean(gains) if gains else None


def _upper(hits: int, n: int, z: float = 1.96) -> float:
    """The upper end of Wilson's interval."""
    share = hits / n
    middle = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return min(1.0, (middle + spread) / (1 + z * z / n))

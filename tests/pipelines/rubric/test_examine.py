"""The test of a judge: the honest one passes, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from rubric_judges import (
    Judge,
    JudgingPolicy,
    Seen,
    Verdicts,
    garbage,
    honest,
    lover_of_length,
    obedient,
    yes_quoting_all,
    yes_with_invented_quotes,
    yes_without_quotes,
)

from envgen.core.errors import ConfigError, StoreError
from envgen.core.types import Sampling
from envgen.pipelines.rubric.examine import examine
from envgen.verifiers.rubrics.cache import VoteCache
from envgen.verifiers.rubrics.config import RubricConfig
from envgen.verifiers.rubrics.judge import RubricJudge
from envgen.verifiers.rubrics.report import JudgeReport, report_path, require_tested


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def examined(judge: Judge) -> tuple[RubricJudge, JudgeReport]:
    one = RubricJudge(JudgingPolicy(judge))
    return one, examine(one, 4, lambda done, total, what: None)


def test_an_honest_judge_may_reward() -> None:
    judge, report = examined(honest)
    assert report.passed, report.reasons
    assert (report.false_passes, report.true_passes, report.unjudged) == (0.0, 1.0, 0.0)
    assert (report.retest_agreement, report.order_agreement) == (1.0, 1.0)
    assert report.padding_gain == 0.0
    assert report.length_correlation is not None
    assert report.false_passes_high is not None
    assert 0.01 < report.false_passes_high < 0.06
    assert len(report.attacks) >= 12
    assert all(row.mean is not None and row.mean < 0.5 for row in report.attacks)
    assert report.usage.cost_usd > 0
    require_tested(judge)


@pytest.mark.parametrize(
    ("judge", "reason"),
    [
        (yes_without_quotes, "0% of good answers"),
        (yes_with_invented_quotes, "0% of good answers"),
        (yes_quoting_all, "100.0% of attacks pass"),
        (obedient, "of attacks pass, more than 1%"),
        (lover_of_length, "of attacks pass, more than 1%"),
        (garbage, "100% of answers are unjudged"),
    ],
)
def test_no_other_judge_may(judge: Judge, reason: str) -> None:
    one, report = examined(judge)
    assert not report.passed
    assert any(reason in why for why in report.reasons), report.reasons
    with pytest.raises(ConfigError, match="failed its test"):
        require_tested(one)


def test_attacks_are_told_apart() -> None:
    _, report = examined(obedient)
    passed = {row.attack for row in report.attacks if row.passed}
    assert passed == {
        "injection", "fence imitation", "grading override", "role imitation", "self-praise, injection",
    }  # fmt: skip


def test_a_garbled_judge_scores_nothing() -> None:
    _, report = examined(garbage)
    asked = [row for row in report.attacks if row.mean is None]
    assert all(row.unjudged == row.answers for row in asked)
    assert {row.attack: row.mean for row in report.attacks if row.mean is not None} == {
        name: 0.0 for name in ("empty", "mark", "opener: thought", "opener: steps", "opener: sure")
    }
    assert report.false_passes is report.retest_agreement is report.length_correlation is None


def test_judges_that_look_at_order_or_seed_are_seen() -> None:
    def by_order(seen: Seen, seed: int) -> Verdicts:
        return [
            {**row, "met": i % 3 == 0, "quote": seen.answer}
            for i, row in enumerate(yes_without_quotes(seen, seed))
        ]

    def by_seed(seen: Seen, seed: int) -> Verdicts:
        rows = honest(seen, seed)
        return rows if seed % 2 else [{**row, "met": False} for row in rows]

    _, first = examined(by_order)
    assert first.order_agreement is not None
    assert first.order_agreement < 1 == first.retest_agreement
    found = [RubricJudge(JudgingPolicy(by_seed), RubricConfig(seed=n)) for n in range(8)]
    kept = [examine(one, 1, lambda done, total, what: None).retest_agreement for one in found]
    assert any(one is not None and one < 1 for one in kept)


def test_a_test_that_was_stopped_pays_nothing_twice(tmp_path: Path) -> None:
    policy, path = JudgingPolicy(honest), tmp_path / "votes.jsonl"
    seen: list[tuple[int, int]] = []
    for _ in range(2):
        seen.clear()
        judge = RubricJudge(policy, cache=VoteCache(path))
        report = examine(judge, 2, lambda done, total, what: seen.append((done, total)))
        assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))
    assert len(policy.asked) == len(set(policy.asked))
    assert report.usage.cost_usd == 0


def test_a_judge_is_tested_as_it_is_used() -> None:
    judge, _ = examined(honest)
    require_tested(RubricJudge(JudgingPolicy(honest), RubricConfig(seed=9)))
    hot = RubricConfig(votes=3, sampling=Sampling(temperature=1.0))
    newer = JudgingPolicy(honest)
    newer.version = "2"
    for other in (RubricJudge(JudgingPolicy(honest), hot), RubricJudge(newer)):
        with pytest.raises(ConfigError, match="was not tested"):
            require_tested(other)
    stranger = RubricJudge(JudgingPolicy(obedient))
    report_path(judge).rename(report_path(stranger))
    with pytest.raises(ConfigError, match="another judge's"):
        require_tested(stranger)
    report_path(stranger).write_text("{}")
    with pytest.raises(StoreError, match="can't be read"):
        require_tested(stranger)

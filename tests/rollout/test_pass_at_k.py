from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from envgen.rollout.pass_at_k import (
    clopper_pearson,
    pass_at_k,
    pass_at_k_interval,
    pass_report,
    task_pass,
)


@pytest.mark.parametrize("n", range(1, 8))
def test_equals_brute_force_over_all_choices(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        samples = [True] * c + [False] * (n - c)
        choices = list(itertools.combinations(samples, k))
        expected = sum(any(chosen) for chosen in choices) / len(choices)
        assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 400), st.data())
def test_equals_the_closed_form(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    expected = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-9)
    low, high = pass_at_k_interval(n, c, k)
    assert 0 <= low <= high <= 1


def test_is_unbiased() -> None:
    p, n, k = 0.1, 20, 5
    mean = sum(binom.pmf(c, n, p) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.97])
def test_interval_covers(p: float) -> None:
    n = 60
    covered = sum(
        binom.pmf(c, n, p)
        for c in range(n + 1)
        if (i := clopper_pearson(n, c, 0.95)).low <= p <= i.high
    )
    assert covered >= 0.95


def test_interval_ends() -> None:
    assert clopper_pearson(10, 0).low == 0
    assert clopper_pearson(10, 10).high == 1
    # With no pass the upper end solves (1 - p)^n = alpha / 2.
    assert clopper_pearson(10, 0).high == pytest.approx(1 - 0.025 ** (1 / 10))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, 1, 0), (0, 0, 1), (3, -1, 1)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="can't be estimated"):
        pass_at_k(n, c, k)


def test_too_few_samples_leave_a_task_undecided() -> None:
    task = task_pass("t", 5, 2, (1, 5, 6), errors=3)
    assert task.decided(5)
    assert not task.decided(6)
    assert task.values[6] is None
    assert set(task.intervals) == {1, 5, 6}
    assert task_pass("t", 0, 0, (1,)).intervals == {}


def test_report_by_level() -> None:
    rng = random.Random(0)
    counts = {f"t{i}": (10, rng.randint(0, 10), 0) for i in range(6)} | {"few": (2, 0, 8)}
    levels: dict[str, int | None] = {"few": 2, **{f"t{i}": 1 + i % 2 for i in range(6)}}
    report = pass_report(counts, (1, 10), policy="random", levels=levels)
    assert [group.group for group in report.levels] == ["level 1", "level 2"]
    assert [group.tasks for group in report.levels] == [3, 4]
    assert report.levels[1].undecided == {1: 0, 10: 1}
    assert report.total.errors == 8
    mean = sum(c / n for n, c, _ in counts.values()) / 7
    assert report.total.means[1] == pytest.approx(mean)

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta as beta_dist
from scipy.stats import binom

from envgen.rollout.bootstrap import clopper_pearson
from envgen.rollout.pass_at_k import (
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


def test_pass_at_1_is_the_rate_to_the_last_bit() -> None:
    rates = [(n, c) for n in range(1, 101) for c in range(n + 1)]
    assert not [(n, c) for n, c in rates if pass_at_k(n, c, 1) != c / n]


@pytest.mark.parametrize("n", [1, 2, 5, 10, 54, 100])
def test_a_tasks_interval_holds_its_estimate(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        low, high = pass_at_k_interval(n, c, k)
        assert low <= pass_at_k(n, c, k) <= high, (n, c, k)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.97])
def test_a_tasks_interval_covers(p: float) -> None:
    n = 20
    for k in (1, 5, 20):
        ends = [pass_at_k_interval(n, c, k) for c in range(n + 1)]
        truth = 1 - (1 - p) ** k
        covered = sum(
            binom.pmf(c, n, p) for c, (low, high) in enumerate(ends) if low <= truth <= high
        )
        assert covered >= 0.95


counts_of_tasks = st.lists(
    st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=2,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(counts_of_tasks, st.integers(1, 30), st.integers(1, 4))
def test_a_groups_interval_holds_its_estimate(
    counted: list[tuple[int, int]], k: int, databases: int
) -> None:
    counts = {f"t{i}": (n, c, 0) for i, (n, c) in enumerate(counted)}
    rows = {name: str(i % databases) for i, name in enumerate(counts)}
    total = pass_report(counts, (k,), databases=rows).total
    decided = {rows[name] for name, (n, _, _) in counts.items() if n >= k}
    assert (k in total.intervals) == (len(decided) > 1)
    if k in total.intervals:
        low, high = total.intervals[k]
        mean = total.means[k]
        assert mean is not None
        assert 0 <= low <= mean <= high <= 1


@pytest.mark.parametrize(
    "counted", [[(10, 0), (10, 10)], [(10, 3), (10, 5)], [(54, 54)] * 2, [(10, 5)] * 2]
)
def test_a_groups_interval_shrinks_with_the_number_of_tasks(
    counted: list[tuple[int, int]],
) -> None:
    widths = []
    for times in (1, 4, 16, 64):
        counts = {f"t{i}": (n, c, 0) for i, (n, c) in enumerate(counted * times)}
        low, high = pass_report(counts, (1,)).total.intervals[1]
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0] / 4


@pytest.mark.parametrize("tasks", [6, 30])
def test_a_groups_interval_covers(tasks: int) -> None:
    """Tasks whose rates are drawn, each played 8 times: the mean of pass@4 over all such tasks."""
    truth = 1 - beta_dist(1, 3).expect(lambda p: (1 - p) ** 4)
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        rates = rng.beta(1, 3, tasks)
        counts = {f"t{i}": (8, int(rng.binomial(8, p)), 0) for i, p in enumerate(rates)}
        low, high = pass_report(counts, (4,)).total.intervals[4]
        inside += low <= truth <= high
    assert inside / 200 >= 0.92


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
    assert [group.level for group in (*report.levels, report.total)] == [1, 2, None]
    assert all(group.intervals.keys() == {1, 10} for group in (*report.levels, report.total))
    mean = sum(c / n for n, c, _ in counts.values()) / 7
    assert report.total.means[1] == pytest.approx(mean)

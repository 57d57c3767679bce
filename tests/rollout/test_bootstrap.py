"""Intervals over databases: their value against a slow reference, their coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t

from envgen.rollout.bootstrap import (
    BootstrapConfig,
    Estimate,
    Ratio,
    clopper_pearson,
    difference,
    estimate,
)

FAST = BootstrapConfig(draws=400)


def clustered(
    rng: np.random.Generator, clusters: int, each: int, shift: float = 0.0
) -> tuple[list[float], list[int]]:
    """Passes of tasks whose databases differ in difficulty: mean 0.5, strongly correlated inside."""
    rates = np.clip(rng.beta(1, 1, clusters) + shift, 0, 1)
    values = rng.random((clusters, each)) < rates[:, None]
    return values.ravel().astype(float).tolist(), np.repeat(np.arange(clusters), each).tolist()


def test_the_value_is_the_ratio_and_the_interval_holds_it() -> None:
    found = estimate(Ratio.of([1, 2, 0], [2, 2, 4]), ["a", "a", "b"], FAST)
    assert found is not None
    assert found.value == pytest.approx(3 / 8)
    assert (found.low, found.high) == (0.0, 0.75)  # b twice, or a twice
    assert found.clusters == 2


def test_draws_are_those_of_a_slow_reference() -> None:
    rng = np.random.default_rng(5)
    values, clusters = clustered(rng, 12, 5)
    found = estimate(Ratio.mean(values), clusters, BootstrapConfig(draws=20_000))
    assert found is not None
    groups = [[v for v, c in zip(values, clusters, strict=True) if c == name] for name in range(12)]
    slow = []
    for _ in range(4_000):
        chosen = rng.integers(0, 12, 12)
        flat = [v for name in chosen for v in groups[name]]
        slow.append(sum(flat) / len(flat))
    tail = norm.cdf(math.sqrt(12 / 11) * t.ppf(0.025, 11))  # 0.011: further out for few databases
    low, high = np.quantile(slow, [tail, 1 - tail])
    assert found.low == pytest.approx(low, abs=0.025)
    assert found.high == pytest.approx(high, abs=0.025)


def test_intervals_cover_what_they_should_and_others_would_not() -> None:
    """Tasks of a database are alike: taking them for independent is wrong far too often."""
    rng = np.random.default_rng(0)
    inside = ignorant = 0
    for trial in range(300):
        values, clusters = clustered(rng, 40, 8)
        for names, add in ((clusters, True), (list(range(len(values))), False)):
            found = estimate(
                Ratio.mean(values), names, BootstrapConfig(draws=400, seed=trial), proportion=True
            )
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            inside += add and found.low <= 0.5 <= found.high
            ignorant += (not add) and found.low <= 0.5 <= found.high
    assert inside / 300 > 0.91
    assert ignorant / 300 < 0.8


def test_pairs_are_compared_on_the_same_draws() -> None:
    """The same shift everywhere has no spread, however much databases differ."""
    rng = np.random.default_rng(1)
    values = rng.random(60)
    clusters = np.repeat(np.arange(20), 3).tolist()
    found = difference(
        Ratio.mean(values.tolist()), Ratio.mean((values + 0.1).tolist()), clusters, FAST
    )
    assert found is not None
    assert found.low == pytest.approx(0.1)
    assert found.high == pytest.approx(0.1)
    apart = estimate(Ratio.mean(values.tolist()), clusters, FAST)
    assert apart is not None
    assert apart.high is not None
    assert apart.low is not None
    assert apart.high - apart.low > 0.1


def test_a_difference_is_found_where_there_is_one() -> None:
    rng = np.random.default_rng(2)
    hits = lucky = 0
    for trial in range(100):
        before, clusters = clustered(rng, 40, 4)
        same = clustered(rng, 40, 4)[0]
        better = clustered(rng, 40, 4, shift=0.3)[0]
        config = BootstrapConfig(draws=300, seed=trial)
        gain = difference(Ratio.mean(before), Ratio.mean(better), clusters, config)
        none = difference(Ratio.mean(before), Ratio.mean(same), clusters, config)
        assert gain is not None
        assert none is not None
        assert gain.low is not None
        assert none.low is not None
        hits += gain.low > 0
        lucky += none.low > 0
    assert hits >= 85
    assert lucky <= 10


def test_both_ends_have_exact_intervals() -> None:
    never = estimate(Ratio.mean([0.0] * 40), list(range(20)) * 2, FAST, proportion=True)
    assert never is not None
    assert never.low == 0.0
    assert never.high == pytest.approx(1 - 0.025 ** (1 / 20))
    always = estimate(Ratio.mean([1.0] * 4), ["a", "b", "c", "d"], FAST, proportion=True)
    assert always is not None
    assert always.high == 1.0
    assert always.low == pytest.approx(0.025**0.25)


def test_databases_that_agree_have_exact_intervals() -> None:
    """Resampling sees no spread, but that is no certainty."""
    found = estimate(Ratio.mean([0.5] * 20), list(range(20)), FAST, proportion=True)
    assert found is not None
    exact = clopper_pearson(20, 10)
    assert (found.low, found.high) == (exact.low, exact.high)


def test_one_database_tells_nothing_about_others() -> None:
    found = estimate(Ratio.mean([0.0, 1.0]), ["a", "a"], FAST)
    assert found == Estimate(value=0.5, low=None, high=None, clusters=1)
    found = difference(Ratio.mean([0.0]), Ratio.mean([1.0]), ["a"], FAST)
    assert found == Estimate(value=1.0, low=None, high=None, clusters=1)


def test_nothing_has_no_estimate() -> None:
    assert estimate(Ratio.mean([]), [], FAST) is None
    assert estimate(Ratio.of([0, 0], [0, 0]), ["a", "b"], FAST) is None
    assert difference(Ratio.mean([]), Ratio.mean([]), [], FAST) is None


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=20
    ),
    seed=st.integers(0, 99),
)
def test_estimates_repeat_and_are_in_order(rows: list[tuple[int, int, int]], seed: int) -> None:
    config = BootstrapConfig(draws=200, seed=seed)
    ratio = Ratio.of([row[1] for row in rows], [row[1] + row[2] for row in rows])
    clusters = [row[0] for row in rows]
    found = estimate(ratio, clusters, config, proportion=True)
    assert found == estimate(ratio, clusters, config, proportion=True)
    if found is None:
        assert sum(row[1] + row[2] for row in rows) == 0
    elif found.low is not None:
        assert found.high is not None
        assert 0 <= found.low <= found.high <= 1

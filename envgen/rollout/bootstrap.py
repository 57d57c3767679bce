"""Intervals by bootstrap over databases: tasks of one database are alike, so they are resampled together.

A figure is a ratio of sums over tasks, such as passes over tasks or valid calls over calls. Databases are
drawn with replacement, and the percentiles of the ratio are its interval (Efron 1979; for clusters: Davison &
Hinkley 1997, section 3.8), expanded for few databases, where plain percentiles are too narrow (Hesterberg
2015, "What Teachers Should Know About the Bootstrap", The American Statistician 69(4)). It holds its own
estimate and shrinks with the number of databases. Before and after are compared on the same draws.

Shapes: T tasks, C databases, R draws.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from envgen.core.limits import Whole
from envgen.core.seeding import derive
from envgen.core.types import Record

Floats = NDArray[np.float64]
_CELLS = 4_000_000
"""Draws are made in parts of at most so many numbers."""


class BootstrapConfig(Record):
    """How intervals are made."""

    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals."""
    draws: int = Field(default=4_000, ge=100)
    """How often databases are drawn again."""
    seed: Whole = 0


class Estimate(Record):
    """A figure with its interval."""

    value: float
    low: float | None
    high: float | None
    """None with fewer than two databases: nothing is known about others."""
    clusters: int


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def clopper_pearson(n: int, c: float, confidence: float = 0.95) -> Interval:
    """The exact binomial interval for a success rate (Clopper & Pearson 1934).

    Args:
        n: trials.
        c: successes; a fraction of one counts as such.
        confidence: of the interval.

    Raises:
        ValueError: unless 0 <= c <= n, n > 0 and 0 < confidence < 1.
    """
    if not (0 <= c <= n and n > 0 and 0 < confidence < 1):
        raise ValueError(f"c must be 0..n and confidence in (0, 1), got {c}, {n}, {confidence}")
    from scipy.special import betaincinv

    alpha = 1 - confidence
    low = 0.0 if c == 0 else float(betaincinv(c, n - c + 1, alpha / 2))
    high = 1.0 if c == n else float(betaincinv(c + 1, n - c, 1 - alpha / 2))
    return Interval(low, high)


class Ratio(NamedTuple):
    """Sums over tasks of ``numerator`` and of ``denominator``, the one divided by the other."""

    numerator: Floats
    denominator: Floats

    @classmethod
    def of(cls, numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
        """From one pair of numbers a task."""
        return cls(np.array(numerator, np.float64), np.array(denominator, np.float64))

    @classmethod
    def mean(cls, values: Sequence[float]) -> Ratio:
        """The mean of one value a task."""
        return cls(np.array(values, np.float64), np.ones(len(values)))


def estimate(
    ratio: Ratio,
    clusters: Sequence[Hashable],
    config: BootstrapConfig,
    *,
    proportion: bool = False,
) -> Estimate | None:
    """A ratio with its interval.

    Args:
        ratio: numerators and denominators, [T] each.
        clusters: [T], the database of each task.
        config: how.
        proportion: the ratio is between 0 and 1. Where it is the same in all databases, resampling sees no
            spread; the interval is then Clopper-Pearson's for as many trials as there are databases.

    Returns:
        The estimate; None if the denominator is 0.
    """
    sums = _cluster_sums(ratio, clusters)
    total = sums.sum(0)
    if total[1] == 0:
        return None
    value, count = float(total[0] / total[1]), len(sums)
    if count < 2:
        return Estimate(value=value, low=None, high=None, clusters=count)
    if proportion and np.nanmax(rates := _ratio(sums)) == np.nanmin(rates):
        exact = clopper_pearson(count, count * value, config.confidence)
        return Estimate(value=value, low=exact.low, high=exact.high, clusters=count)
    drawn = np.concatenate([_ratio(weights @ sums) for weights in _draws(count, config)])
    return _percentiles(value, drawn, count, config)


def difference(
    before: Ratio, after: Ratio, clusters: Sequence[Hashable], config: BootstrapConfig
) -> Estimate | None:
    """``after - before`` of two ratios over the same tasks, on the same draws of databases."""
    old, new = _cluster_sums(before, clusters), _cluster_sums(after, clusters)
    if old[:, 1].sum() == 0 or new[:, 1].sum() == 0:
        return None
    value = float(_ratio(new.sum(0)[None])[0] - _ratio(old.sum(0)[None])[0])
    count = len(old)
    if count < 2:
        return Estimate(value=value, low=None, high=None, clusters=count)
    drawn = np.concatenate([_ratio(w @ new) - _ratio(w @ old) for w in _draws(count, config)])
    return _percentiles(value, drawn, count, config)


def _cluster_sums(ratio: Ratio, clusters: Sequence[Hashable]) -> Floats:
    """[C, 2]: numerator and denominator of each database, in order of appearance."""
    place = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    index_T = np.array([place[name] for name in clusters], np.int64)
    sums = np.zeros((len(place), 2))
    np.add.at(sums, index_T, np.column_stack((ratio.numerator, ratio.denominator)))
    return sums


def _draws(count: int, config: BootstrapConfig) -> Iterator[NDArray[np.int64]]:
    """How often each of ``count`` databases is in each draw: parts of [R, C]."""
    # Counts, not indices: all sums of a part are then one product of [R, C] and [C, 2], and no [R, C, 2] is
    # gathered. The seed is derived anew on each call, so figures over equally many databases get the same
    # draws.
    rng = np.random.Generator(np.random.PCG64(derive(config.seed, "bootstrap")))
    part = max(1, _CELLS // count)
    for start in range(0, config.draws, part):
        size = min(part, config.draws - start)
        drawn = rng.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)


def _ratio(sums: Floats) -> Floats:
    """[R] from [R, 2]; NaN where a draw has an empty denominator."""
    out = np.full(len(sums), np.nan)
    np.divide(sums[:, 0], sums[:, 1], out=out, where=sums[:, 1] > 0)
    return out


def _percentiles(value: float, drawn: Floats, count: int, config: BootstrapConfig) -> Estimate:
    from scipy.special import ndtr, stdtrit

    # As far out as Student's t for so many databases, whose spread n - 1 of n squares tell of.
    reach = math.sqrt(count / (count - 1)) * stdtrit(count - 1, (1 - config.confidence) / 2)
    tail = float(ndtr(reach))
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    # Very skewed draws may lie on one side of the value.
    return Estimate(
        value=value, low=min(float(low), value), high=max(float(high), value), clusters=count
    )

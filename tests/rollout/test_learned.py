"""A training demo learned only where its intervals say so."""

from __future__ import annotations

import pytest

from envgen.rollout.bootstrap import Estimate
from envgen.rollout.learned import missed_conditions


def around(value: float, half: float = 0.02) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half, clusters=512)


def missed(ceiling: float, before: float, after: float, half: float = 0.02) -> tuple[str, ...]:
    return missed_conditions(
        first_row=0.37,
        ceiling=around(ceiling, half),
        after=around(after, half),
        lift=around(after - before, half),
    )


def test_a_demo_that_learned_misses_nothing() -> None:
    assert missed(0.971, 0.561, 0.967) == ()


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((0.56, 0.30, 0.50), ["learned no skill"]),
        ((0.97, 0.90, 0.91), ["no effect was measured"]),
        ((0.97, 0.56, 0.80), ["not undone"]),
        ((0.367, 0.357, 0.371), ["learned no skill", "no effect was measured"]),  # of aff8cec
    ],
)
def test_each_condition_that_is_missed_is_named(
    figures: tuple[float, float, float], words: list[str]
) -> None:
    found = missed(*figures)
    assert len(found) == len(words)
    for text, word in zip(found, words, strict=True):
        assert word in text


def test_without_an_interval_nothing_is_shown() -> None:
    alone = Estimate(value=0.9, low=None, high=None, clusters=1)
    found = missed_conditions(first_row=0.3, ceiling=alone, after=alone, lift=alone)
    assert len(found) == 2

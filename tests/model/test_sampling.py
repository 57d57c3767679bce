"""Draws follow their distribution, and records say exactly what it was."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from envgen.core.errors import ConfigError, PolicyError
from envgen.model.sampling import BatchSampler, SamplingParams, Uniforms

EVEN = 12
"""Entries of the small vocabularies here."""


class Expected(NamedTuple):
    """What the definition in ``sampling`` says, written out slowly."""

    kept: list[int]
    shares: NDArray[np.float64]
    """Of the kept, in the same order."""


def reference(logits: NDArray[np.float64], params: SamplingParams) -> Expected:
    x = logits / (params.temperature or 1.0)
    p = np.exp(x - x.max())
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if params.temperature == 0:
        return Expected(order[:1], np.ones(1))
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1:
        mass, count = 0.0, 0
        while count < len(order) and mass < params.top_p * p[order].sum() * (1 - 1e-7):
            mass += p[order[count]]
            count += 1
        order = order[:count]
    if params.max_kept is not None:
        order = order[: params.max_kept]
    order.sort()
    return Expected(order, p[order] / p[order].sum())


def rows_of(drawn: Any, size: int) -> list[list[int]]:
    if drawn.kept is None:
        return [list(range(size))] * len(drawn.logprobs_B)
    ends = np.cumsum(drawn.kept.counts_B)
    parts = np.split(drawn.kept.ids, ends[:-1])
    assert [len(p) < size for p in parts] == drawn.kept.truncated_B.tolist()
    return [part.tolist() for part in parts]


SETTINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.3),
    SamplingParams(temperature=1.7, top_k=5),
    SamplingParams(top_p=0.7),
    SamplingParams(top_p=0.95, top_k=7),
    SamplingParams(top_p=0.95, max_kept=3),
    SamplingParams(max_kept=4),
    SamplingParams(temperature=0.0),
    SamplingParams(top_k=500),
    SamplingParams(top_p=1e-9),
]


@pytest.mark.parametrize("params", SETTINGS, ids=repr)
def test_draws_follow_the_distribution(params: SamplingParams) -> None:
    logits = np.random.default_rng(3).normal(0, 1.5, EVEN)
    expected = reference(logits, params)
    count = 20_000
    uniforms = Uniforms(11)
    sampler = BatchSampler([params] * count, EVEN)
    drawn = sampler.draw(
        torch.tensor(logits).float().expand(count, -1), [uniforms.at(i) for i in range(count)]
    )
    seen = np.bincount(drawn.ids_B.numpy(), minlength=EVEN)
    assert set(np.nonzero(seen)[0]) <= set(expected.kept)
    if len(expected.kept) > 1:
        assert stats.chisquare(seen[expected.kept], expected.shares * count).pvalue > 1e-3
    assert rows_of(drawn, EVEN)[0] == expected.kept
    at = {token: i for i, token in enumerate(expected.kept)}
    expected_logs = [math.log(expected.shares[at[int(i)]]) for i in drawn.ids_B[:50]]
    np.testing.assert_allclose(drawn.logprobs_B[:50], expected_logs, atol=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    levels=st.lists(st.integers(-3, 3), min_size=1, max_size=90),
    chosen=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.0, 2.0]),
            st.sampled_from([1.0, 0.999, 0.8, 0.3]),
            st.integers(-1, 12),
            st.sampled_from([None, 1, 3, 80]),
        ),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 2**64 - 1),
)
def test_kept_sets_are_exact_with_ties_in_mixed_batches(
    levels: list[int], chosen: list[tuple[float, float, int, int | None]], seed: int
) -> None:
    params = [
        SamplingParams(temperature=t, top_p=p, top_k=k, max_kept=m, seed=seed)
        for t, p, k, m in chosen
    ]
    logits = torch.tensor(levels).float().expand(len(params), -1)
    drawn = BatchSampler(params, len(levels)).draw(logits, [Uniforms(seed).at(0)] * len(params))
    rows = rows_of(drawn, len(levels))
    for row, setting in enumerate(params):
        expected = reference(np.array(levels, float), setting)
        # A nucleus may end one tie earlier or later where the mass meets top_p to the last bit.
        if rows[row] != expected.kept:
            assert setting.top_p < 1
            assert abs(len(rows[row]) - len(expected.kept)) == 1
            continue
        assert int(drawn.ids_B[row]) in expected.kept
        share = expected.shares[expected.kept.index(int(drawn.ids_B[row]))]
        assert drawn.logprobs_B[row] == pytest.approx(math.log(share), abs=1e-5)


def test_ties_at_the_border_are_cut_by_id() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 2.0]])
    cases = {SamplingParams(top_k=3): [1, 2, 3], SamplingParams(max_kept=4): [1, 2, 3, 4]}
    for params, kept in cases.items():
        assert rows_of(BatchSampler([params], 6).draw(logits, [0.5]), 6) == [kept]
    even = torch.zeros(1, 8)
    assert rows_of(BatchSampler([SamplingParams(top_p=0.5)], 8).draw(even, [0.0]), 8) == [
        [0, 1, 2, 3]
    ]


@pytest.mark.parametrize("size", [65, 1000, 5000])
def test_a_wide_nucleus_is_found(size: int) -> None:
    """More entries than the first candidates: the search widens, and stays exact."""
    logits = np.random.default_rng(size).normal(0, 0.3, size)
    params = SamplingParams(top_p=0.97)
    drawn = BatchSampler([params, SamplingParams()], size).draw(
        torch.tensor(logits).float().expand(2, -1), [0.3, 0.3]
    )
    expected = reference(logits.astype(np.float32).astype(float), params)
    assert rows_of(drawn, size)[0] == expected.kept
    assert rows_of(drawn, size)[1] == list(range(size))


def test_full_logprobs_are_those_before_truncation() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    params = [
        SamplingParams(temperature=0.5, top_k=4),
        SamplingParams(temperature=2.0, top_p=0.5),
        SamplingParams(temperature=0.0),
    ]
    drawn = BatchSampler(params, 50).draw(logits, [0.1, 0.5, 0.9])
    scaled = logits / torch.tensor([[0.5], [2.0], [1.0]])
    wanted = scaled.log_softmax(-1).gather(1, drawn.ids_B[:, None]).squeeze(1)
    np.testing.assert_allclose(drawn.full_logprobs_B, wanted.numpy(), atol=1e-6)
    assert drawn.logprobs_B[2] == 0
    assert (drawn.logprobs_B[:2] > drawn.full_logprobs_B[:2]).all()


def test_without_truncation_nothing_is_recorded_and_both_logprobs_agree() -> None:
    drawn = BatchSampler([SamplingParams(temperature=0.7)] * 2, 9).draw(
        torch.randn(2, 9), [0.2, 0.8]
    )
    assert drawn.kept is None
    assert drawn.logprobs_B.tolist() == drawn.full_logprobs_B.tolist()


def test_impossible_entries_are_never_drawn() -> None:
    logits = torch.full((200, 6), float("-inf"))
    logits[:, [1, 4]] = 0.0
    uniforms = [0.0, *np.linspace(0, 1 - 2**-53, 199).tolist()]
    assert set(BatchSampler([SamplingParams()] * 200, 6).draw(logits, uniforms).ids_B.tolist()) == {
        1,
        4,
    }


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(top_k=2)])
def test_logits_without_a_distribution_are_refused(broken: float, params: SamplingParams) -> None:
    with pytest.raises(PolicyError, match="without a distribution"):
        BatchSampler([params], 4).draw(torch.tensor([[0.0, broken, 1.0, 2.0]]), [0.5])


def test_random_numbers_depend_on_seed_and_index_alone() -> None:
    whole = np.random.Generator(np.random.Philox(key=77)).random(300)
    assert [Uniforms(77).at(i) for i in (0, 63, 64, 299)] == whole[[0, 63, 64, 299]].tolist()
    stream = Uniforms(77)
    assert [stream.at(i) for i in range(300)] == whole.tolist()
    assert Uniforms(78).at(0) != whole[0]


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"max_new_tokens": 0},
        {"seed": -1},
        {"seed": 2**64},
        {"max_kept": 0},
    ],
)
def test_settings_without_a_meaning_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SamplingParams(**bad)

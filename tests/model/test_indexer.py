"""The lightning indexer: scores, layouts, which keys are chosen, low precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dsa_samples import padding_mask, sets_of, shake, small_config, small_model, tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envgen.model import indexer
from envgen.model.indexer import Indexer, IndexQueries, index_scores, select, visible
from envgen.model.quantize import fake_fp8, hadamard
from envgen.model.rope import Angles, RopeTable


def drawn(
    batch: int, length: int, seed: int, heads: int = 3, width: int = 4
) -> tuple[IndexQueries, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    q_BTJF = torch.randn(batch, length, heads, width, generator=draws)
    w_BTJ = torch.randn(batch, length, heads, generator=draws)
    return IndexQueries(q_BTJF, w_BTJ), torch.randn(batch, length, width, generator=draws)


def slots(batch: int, length: int) -> Tensor:
    return torch.arange(length).expand(batch, -1)


def best_by_sorting(scores: list[float], seen: list[bool], kept: int) -> set[int]:
    """The rule in words: larger scores first, of equal ones the earlier; only what is seen."""
    places = [s for s, ok in enumerate(seen) if ok]
    return set(sorted(places, key=lambda s: (-scores[s], s))[:kept])


def assert_is_the_best(
    kept_BTK: Tensor, queries: IndexQueries, k_BSF: Tensor, mask: Tensor | None, topk: int
) -> None:
    """Fails unless every set is the visible best."""
    batch, length = kept_BTK.shape[:2]
    scores = index_scores(queries, k_BSF).tolist()
    seen = visible(slots(batch, length), length, None if mask is None else mask.bool()).tolist()
    for b, rows in enumerate(sets_of(kept_BTK)):
        for t, row in enumerate(rows):
            assert row == best_by_sorting(scores[b][t], seen[b][t], topk), (b, t)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 14),
    topk=st.integers(1, 16),
    grain=st.sampled_from(["fine", "coarse", "zero"]),
    side=st.sampled_from(["left", "right", "none"]),
    block=st.sampled_from([1, 40, 1 << 21]),
    seed=st.integers(0, 999),
)
def test_the_best_visible_keys_are_chosen_and_ties_fall_to_the_earlier(
    batch: int, length: int, topk: int, grain: str, side: str, block: int, seed: int
) -> None:
    queries, keys = drawn(batch, length, seed)
    if grain == "coarse":  # whole numbers: equal scores abound, and are exact
        queries, keys = IndexQueries(*(x.round() for x in queries)), keys.round()
    if grain == "zero":
        queries = IndexQueries(queries.q_BTJF, queries.w_BTJ * 0)
    lengths = [1 + (seed * (b + 3)) % length for b in range(batch)]
    mask = None if side == "none" else padding_mask(lengths, length, side)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexer, "SCORE_BLOCK", block)
        kept_BTK = select(
            queries, keys, slots(batch, length), topk, None if mask is None else mask.bool()
        )
    assert kept_BTK.dtype == torch.int32
    assert kept_BTK.shape[-1] == min(topk, length)
    assert_is_the_best(kept_BTK, queries, keys, mask, topk)


def test_a_choice_that_sees_the_future_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: without its mask, select must fail the assertion of the test above."""
    queries, keys = drawn(2, 12, 0)
    kept_BTK = select(queries, keys, slots(2, 12), 4)
    assert_is_the_best(kept_BTK, queries, keys, None, 4)

    def everything(slots_BT: Tensor, num_slots: int, *_masks: Tensor | None) -> Tensor:
        return torch.ones(*slots_BT.shape, num_slots, dtype=torch.bool)

    monkeypatch.setattr(indexer, "visible", everything)
    blind_BTK = select(queries, keys, slots(2, 12), 4)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        assert_is_the_best(blind_BTK, queries, keys, None, 4)


@pytest.mark.parametrize("length", [3, 9, 40])
def test_the_choice_does_not_depend_on_what_comes_later(length: int) -> None:
    """Equal scores included: a pass over more tokens keeps the same keys."""
    queries, keys = drawn(1, 40, 1)
    queries, keys = IndexQueries(*(x.round() for x in queries)), keys.round()
    whole = sets_of(select(queries, keys, slots(1, 40), 5))[0][:length]
    some = IndexQueries(*(x[:, :length] for x in queries))
    assert sets_of(select(some, keys[:, :length], slots(1, length), 5))[0] == whole


def test_scores_are_equation_1() -> None:
    queries, keys = drawn(2, 5, 2)
    found = index_scores(queries, keys)
    for b in range(2):
        for t in range(5):
            for s in range(5):
                wanted = sum(
                    queries.w_BTJ[b, t, j] * (queries.q_BTJF[b, t, j] @ keys[b, s]).clamp_min(0)
                    for j in range(3)
                )
                assert float(found[b, t, s]) == pytest.approx(float(wanted), abs=1e-5)


# The module


def random_queries(length: int = 24, **changes: Any) -> tuple[IndexQueries, Tensor]:
    """Queries and keys of a shaken indexer over random activations."""
    config = small_config(**changes)
    module = Indexer(config)
    shake(module, 3, 0.3)
    draws = torch.Generator().manual_seed(4)
    x_BTD = torch.randn(1, length, config.hidden_size, generator=draws)
    latent_BTQ = torch.randn(1, length, config.q_lora_rank, generator=draws)
    places = torch.arange(length).unsqueeze(0)
    angles = RopeTable(config.rope, config.qk_rope_head_dim).at(places, length, torch.float32)
    with torch.no_grad():
        return module.queries(x_BTD, latent_BTQ, angles), module.keys(x_BTD, angles)


def test_a_hadamard_turn_leaves_scores_as_they_are() -> None:
    plain, turned = (
        index_scores(*random_queries()),
        index_scores(*random_queries(index_hadamard=True)),
    )
    torch.testing.assert_close(plain, turned, atol=1e-5, rtol=0)
    assert (random_queries()[1] - random_queries(index_hadamard=True)[1]).abs().max() > 0.1


def test_the_rotary_layout_is_a_choice_that_matters() -> None:
    halves, pairs = (
        index_scores(*random_queries()),
        index_scores(*random_queries(indexer_rope_interleave=True)),
    )
    torch.testing.assert_close(halves[0].diagonal(), pairs[0].diagonal(), atol=1e-4, rtol=0)
    assert (halves - pairs).abs().max() > 0.05
    ids = tokens(2, 20)
    with torch.no_grad():
        one, two = small_model(), small_model(indexer_rope_interleave=True)
        moved = (one(ids).logits - two(ids).logits).abs().amax((0, 2))
    assert moved[:6].max() < 1e-5
    assert moved[6:].max() > 0.01


def test_only_the_first_dimensions_turn_and_by_halves() -> None:
    config = small_config()
    module = Indexer(config)
    shake(module, 3, 0.3)
    x_BTD = torch.randn(1, 1, config.hidden_size, generator=torch.Generator().manual_seed(4))
    table = RopeTable(config.rope, 8)

    def keys_at(place: int) -> Tensor:
        angles = table.at(torch.tensor([[place]]), place, torch.float32)
        return module.keys(x_BTD, angles)[0, 0].detach()

    start, later = keys_at(0), keys_at(5)
    torch.testing.assert_close(start[8:], later[8:], atol=0, rtol=0)
    angles = table.at(torch.tensor([[5]]), 5, torch.float32)
    turned = torch.complex(start[:4], start[4:8]) * torch.complex(
        *Angles(*(x[0, 0] for x in angles))
    )
    torch.testing.assert_close(later[:8], torch.cat((turned.real, turned.imag)))


def overlap(one: Tensor, two: Tensor) -> float:
    sets = zip(sets_of(one)[0], sets_of(two)[0], strict=True)
    return sum(len(a & b) / len(a) for a, b in sets) / one.shape[1]


def test_fp8_keeps_the_keys_of_float32_and_a_turn_helps_against_outliers() -> None:
    """64 heads of 128 over 8192 keys, k = 2048: the release's shapes."""
    draws = torch.Generator().manual_seed(0)
    q_BTJF = torch.randn(1, 4, 64, 128, generator=draws)
    w_BTJ = torch.randn(1, 4, 64, generator=draws)
    keys = torch.randn(1, 8192, 128, generator=draws)
    last = torch.full((1, 4), 8191)

    def kept(q: Tensor, k: Tensor) -> Tensor:
        return select(IndexQueries(q, w_BTJ), k, last, 2048)

    def of_fp8(q: Tensor, k: Tensor) -> float:
        return overlap(kept(fake_fp8(q), fake_fp8(k)), kept(q, k))

    assert of_fp8(q_BTJF, keys) > 0.95
    assert of_fp8(hadamard(q_BTJF), hadamard(keys)) > 0.95
    loud = torch.ones(128)
    loud[torch.randperm(128, generator=draws)[:4]] = 8.0
    q_loud, k_loud = q_BTJF * loud, keys * loud
    plain, turned = of_fp8(q_loud, k_loud), of_fp8(hadamard(q_loud), hadamard(k_loud))
    assert plain > 0.95
    assert turned > plain


@pytest.mark.parametrize("path", ["reference", "masked", "gather"])
def test_a_rounding_indexer_works_in_the_model(path: Any) -> None:
    ids = tokens(1, 20)
    model = small_model(index_fp8=True, index_hadamard=True)
    out = model(ids, path=path, index_loss="sparse")
    out.index_loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.indexer_parameters())
    torch.testing.assert_close(out.logits, model(ids).logits, atol=1e-5, rtol=0)

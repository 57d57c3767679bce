"""Rows that begin alike, run once: what a model says, and what it learns, stays the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.batch import row_batch, score_batch
from envgen.train.config import SFTConfig
from envgen.train.packing import common_prefix, pack
from envgen.train.rows import NOT_ROUTED, Row
from envgen.train.sft import SFTRow, sft_batch, sft_loss

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 12), st.lists(st.integers(0, 3), min_size=1, max_size=9)
    ),
    min_size=1,
    max_size=9,
)


@given(ROWS, st.integers(20, 80))
def test_packs_hold_every_row_whole_and_apart(
    drawn: list[tuple[int, int, list[int]]], limit: int
) -> None:
    rows = [np.array([10 + kind] * length + own, np.int32) for kind, length, own in drawn]
    packs = pack(rows, limit)
    owned = np.zeros(packs.ids_BT.shape, bool)
    for row, b, places in zip(rows, packs.pack_R, packs.places, strict=True):
        assert packs.ids_BT[b, places].tolist() == row.tolist()
        assert packs.positions_BT[b, places].tolist() == list(range(len(row)))
        owned[b, places] = True
        # Each token sees what its row holds before it, and nothing else.
        for i, place in enumerate(places):
            seen = np.flatnonzero(packs.until_BT[b, : place + 1] > place)
            assert seen.tolist() == places[: i + 1].tolist()
    assert (owned == packs.valid_BT).all()
    assert packs.num_tokens <= sum(map(len, rows))
    longest_B = [
        max(len(rows[r]) for r in np.flatnonzero(packs.pack_R == b))
        for b in range(len(packs.used_B))
    ]
    assert ((packs.used_B <= limit) | (np.array(longest_B) > limit)).all()


def test_long_rows_that_begin_alike_share_packs_that_pay() -> None:
    """256 rows of 2,000 tokens with 1,200 in common: four to a pack."""
    prefix = np.arange(1200, dtype=np.int32)
    rows = [np.append(prefix, np.full(800, 2000 + i)).astype(np.int32) for i in range(256)]
    packs = pack(rows, 512)
    assert len(packs.ids_BT) == 64
    assert packs.num_tokens == 64 * (1200 + 4 * 800)


@pytest.mark.parametrize("replay", [True, False])
def test_long_packed_rows_score_as_alone(replay: bool) -> None:
    model = small()
    rows = family(model)
    batch = row_batch(rows, pack_tokens=20)  # all but the last are longer
    assert len(batch.ids_BT) == 3
    with torch.no_grad():
        scored = score_batch(model, batch, 1.0, keep_routing=replay, keep_topk=replay)
    torch.testing.assert_close(scored.scores.logp_N, batch.old_N, atol=1e-5, rtol=0)


def test_a_group_takes_its_prompt_once() -> None:
    prompt = np.arange(100, dtype=np.int32)
    rows = [np.append(prompt, [200 + i] * 5).astype(np.int32) for i in range(16)]
    packs = pack(rows, 1024)
    assert packs.ids_BT.shape == (1, 100 + 16 * 5)
    assert packs.shares


def test_beginnings_of_beginnings_are_shared_too() -> None:
    """Two tasks of one prompt, with results of their own, and several answers to each."""
    prompt, results = list(range(50)), ([60] * 20, [61] * 20)
    rows = [
        np.array(prompt + result + [70 + answer] * 3, np.int32)
        for result in results
        for answer in range(4)
    ]
    assert pack(rows, 1024).num_tokens == 50 + 2 * 20 + 8 * 3


def test_common_prefix_looks_at_whole_entries() -> None:
    assert common_prefix(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5], [0, 0]])) == 1
    assert common_prefix(np.array([1, 2]), np.array([1, 2, 3])) == 2
    assert common_prefix(np.zeros(0, int), np.array([1])) == 0


def sampled(model: DSAForCausalLM, ids: Sequence[int], prompt: int, rollout: int) -> Row:
    """What an engine would record of ids, by the model's own forward pass."""
    ids_BT = torch.tensor([ids])
    with torch.no_grad():
        output = model(ids_BT, capture_topk=True)
    assert output.routing_BTXA is not None
    assert output.topk is not None
    logp = output.logits.float().log_softmax(-1)[0, torch.arange(len(ids) - 1), ids_BT[0, 1:]]
    routing = output.routing_BTXA[0].numpy().astype(np.uint16)
    routing[-1] = NOT_ROUTED
    return Row(
        rollout=rollout,
        ids=np.array(ids, np.int32),
        places=np.arange(prompt, len(ids)),
        old=logp[prompt - 1 :].numpy(),
        routing=routing,
        topk=torch.stack([kept[0, :-1] for kept in output.topk], 1).numpy(),
    )


def family(model: DSAForCausalLM) -> list[Row]:
    """Three rollouts of one prompt, two of these with one result, two of another prompt, one alone."""
    draw = torch.Generator().manual_seed(5)

    def ids(count: int) -> list[int]:
        return torch.randint(0, 60, (count,), generator=draw).tolist()

    first, second = ids(30), ids(20)
    longer = first + ids(9)
    ends = [(first, 9), (longer, 4), (longer, 13), (second, 6), (second, 3), (ids(17), 5)]
    return [
        sampled(model, prompt + ids(count), len(prompt), i)
        for i, (prompt, count) in enumerate(ends)
    ]


def small(topk: int = 8) -> DSAForCausalLM:
    model = DSAForCausalLM(preset("tiny", vocab_size=60, index_topk=topk)).eval()
    with torch.no_grad():  # so that choices differ between tokens
        for gate in model.gates():
            gate.weight.normal_(0, 1)
    return model


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("topk", [8, 64])
def test_packed_rows_score_as_alone(replay: bool, topk: int) -> None:
    model = small(topk)
    rows = family(model)
    batch = row_batch(rows)
    assert batch.until_BT is not None
    assert len(batch.ids_BT) == 3
    with torch.no_grad():
        scored = score_batch(model, batch, 1.0, keep_routing=replay, keep_topk=replay)
    torch.testing.assert_close(scored.scores.logp_N, batch.old_N, atol=1e-5, rtol=0)


@pytest.mark.parametrize("path", ["masked", "gather", "reference"])
def test_every_path_keeps_branches_apart(path: str) -> None:
    model = small()
    batch = row_batch(family(model))
    output = model(
        batch.ids_BT,
        batch.valid_BT,
        position_ids=batch.position_BT,
        until=batch.until_BT,
        path=path,
        keep=(batch.pack_N, batch.parent_N),
    )
    logp = output.logits.log_softmax(-1).gather(1, batch.tokens_N.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(logp, batch.old_N, atol=1e-5, rtol=0)


def test_sets_of_another_run_are_repeated_at_their_new_places() -> None:
    model = small()
    rows = family(model)
    with torch.no_grad():
        for parameter in model.indexer_parameters():
            parameter.normal_(0, 1)
    together = row_batch(rows)
    apart = [row_batch([row]) for row in rows]
    with torch.no_grad():
        found = score_batch(model, together, 1.0).scores.logp_N
        wanted = torch.cat([score_batch(model, one, 1.0).scores.logp_N for one in apart])
        live = score_batch(model, together, 1.0, keep_topk=False).scores.logp_N
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    assert not torch.allclose(found, live, atol=1e-4)


def test_routing_that_differs_is_not_shared() -> None:
    model = small()
    rows = family(model)
    assert rows[0].routing is not None
    rows[0].routing[12] = (rows[0].routing[12] + 1) % model.config.n_routed_experts
    batch = row_batch(rows[:2])
    wanted = torch.cat(
        [score_batch(model, row_batch([row]), 1.0).scores.logp_N.detach() for row in rows[:2]]
    )
    found = score_batch(model, batch, 1.0).scores.logp_N
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def test_gradients_are_those_of_separate_rows() -> None:
    model = small()
    model.requires_grad_(True)
    rows = [SFTRow(row.ids, row.places) for row in family(model)]

    def gradients(batches: list[list[SFTRow]]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        total = sum(len(row.places) for row in rows)
        for some in batches:
            share = sum(len(row.places) for row in some) / total
            loss = sft_loss(model, sft_batch(some), SFTConfig()).loss
            torch.autograd.backward(loss * share)
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    together, apart = gradients([rows]), gradients([[row] for row in rows])
    assert together.keys() == apart.keys()
    for name, wanted in apart.items():
        torch.testing.assert_close(together[name], wanted, atol=1e-5, rtol=1e-4)

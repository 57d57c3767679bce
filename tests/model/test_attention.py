"""The attention paths against each other; replayed key sets; padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dsa_samples import YARN, gradients, padding_mask, sets_of, small_model, tokens, worst_gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envgen.model import attention, indexer, sparse
from envgen.model.indexer import HIDDEN, NOT_REPLAYED
from envgen.model.modeling import DSAForCausalLM, Output, Replay
from envgen.model.span import Span

PATHS = ("reference", "masked", "gather")


def trained(
    model: DSAForCausalLM, ids_BT: Tensor, mask_BT: Tensor | None, **how: Any
) -> tuple[Output, Tensor, dict[str, Tensor]]:
    """Output, its logits where valid, and gradients of a loss on those."""
    model.zero_grad()
    out = model(ids_BT, mask_BT, **how)
    logits_NV = out.logits.flatten(0, 1) if mask_BT is None else out.logits[mask_BT.bool()]
    torch.autograd.backward(logits_NV.float().logsumexp(-1).mean())
    return out, logits_NV, gradients(model)


def assert_paths_agree(model: DSAForCausalLM, ids_BT: Tensor, mask_BT: Tensor | None) -> None:
    out, logits, grads = trained(model, ids_BT, mask_BT, path="reference", capture_topk=True)
    assert out.topk is not None
    for path in ("masked", "gather", "auto"):
        for capture in (False, True):
            other, other_logits, other_grads = trained(
                model, ids_BT, mask_BT, path=path, capture_topk=capture
            )
            torch.testing.assert_close(other_logits, logits, atol=1e-5, rtol=0)
            assert worst_gap(grads, other_grads) < 1e-4
            if capture:
                assert other.topk is not None
                assert [sets_of(k) for k in other.topk] == [sets_of(k) for k in out.topk]


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 17),
    topk=st.integers(1, 12),
    heads=st.integers(1, 3),
    value_width=st.sampled_from([4, 16, 20]),
    repeated=st.booleans(),
    side=st.sampled_from(["left", "right", "none"]),
    seed=st.integers(0, 99),
)
def test_paths_agree(
    batch: int,
    length: int,
    topk: int,
    heads: int,
    value_width: int,
    repeated: bool,
    side: str,
    seed: int,
) -> None:
    model = small_model(
        seed % 3,
        index_topk=topk,
        num_attention_heads=heads,
        v_head_dim=value_width,
        rope=YARN if seed % 2 else small_model().config.rope,
    )
    ids = tokens(batch, length, seed=seed)
    ids = ids[:, :1].expand(-1, length) if repeated else ids
    draws = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (batch,), generator=draws).tolist()
    assert_paths_agree(model, ids, None if side == "none" else padding_mask(lengths, length, side))


def test_paths_agree_when_all_scores_are_equal() -> None:
    """Zero head weights: every choice is a tie, and the earlier keys win."""
    model = small_model()
    with torch.no_grad():
        for layer in model.layers():
            layer.self_attn.indexer.weights_proj.weight.zero_()
    ids = tokens(2, 15)
    assert_paths_agree(model, ids, None)
    topk = model(ids, capture_topk=True).topk
    assert topk is not None
    assert sets_of(topk[0])[0] == [set(range(min(t + 1, 6))) for t in range(15)]


def test_a_padded_row_is_the_same_as_alone() -> None:
    model, ids = small_model(), tokens(2, 20)
    mask = padding_mask([20, 12], 20, "right")
    for path in PATHS:
        beside = model(ids, mask, path=path).logits[1, :12]
        alone = model(ids[1:, :12], path=path).logits[0]
        torch.testing.assert_close(beside, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("path", PATHS)
def test_the_future_and_padding_do_not_matter(path: Any) -> None:
    model, ids = small_model(), tokens(1, 20)
    mask = padding_mask([16], 20, "left")
    changed = ids.clone()
    changed[0, 15:], changed[0, :4] = 5, 7
    one, two = (model(x, mask, path=path).logits[0, 4:15] for x in (ids, changed))
    torch.testing.assert_close(one, two, atol=1e-6, rtol=0)


@pytest.mark.parametrize("path", PATHS)
def test_key_sets_never_hold_the_future_padding_or_a_slot_twice(path: Any) -> None:
    model, ids, mask = small_model(), tokens(2, 20), padding_mask([20, 12], 20, "left")
    topk = model(ids, mask, path=path, capture_topk=True).topk
    assert topk is not None
    for kept_BTK in topk:
        assert kept_BTK.dtype == torch.int32
        for b, rows in enumerate(sets_of(kept_BTK)):
            for t, row in enumerate(rows):
                first = 0 if b == 0 else 8
                wanted = min(6, t - first + 1) if t >= first else 1
                assert len(row) == wanted
                assert int((kept_BTK[b, t] >= 0).sum()) == wanted
                assert row <= set(range(first, t + 1)) | {t}


@pytest.mark.parametrize("path", ["masked", "gather"])
def test_block_sizes_change_nothing(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids, mask = small_model(), tokens(2, 19), padding_mask([19, 11], 19, "left")
    for padded in (None, mask):
        monkeypatch.undo()
        how = {"path": path, "index_loss": "sparse"}
        whole, logits, grads = trained(model, ids, padded, **how)
        for block in (1, 50, 333):
            monkeypatch.setattr(sparse, "GATHER_BLOCK", block)
            monkeypatch.setattr(indexer, "SCORE_BLOCK", block)
            again, blocked, again_grads = trained(model, ids, padded, **how)
            torch.testing.assert_close(blocked, logits, atol=1e-5, rtol=0)
            torch.testing.assert_close(again.index_loss, whole.index_loss, atol=1e-5, rtol=0)
            assert worst_gap(grads, again_grads) < 1e-5


def test_auto_leaves_the_mask_where_it_would_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = small_model(), tokens(1, 20)
    wanted = model(ids).logits
    monkeypatch.setattr(attention, "MASK_LIMIT", 0)
    layer = model.layers()[0].self_attn
    span = Span(torch.arange(20).unsqueeze(0), 20)
    assert layer._path(attention.Ask(), span, leaves_out=True) == "gather"
    torch.testing.assert_close(model(ids).logits, wanted, atol=1e-5, rtol=0)


# Replayed key sets


def recorded(model: DSAForCausalLM, ids_BT: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        out: Output = model(ids_BT, capture_topk=True)
    assert out.topk is not None
    return out.topk


@pytest.mark.parametrize("path", PATHS)
def test_replayed_sets_bring_the_logits_back_whatever_the_indexer_wants(path: Any) -> None:
    model, ids = small_model(), tokens(2, 20)
    wanted = model(ids).logits
    topk = recorded(model, ids)
    with torch.no_grad():
        for weight in model.indexer_parameters():
            weight.normal_()
    assert (model(ids).logits - wanted).abs().max() > 0.01
    out = model(ids, path=path, replay=Replay(topk=topk), capture_topk=True)
    torch.testing.assert_close(out.logits, wanted, atol=1e-5, rtol=0)
    assert out.topk is not None
    assert [sets_of(k) for k in out.topk] == [sets_of(k) for k in topk]


@pytest.mark.parametrize("path", PATHS)
def test_rows_that_are_not_replayed_are_chosen(path: Any) -> None:
    model, ids = small_model(), tokens(2, 20)
    wanted = model(ids).logits
    topk = tuple(kept.clone() for kept in recorded(model, ids))
    for kept in topk:
        kept[:, ::2] = 0  # not to be read
        kept[:, ::2, 0] = NOT_REPLAYED
    out = model(ids, path=path, replay=Replay(topk=topk))
    torch.testing.assert_close(out.logits, wanted, atol=1e-5, rtol=0)
    wider = tuple(torch.nn.functional.pad(kept, (0, 3), value=HIDDEN) for kept in topk)
    out = model(ids, path=path, replay=Replay(topk=wider))
    torch.testing.assert_close(out.logits, wanted, atol=1e-5, rtol=0)


def test_replayed_sets_mean_the_same_on_every_path_even_when_they_are_wrong() -> None:
    """Sets with the future, padding, or nothing in them: only what can be seen counts."""
    model, ids, mask = small_model(), tokens(2, 20), padding_mask([20, 13], 20, "left")
    draws = torch.Generator().manual_seed(1)
    sets = torch.rand(2, 20, 20, generator=draws).argsort(-1)[..., :5].to(torch.int32)
    sets[:, 11] = HIDDEN
    outs = [model(ids, mask, path=path, replay=Replay(topk=[sets, sets])).logits for path in PATHS]
    for out in outs:
        assert bool(out.isfinite().all())
        torch.testing.assert_close(out[mask.bool()], outs[0][mask.bool()], atol=1e-5, rtol=0)


@pytest.mark.parametrize("path", PATHS)
def test_sets_are_replayed_even_where_nothing_had_to_be_left_out(path: Any) -> None:
    model, ids = small_model(index_topk=64), tokens(1, 9)
    alone = torch.arange(9, dtype=torch.int32).view(1, 9, 1)
    out = model(ids, path=path, replay=Replay(topk=[alone, alone]), capture_topk=True)
    assert out.topk is not None
    assert sets_of(out.topk[0])[0] == [{t} for t in range(9)]
    assert (out.logits - model(ids).logits)[:, 1:].abs().max() > 0.01
    dense = model(ids, path=path, replay=Replay(topk=[alone, alone]), dense=True)
    torch.testing.assert_close(dense.logits, model(ids).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("path", PATHS)
def test_replay_while_decoding(path: Any) -> None:
    model, ids = small_model(), tokens(2, 20)
    topk = recorded(model, ids)
    with torch.no_grad():
        wanted = model(ids).logits
        for weight in model.indexer_parameters():
            weight.normal_()
        cache, parts = model.new_cache(2, 20), []
        for start, stop in ((0, 12), (12, 13), (13, 20)):
            replay = Replay(topk=[kept[:, start:stop] for kept in topk])
            parts.append(model(ids[:, start:stop], cache=cache, path=path, replay=replay).logits)
    torch.testing.assert_close(torch.cat(parts, 1), wanted, atol=1e-5, rtol=0)

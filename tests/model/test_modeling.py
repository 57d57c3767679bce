"""The model's contract: losses and who learns from them, arguments, modes, casts, empty batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dsa_samples import gradients, padding_mask, sets_of, small_config, small_model, tokens
from torch import Tensor
from torch.nn import functional

from envgen.model.modeling import DSAForCausalLM, Output, Replay
from envgen.model.paged import CacheFullError

PATHS = ("auto", "reference", "masked", "gather")


def lm_loss(output: Output, ids_BT: Tensor) -> Tensor:
    logits_BTV = output.logits[:, :-1].float()
    return functional.cross_entropy(logits_BTV.flatten(0, 1), ids_BT[:, 1:].flatten())


# Who learns from what


@pytest.mark.parametrize("path", PATHS)
def test_the_language_loss_gives_the_indexer_no_gradient(path: Any) -> None:
    model, ids = small_model(), tokens(2, 20)
    torch.autograd.backward(lm_loss(model(ids, path=path), ids))
    assert all(p.grad is None for p in model.indexer_parameters())
    assert all(p.grad is not None and p.grad.any() for p in model.trunk_parameters())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_index_loss_gives_the_trunk_no_gradient(path: Any, kind: Any) -> None:
    model, ids = small_model(), tokens(2, 20)
    loss = model(ids, path=path, index_loss=kind, dense=kind == "dense").index_loss
    loss.backward()
    assert all(p.grad is None for p in model.trunk_parameters())
    assert all(p.grad is not None and p.grad.any() for p in model.indexer_parameters())


def test_the_warm_up_makes_the_indexer_predict_attention() -> None:
    model, ids = small_model(spread=0.25), tokens(4, 24)
    optimizer = torch.optim.Adam(model.indexer_parameters(), lr=1e-2)
    seen = []
    for _ in range(40):
        loss = model(ids, dense=True, index_loss="dense").index_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    assert seen[-1] < 0.5 * seen[0]


def test_index_losses_add_up_over_layers_and_do_not_change_the_logits() -> None:
    ids = tokens(2, 20)
    deep, plain = small_model(num_hidden_layers=3), small_model(num_hidden_layers=3)
    asked = deep(ids, index_loss="sparse")
    torch.testing.assert_close(asked.logits, plain(ids).logits, atol=1e-5, rtol=0)
    assert asked.index_loss.shape == ()
    assert plain(ids).index_loss is None


def test_an_indexer_is_not_trained_through_a_cache() -> None:
    model = small_model()
    with pytest.raises(ValueError, match="whole sequences"):
        model(tokens(1, 8), cache=model.new_cache(1, 8), index_loss="sparse")


# Layers computed again


@pytest.mark.parametrize("path", ["masked", "gather"])
def test_checkpointed_layers_give_the_same_captures_losses_and_gradients(path: Any) -> None:
    ids, mask = tokens(2, 20), padding_mask([20, 13], 20, "left")
    found = []
    for again in (False, True):
        model = small_model(num_hidden_layers=3).train()
        model.checkpoint_layers = again
        out = model(ids, mask, path=path, index_loss="sparse", capture_topk=True)
        (lm_loss(out, ids) + out.index_loss).backward()
        found.append((out, gradients(model), [g.load.clone() for g in model.gates()]))
    (one, grads, load), (two, grads_again, load_again) = found
    torch.testing.assert_close(one.logits, two.logits, atol=0, rtol=0)
    torch.testing.assert_close(one.index_loss, two.index_loss, atol=0, rtol=0)
    torch.testing.assert_close(one.routing_BTXA, two.routing_BTXA, atol=0, rtol=0)
    assert [sets_of(k) for k in one.topk] == [sets_of(k) for k in two.topk]
    torch.testing.assert_close(grads, grads_again, atol=1e-7, rtol=0)
    torch.testing.assert_close(load, load_again, atol=0, rtol=0)


def test_expert_load_is_of_trained_tokens_only() -> None:
    model = small_model().train()
    ids, mask = tokens(2, 10), padding_mask([10, 4], 10, "right")
    with torch.no_grad():
        model(ids, mask)
    model.eval()
    model(ids, mask)
    (gate,) = model.gates()
    assert gate.load.sum() == 0
    model.train()
    routing_BTA = model(ids, mask).routing_BTXA[:, :, 0]
    counted = torch.bincount(routing_BTA[mask.bool()].flatten(), minlength=8)
    assert torch.equal(gate.load.long(), counted)
    assert gate.load.sum() == 14 * 3


# Arguments


def test_keep_takes_positions_along_tokens() -> None:
    model, ids = small_model(), tokens(2, 9)
    whole = model(ids).logits
    last = torch.tensor([1, 8])
    torch.testing.assert_close(model(ids, keep=last).logits, whole[:, last])
    torch.testing.assert_close(model(ids, keep=slice(-3, None)).logits, whole[:, -3:])
    even = torch.arange(9) % 2 == 0
    torch.testing.assert_close(model(ids, keep=even).logits, whole[:, even])
    with pytest.raises(ValueError, match="one axis"):
        model(ids, keep=torch.tensor([[1], [2]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_mask": torch.ones(2, 7)}, r"attention_mask must be \(2, 8\)"),
        ({"attention_mask": torch.ones(8)}, r"attention_mask must be \(2, 8\)"),
        ({"slots_BT": torch.arange(8).expand(2, -1)}, "a view with slots_BT"),
        ({"replay": Replay(torch.zeros(2, 7, 1, 3))}, r"routing must be \(2, 8, 1, 3\)"),
        ({"replay": Replay(torch.zeros(2, 8, 1, 2))}, r"routing must be \(2, 8, 1, 3\)"),
        ({"replay": Replay(topk=[torch.zeros(2, 8, 4)])}, "of 2 layers, not 1"),
        ({"replay": Replay(topk=[torch.zeros(2, 7, 4)] * 2)}, r"must be \(2, 8, 'K'\)"),
        ({"replay": Replay(topk=[torch.zeros(2, 8, 0)] * 2)}, r"must be \(2, 8, 'K'\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_model()(tokens(2, 8), **changes)


def test_ids_need_two_axes() -> None:
    with pytest.raises(ValueError, match=r"\[batch, tokens\]"):
        small_model()(torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [(2, 0), (0, 9), (0, 0)])
def test_empty_batches_have_empty_logits(path: Any, shape: tuple[int, int]) -> None:
    model = small_model().train()
    for kind in ("dense", "sparse", None):
        out = model(
            torch.zeros(shape, dtype=torch.long), path=path, index_loss=kind, capture_topk=True
        )
        assert out.logits.shape == (*shape, 96)
        assert out.topk[0].shape[:2] == shape
        assert out.index_loss is None or out.index_loss == 0
        out.logits.sum().backward()


def test_positions_may_differ_from_slots() -> None:
    """Left padding with positions that start at the first token is the unpadded sequence."""
    model, ids = small_model(), tokens(1, 15)
    padded = torch.cat((torch.zeros(1, 5, dtype=torch.long), ids), 1)
    mask = padding_mask([15], 20, "left")
    positions = (torch.arange(20) - 5).clamp_min(0).unsqueeze(0)
    for path in PATHS:
        out = model(padded, mask, position_ids=positions, path=path).logits[:, 5:]
        torch.testing.assert_close(out, model(ids).logits, atol=1e-5, rtol=0)


# The cache


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("path", PATHS)
def test_decoding_with_padded_prompts_equals_the_whole_pass(side: str, path: Any) -> None:
    model, ids = small_model(), tokens(3, 24)
    mask = torch.cat((padding_mask([14, 9, 3], 14, side), torch.ones(3, 10).long()), 1)
    with torch.no_grad():
        whole = model(ids, mask, path="reference").logits
        cache = model.new_cache(3, 24)
        parts = [model(ids[:, :14], mask[:, :14], cache=cache, path=path).logits]
        for start, stop in ((14, 18), (18, 19), (19, 20), (20, 24)):
            part = model(ids[:, start:stop], mask[:, :stop], cache=cache, path=path)
            parts.append(part.logits)
    gap = (torch.cat(parts, 1) - whole)[mask.bool()].abs().max()
    assert gap < 1e-5


def test_a_refused_call_leaves_the_cache_as_it_was() -> None:
    model, ids = small_model(), tokens(2, 12)
    cache = model.new_cache(2, 12)
    with torch.no_grad():
        whole = model(ids).logits
        model(ids[:, :8], cache=cache)
        with pytest.raises(ValueError, match="attention_mask must be"):
            model(ids[:, 8:], torch.ones(2, 4), cache=cache)
        with pytest.raises(ValueError, match="for 2 sequences"):
            model(ids[:1, 8:], cache=cache)
        with pytest.raises(CacheFullError, match="holds 12 tokens, 16"):
            model(ids[:, :8], cache=cache)
        rest = model(ids[:, 8:], cache=cache).logits
    torch.testing.assert_close(rest, whole[:, 8:], atol=1e-5, rtol=0)


def test_training_through_a_cache_is_refused() -> None:
    model = small_model().train()
    with pytest.raises(ValueError, match="keeps no gradients"):
        model(tokens(1, 4), cache=model.new_cache(1, 4))
    with torch.no_grad():
        model(tokens(1, 4), cache=model.new_cache(1, 4))


def test_a_cache_of_another_dtype_serves() -> None:
    model, ids = small_model(), tokens(2, 16)
    from envgen.model.paged import BatchCache

    with torch.no_grad():
        whole = model(ids).logits
        for path in PATHS:
            cache = BatchCache(model.config, 2, 16, torch.bfloat16)
            parts = [
                model(ids[:, a:b], cache=cache, path=path).logits for a, b in ((0, 15), (15, 16))
            ]
            assert torch.cat(parts, 1).dtype == torch.float32
            # A key near the k-th place may be lost to rounding: most logits stay near.
            assert (torch.cat(parts, 1) - whole).abs().mean() < 0.1 * whole.std()


# Dtypes, modes, moves


@pytest.mark.parametrize("path", PATHS)
def test_bfloat16_runs_forward_and_backward(path: Any) -> None:
    model, ids = small_model().to(torch.bfloat16), tokens(2, 20)
    exact = small_model()(ids, path=path).logits
    out = model(ids, path=path, index_loss="sparse")
    assert out.logits.dtype == torch.bfloat16
    (lm_loss(out, ids) + out.index_loss).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    correlation = torch.corrcoef(torch.stack((out.logits.float().flatten(), exact.flatten())))
    assert correlation[0, 1] > 0.95


def test_casting_leaves_the_correction_bias_exact() -> None:
    model = small_model()
    (gate,) = model.gates()
    bias = gate.e_score_correction_bias.clone()
    model.to(torch.bfloat16)
    assert gate.weight.dtype == torch.bfloat16
    assert gate.load.dtype == torch.float32
    torch.testing.assert_close(gate.e_score_correction_bias, bias, atol=0, rtol=0)
    assert model.double().gates()[0].e_score_correction_bias.dtype == torch.float32


def test_a_model_of_no_device_can_be_made_and_filled() -> None:
    whole = small_model()
    with torch.device("meta"):
        hollow = DSAForCausalLM(small_config()).to(torch.bfloat16)
    assert hollow.gates()[0].e_score_correction_bias.is_meta
    filled = hollow.float().to_empty(device="cpu")
    filled.load_state_dict(whole.state_dict())
    ids = tokens(1, 12)
    torch.testing.assert_close(filled.eval()(ids).logits, whole(ids).logits, atol=0, rtol=0)


@pytest.mark.parametrize("path", PATHS)
def test_autocast_runs_and_chooses_as_without_it_would_from_the_same_scores(path: Any) -> None:
    model, ids = small_model(index_n_heads=3), tokens(2, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(ids, path=path, index_loss="sparse", capture_topk=True)
        dense = model(ids, path=path, index_loss="dense", dense=True)
        (lm_loss(out, ids) + out.index_loss + dense.index_loss).backward()
    assert out.index_loss.dtype == torch.float32
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    exact = model(ids, path=path).logits
    correlation = torch.corrcoef(torch.stack((out.logits.float().flatten(), exact.flatten())))
    assert correlation[0, 1] > 0.95


def test_float64_is_kept() -> None:
    model, ids = small_model().double(), tokens(2, 20)
    outs = [model(ids, path=path, index_loss="sparse") for path in PATHS]
    for out in outs:
        assert out.logits.dtype == out.index_loss.dtype == torch.float64
        torch.testing.assert_close(out.logits, outs[0].logits, atol=1e-11, rtol=0)
        torch.testing.assert_close(out.index_loss, outs[0].index_loss, atol=1e-11, rtol=0)


def test_a_model_can_be_trained_after_it_served() -> None:
    """What serving built under inference mode must not be in training's way."""
    model, ids = small_model(index_hadamard=True, index_fp8=True), tokens(1, 20)
    with torch.inference_mode():
        model(ids)
    out = model(ids, index_loss="sparse")
    (lm_loss(out, ids) + out.index_loss).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_tied_embeddings_are_one_tensor() -> None:
    model, ids = small_model(tie_word_embeddings=True), tokens(1, 9)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    torch.autograd.backward(lm_loss(model(ids), ids))
    assert len(list(model.parameters())) == len(list(small_model().parameters())) - 1

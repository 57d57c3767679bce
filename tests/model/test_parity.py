"""The model against transformers' implementation, with the same weights in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dsa_samples import gradients, padding_mask, sets_of, tokens, worst_gap
from hf_twin import YARN, Twins, twins, watched
from torch.nn import functional

PATHS = ("auto", "reference", "masked", "gather")
LOGITS = 2e-5
GRADIENTS = 2e-6


@pytest.fixture(scope="module", params=["plain", "yarn"])
def pair(request: pytest.FixtureRequest) -> Twins:
    return twins(rope_parameters=YARN) if request.param == "yarn" else twins()


def gap(one: torch.Tensor, two: torch.Tensor) -> float:
    return float((one - two).abs().max())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("length", [1, 12, 16, 17, 64])
def test_logits_agree(pair: Twins, length: int, path: Any) -> None:
    ids = tokens(2, length, 512)
    with torch.no_grad():
        wanted = pair.hf(ids, use_cache=False).logits
        assert gap(pair.ours(ids, path=path).logits, wanted) < LOGITS


def test_past_the_kept_keys_sparse_is_not_dense(pair: Twins) -> None:
    """So that agreement above is about sparse attention."""
    ids = tokens(2, 64, 512)
    with torch.no_grad():
        moved = (pair.ours(ids).logits - pair.ours(ids, dense=True).logits).abs().amax(-1)
    assert moved[:, :16].max() < LOGITS
    assert moved[:, 20:].min() > 0.01


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("length", [12, 64])
def test_left_padded_logits_agree_where_valid(pair: Twins, length: int, path: Any) -> None:
    ids, mask = tokens(2, length, 512), padding_mask([length, length - 9], length, "left")
    with torch.no_grad():
        wanted = pair.hf(ids, attention_mask=mask, use_cache=False).logits
        found = pair.ours(ids, mask, path=path).logits
    assert gap(found[mask.bool()], wanted[mask.bool()]) < LOGITS


@pytest.mark.parametrize("path", PATHS)
def test_decoding_agrees_with_the_whole_pass(pair: Twins, path: Any) -> None:
    ids = tokens(2, 64, 512)
    with torch.no_grad():
        wanted = pair.hf(ids, use_cache=False).logits
        cache = pair.ours.new_cache(2, 64)
        parts = [pair.ours(ids[:, :40], cache=cache, path=path).logits]
        for i in range(40, 64):
            parts.append(pair.ours(ids[:, i : i + 1], cache=cache, path=path).logits)
    assert gap(torch.cat(parts, 1), wanted) < LOGITS


def test_greedy_tokens_are_the_same(pair: Twins) -> None:
    ids = tokens(2, 12, 512)
    with torch.no_grad():
        wanted = pair.hf.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)
        cache, last, found = pair.ours.new_cache(2, 36), ids, [ids]
        for _ in range(24):
            last = pair.ours(last, cache=cache, keep=slice(-1, None)).logits.argmax(-1)
            found.append(last)
    assert wanted.shape == (2, 36)
    assert torch.equal(torch.cat(found, 1), wanted)


@pytest.mark.parametrize("path", ["reference", "masked", "gather"])
def test_trunk_gradients_agree_and_the_indexer_has_none(pair: Twins, path: Any) -> None:
    ids = tokens(2, 64, 512)
    found = []
    runs: list[tuple[Any, dict[str, Any]]] = [
        (pair.hf, {"use_cache": False}),
        (pair.ours, {"path": path}),
    ]
    for model, arguments in runs:
        model.zero_grad()
        logits = model(ids, **arguments).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        torch.autograd.backward(loss)
        found.append((loss.item(), gradients(model)))
    (hf_loss, hf_grads), (our_loss, grads) = found
    assert our_loss == pytest.approx(hf_loss, abs=1e-5)
    names = {name for name, _ in pair.ours.named_parameters()}
    assert names - grads.keys() == {name for name in names if ".indexer." in name}
    assert worst_gap(hf_grads, grads) < GRADIENTS


def test_key_choices_agree_as_sets(pair: Twins) -> None:
    ids = tokens(2, 64, 512)
    _, seen = watched(pair.hf, ids)
    with torch.no_grad():
        kept = pair.ours(ids, capture_topk=True).topk
    assert kept is not None
    assert len(kept) == 4
    for theirs, ours in zip(seen.topk, kept, strict=True):
        # Their rows that see fewer than k keys name the future, too.
        causal = [
            [{s for s in row if s <= t} for t, row in enumerate(rows)] for rows in theirs.tolist()
        ]
        assert sets_of(ours) == causal


def test_routing_and_its_weights_agree(pair: Twins) -> None:
    ids = tokens(2, 64, 512)
    _, seen = watched(pair.hf, ids)
    weights: list[torch.Tensor] = []
    hooks = [
        gate.register_forward_hook(lambda _m, _i, routes: weights.append(routes.weights_NA))
        for gate in pair.ours.gates()
    ]
    with torch.no_grad():
        routing_BTXA = pair.ours(ids).routing_BTXA
    for hook in hooks:
        hook.remove()
    assert routing_BTXA is not None
    for x, (experts, shares) in enumerate(zip(seen.routing, seen.weights, strict=True)):
        order, own = experts.sort(-1), routing_BTXA[:, :, x].flatten(0, 1).sort(-1)
        assert torch.equal(order.values, own.values)
        mine = weights[x].gather(1, own.indices)
        assert gap(mine, shares.gather(1, order.indices)) < 1e-6


@pytest.mark.parametrize(
    "changes",
    [
        {"n_group": 1, "topk_group": 1},
        {"n_group": 8, "topk_group": 3, "num_experts_per_tok": 6},
        {"n_group": 2, "topk_group": 2},
        {"norm_topk_prob": False, "routed_scaling_factor": 1.0},
        {"first_k_dense_replace": 0},
        {"first_k_dense_replace": 4},
        {"n_shared_experts": 2},
        {"attention_bias": True},
        {"v_head_dim": 40},
        {"index_topk": 1},
        {"index_head_dim": 16, "index_n_heads": 24},
        {"rms_norm_eps": 1e-2},
        {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 3},
    ],
    ids=lambda changes: ",".join(f"{name}={value}" for name, value in changes.items()),
)
def test_other_shapes_agree(changes: dict[str, Any]) -> None:
    pair = twins(seed=1, **changes)
    ids, mask = tokens(2, 40, 512), padding_mask([40, 31], 40, "left")
    with torch.no_grad():
        wanted = pair.hf(ids, attention_mask=mask, use_cache=False).logits
        for path in PATHS:
            found = pair.ours(ids, mask, path=path).logits
            assert gap(found[mask.bool()], wanted[mask.bool()]) < LOGITS

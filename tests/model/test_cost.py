"""Costs from a configuration: against counted modules, counted operations, and published figures."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from checkpoint_samples import random_model, small_config
from torch.utils.flop_counter import FlopCounterMode

from envgen.model.config import PRESETS, DSAConfig, preset
from envgen.model.cost import (
    LONGEST,
    BreakEven,
    _gap_bytes,
    attention_parameters,
    break_even,
    cache_bytes,
    cost,
    decode_bytes,
    flops,
    indexer_parameters,
    parameters,
    replay_bytes,
)
from envgen.model.modeling import DSAForCausalLM
from envgen.model.moe import MoE
from envgen.model.paged import PagedCache

RELEASE = PRESETS["deepseek-v3.2"]
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "biased": {"attention_bias": True},
    "no shared expert": {"n_shared_experts": 0},
    "two shared experts": {"n_shared_experts": 2},
    "dense": {"first_k_dense_replace": 7},
}


def hollow(config: DSAConfig) -> DSAForCausalLM:
    """A model without memory."""
    with torch.device("meta"):
        return DSAForCausalLM(config)


def counted(modules: Any) -> int:
    return sum(weight.numel() for module in modules for weight in module.parameters())


def part(config: DSAConfig, name: str) -> int:
    return next(p.total for p in parameters(config).parts if p.name == name)


# Parameters


@pytest.mark.parametrize("config", [small_config(**c) for c in VARIANTS.values()], ids=VARIANTS)
def test_parameters_are_those_of_the_modules(config: DSAConfig) -> None:
    model = hollow(config)
    assert parameters(config).total == counted([model])
    layers = model.model.layers
    attention: list[Any] = [layer.self_attn for layer in layers]
    assert part(config, "indexer") == counted(a.indexer for a in attention)
    assert part(config, "attention") == counted(attention) - part(config, "indexer")
    mixtures = [layer.mlp for layer in layers if isinstance(layer.mlp, MoE)]
    assert part(config, "routed experts") == counted(moe.experts for moe in mixtures)
    assert part(config, "router") == counted(moe.gate for moe in mixtures)
    shared = [moe.shared_experts for moe in mixtures if moe.shared_experts is not None]
    assert part(config, "shared experts") == counted(shared)
    dense = [layer.mlp for layer in layers if not isinstance(layer.mlp, MoE)]
    assert part(config, "dense MLP") == counted(dense)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_made_without_memory(name: str) -> None:
    model = hollow(preset(name))
    assert all(weight.is_meta for weight in model.parameters())
    assert parameters(preset(name)).total == counted([model])


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("tiny", 0.8e6, 1.25e6), ("small", 9e6, 12e6), ("medium", 100e6, 150e6), ("large", 5e8, 1e9)],
)
def test_presets_have_the_size_they_are_for(name: str, least: float, most: float) -> None:
    assert least < parameters(preset(name)).total < most
    if name == "tiny":
        assert least < parameters(preset(name, vocab_size=512)).total < most
    if name == "medium":
        assert preset(name).num_attention_heads == 16


def test_the_release_has_the_published_parameters() -> None:
    found = parameters(RELEASE)
    assert round(found.total / 1e9, 1) == 671.9
    assert round(found.active / 1e9, 1) == 38.4
    assert round(attention_parameters(RELEASE) / 1e6, 2) == 187.11
    assert round(indexer_parameters(RELEASE) / 1e6, 2) == 13.96
    layer = sum(part(RELEASE, name) for name in ("router", "routed experts", "shared experts")) / 58
    assert round(layer / 1e9, 2) == 11.32
    assert round(part(RELEASE, "indexer") / 1e6) == 852


# Arithmetic


def counted_flops(model: DSAForCausalLM, ids: torch.Tensor, **how: Any) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids, **how)
    return int(counter.get_total_flops())


def test_products_of_a_dense_forward_pass_are_counted_right() -> None:
    """One prompt by the readable path, which scores all pairs: the causal half counts twice there."""
    config = small_config(first_k_dense_replace=3, tie_word_embeddings=True)
    model, tokens = random_model(first_k_dense_replace=3, tie_word_embeddings=True), 32
    counted = flops(config, tokens, "prefill", "dense")
    pairs = tokens * counted.attention * 2 * tokens // (tokens + 1)
    ids = torch.zeros(1, tokens, dtype=torch.int64)
    found = counted_flops(model, ids, path="reference", dense=True)
    assert found == tokens * counted.weights + pairs


def test_products_of_a_sparse_forward_pass_are_counted_right() -> None:
    """By gathering: every query works on index_topk rows and the indexer scores all pairs."""
    config, tokens = small_config(first_k_dense_replace=3), 32
    model = random_model(first_k_dense_replace=3)
    counted = flops(config, tokens, "decode", "sparse")
    ids = torch.zeros(1, tokens, dtype=torch.int64)
    found = counted_flops(model, ids, path="gather", capture_topk=True)
    assert found == tokens * counted.total


def test_a_mixture_counts_its_chosen_experts() -> None:
    config = small_config(first_k_dense_replace=0, n_shared_experts=2)
    found = {p.name: (p.total, p.active) for p in parameters(config).parts}
    expert = 3 * 40 * 24 * 3
    assert found["routed experts"] == (8 * expert, 3 * expert)
    assert found["shared experts"] == (2 * expert, 2 * expert)
    assert parameters(config).total - parameters(config).active == 5 * expert


def test_arithmetic_of_the_release_is_the_published_one() -> None:
    """A layer at 128K: 704 TFLOP a prompt dense, 74 sparse, 141 to index; 0.57 and 2.15 G a decoded token."""
    context, layers = 1 << 17, RELEASE.num_hidden_layers
    dense, sparse = (flops(RELEASE, context, "prefill", mode) for mode in ("dense", "sparse"))
    prompt = context / layers / 1e12
    assert round(dense.attention * prompt) == 704
    assert round(sparse.attention * prompt) == 74
    assert round(sparse.indexer * prompt) == 141
    step = flops(RELEASE, context, "decode", "sparse")
    assert round(step.attention / layers / 1e9, 2) == 0.57
    assert round(step.indexer / layers / 1e9, 2) == 2.15


@pytest.mark.parametrize("context", [1, 7, 8, 9, 50])
def test_prefill_is_the_mean_over_the_prompt(context: int) -> None:
    config = small_config()
    counted = flops(config, context, "prefill", "sparse")
    steps = [flops(config, n, "decode", "sparse") for n in range(1, context + 1)]
    assert counted.attention == round(sum(s.attention for s in steps) / context)
    assert counted.indexer == round(sum(s.indexer for s in steps) / context)
    assert counted.weights == steps[0].weights


# Cache


def test_the_release_keeps_788_bytes_a_layer_in_fp8() -> None:
    layers = RELEASE.num_hidden_layers
    small, wide = cache_bytes(RELEASE, "fp8"), cache_bytes(RELEASE, "bf16")
    assert (small.latent, small.index) == (656 * layers, 132 * layers)
    assert (wide.latent, wide.index) == (1_152 * layers, 256 * layers)


def test_the_cache_is_as_large_as_told() -> None:
    config, tokens = small_config(), 16
    cache = PagedCache(config, 1, tokens, torch.bfloat16)
    counted = cache_bytes(config, "bf16")
    one_page = tokens * (counted.latent + counted.index)
    assert sum(t.nbytes for t in (*cache.rows, *cache.index)) == 2 * one_page  # page 0 is nobody's


@pytest.mark.parametrize(
    ("context", "dense", "sparse"), [(8, 0.54, 0.138), (32, 2.14, 0.322), (128, 8.58, 1.059)]
)
def test_decoding_reads_what_is_published(context: int, dense: float, sparse: float) -> None:
    tokens = context * 1024
    assert decode_bytes(RELEASE, tokens, "dense", "bf16") / 2**30 == pytest.approx(dense, abs=6e-3)
    assert decode_bytes(RELEASE, tokens, "sparse", "fp8") / 2**30 == pytest.approx(sparse, abs=6e-4)


def test_a_short_context_is_read_whole() -> None:
    config = small_config()
    each = cache_bytes(config, "bf16")
    assert decode_bytes(config, 5, "sparse", "bf16") == 5 * (each.latent + each.index)


# Replay


def test_replay_of_the_release() -> None:
    found = replay_bytes(RELEASE, 32_768)
    assert (found.routing_uint16, found.routing_uint8) == (58 * 8 * 2, 58 * 8)
    assert found.topk_int32 == 61 * 2_048 * 4
    assert 61 * 2_048 < found.topk_delta < 61 * 2_048 * 1.01
    assert (found.mask_per_token, found.mask_per_kept_id) == (4, 4)
    assert replay_bytes(RELEASE, 100).topk_int32 == 61 * 100 * 4
    assert replay_bytes(RELEASE, 100).topk_delta == 61 * 100


def test_many_experts_need_two_bytes() -> None:
    config = small_config(n_routed_experts=512)
    assert replay_bytes(config, 9).routing_uint8 is None


@pytest.mark.parametrize(("kept", "context"), [(64, 512), (64, 8_192), (64, 200_000)])
def test_the_length_of_gaps_is_that_of_random_sets(kept: int, context: int) -> None:
    draws = torch.Generator().manual_seed(0)
    lengths = []
    for _ in range(200):
        places = [-1, *torch.randperm(context, generator=draws)[:kept].sort().values.tolist()]
        gaps = [b - a - 1 for a, b in pairwise(places)]
        lengths += [max(1, -(-gap.bit_length() // 7)) for gap in gaps]
    assert _gap_bytes(kept / context) == pytest.approx(sum(lengths) / len(lengths), rel=0.02)


# Break-even


def test_sparse_attention_of_the_release_pays_where_it_should() -> None:
    found = break_even(RELEASE)
    assert found.decode_bytes_bf16 == 2_634  # 2048 * 1152 / (1152 - 256), rounded up
    assert found.decode_bytes_fp8 == 2_564
    assert found.prefill_position is not None
    assert found.prefill_tokens is not None
    assert 8_000 < found.prefill_position < 10_000
    assert found.prefill_position < found.prefill_tokens < 2 * found.prefill_position


@pytest.mark.parametrize("name", ["tiny", "medium", "deepseek-v3.2"])
def test_break_even_is_the_first_cheaper_context(name: str) -> None:
    config = preset(name)
    found = break_even(config)

    def saves(context: int) -> bool:
        dense, sparse = (flops(config, context, "prefill", m).total for m in ("dense", "sparse"))
        return sparse < dense

    assert found.prefill_tokens is not None
    assert saves(found.prefill_tokens)
    assert not saves(found.prefill_tokens - 1)
    for form in ("bf16", "fp8"):
        first = getattr(found, f"decode_bytes_{form}")
        reads = [decode_bytes(config, first, m, form) for m in ("sparse", "dense")]
        before = [decode_bytes(config, first - 1, m, form) for m in ("sparse", "dense")]
        assert reads[0] < reads[1]
        assert before[0] >= before[1]


def test_an_indexer_as_heavy_as_attention_never_pays() -> None:
    config = small_config(index_n_heads=64, index_head_dim=64)
    assert break_even(config) == BreakEven(
        prefill_tokens=None, prefill_position=None, decode_bytes_bf16=None, decode_bytes_fp8=None
    )
    assert flops(config, LONGEST, "prefill", "sparse").total > 0


def test_cost_gathers_everything() -> None:
    found = cost(RELEASE, 4_096)
    assert [(f.phase, f.mode) for f in found.flops] == [
        ("prefill", "dense"), ("prefill", "sparse"), ("decode", "dense"), ("decode", "sparse"),
    ]  # fmt: skip
    assert found.decode_bytes["sparse fp8"] == decode_bytes(RELEASE, 4_096, "sparse", "fp8")
    assert found.parameters == parameters(RELEASE)
    assert found == type(found).model_validate_json(found.model_dump_json())

"""A DSA model and transformers' own with the same weights."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import pytest
import torch
from dsa_samples import shake
from torch import Tensor

from envgen.model.config import DSAConfig
from envgen.model.modeling import DSAForCausalLM

YARN = {
    "rope_theta": 10000.0,
    "rope_type": "yarn",
    "factor": 40.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
}
BASE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "n_routed_experts": 16,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "routed_scaling_factor": 2.5,
    "index_n_heads": 16,  # enough that hardly a key scores exactly 0: transformers breaks ties at random
    "index_head_dim": 32,
    "index_topk": 16,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "bos_token_id": None,
    "eos_token_id": None,
}


class Twins(NamedTuple):
    """One set of weights in two implementations."""

    hf: Any
    ours: DSAForCausalLM


def twins(seed: int = 0, **changes: Any) -> Twins:
    """Float32 models in evaluation mode; ``first_k_dense_replace`` says how many layers are dense."""
    if os.environ.get("ENVGEN_REQUIRE_SERVICES") != "1":
        pytest.importorskip(
            "transformers", reason="transformers (a dev dependency) is not installed"
        )
    from transformers import DeepseekV32Config, DeepseekV32ForCausalLM

    settings = {**BASE, **changes}
    dense, layers = settings["first_k_dense_replace"], settings["num_hidden_layers"]
    settings["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (layers - dense)
    config = DeepseekV32Config(**settings)
    config._attn_implementation = "eager"
    hf: Any = DeepseekV32ForCausalLM(config)
    hf.float().eval()
    shake(hf, seed)
    ours = DSAForCausalLM(DSAConfig.from_hf(config.to_dict())).eval()
    ours.load_state_dict(hf.state_dict(), strict=True)
    return Twins(hf, ours)


class Seen(NamedTuple):
    """What went through transformers' indexers and routers, layer by layer."""

    topk: list[Tensor]
    routing: list[Tensor]
    weights: list[Tensor]


def watched(hf: Any, ids_BT: Tensor, mask_BT: Tensor | None = None) -> tuple[Tensor, Seen]:
    """Logits, key choices [B, T, K], experts [N, A] and their weights [N, A]."""
    seen = Seen([], [], [])
    hooks = []

    def note_router(_module: Any, _inputs: Any, output: Any) -> None:
        seen.weights.append(output[1])
        seen.routing.append(output[2])

    for layer in hf.model.layers:
        hooks.append(
            layer.self_attn.indexer.register_forward_hook(lambda _m, _i, o: seen.topk.append(o))
        )
        if hasattr(layer.mlp, "gate"):
            hooks.append(layer.mlp.gate.register_forward_hook(note_router))
    try:
        with torch.no_grad():
            logits = hf(ids_BT, attention_mask=mask_BT, use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    return logits, seen

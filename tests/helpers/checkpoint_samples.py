"""Small models that use every part of the architecture, and what is done to their folders."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from envgen.model.config import DSAConfig, RopeConfig
from envgen.model.modeling import DSAForCausalLM

YARN = RopeConfig(
    rope_type="yarn", factor=40, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=64
)


def small_config(**changes: Any) -> DSAConfig:
    """One dense layer, two of experts; widths that are no multiples of 16; index_topk 8.

    It has 12 indexer heads, so that one is lit: ties (scores of 0) are broken otherwise elsewhere.
    """
    base: dict[str, Any] = {
        "vocab_size": 90,
        "hidden_size": 40,
        "num_hidden_layers": 3,
        "intermediate_size": 72,
        "first_k_dense_replace": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 24,
        "n_group": 4,
        "topk_group": 2,
        "num_attention_heads": 4,
        "q_lora_rank": 28,
        "kv_lora_rank": 20,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
        "index_n_heads": 12,
        "index_head_dim": 16,
        "index_topk": 8,
        "max_position_embeddings": 2_560,
    }
    return DSAConfig(**{**base, **changes})


@torch.no_grad()
def random_model(seed: int = 1, **changes: Any) -> DSAForCausalLM:
    """A model whose norms and biases matter, in evaluation mode."""
    model = DSAForCausalLM(small_config(**changes))
    draws = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        noise = torch.randn(weight.shape, generator=draws)
        weight.copy_(0.08 * noise if weight.dim() > 1 else 1 + 0.2 * noise)
    for gate in model.gates():
        bias = gate.e_score_correction_bias
        bias.copy_(0.1 * torch.randn(bias.shape, generator=draws))
    return model.eval()


def ids_of(config: DSAConfig, batch: int = 2, tokens: int = 24) -> Tensor:
    """Random token ids [batch, tokens]."""
    return torch.randint(
        0, config.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(5)
    )


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], Mapping[str, Tensor]]) -> None:
    """Change the tensors of ``model.safetensors``."""
    path = folder / "model.safetensors"
    save_file(dict(change(load_file(path))), path, {"format": "pt"})


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON object; a value of None removes the key."""
    kept = {k: v for k, v in json.loads(path.read_text()).items() if k not in changes}
    path.write_text(json.dumps(kept | {k: v for k, v in changes.items() if v is not None}))


def quantized(weight: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """A matrix in e4m3 and its scales, block by block."""
    rows, columns = (math.ceil(n / block) for n in weight.shape)
    scales = torch.empty(rows, columns)
    out = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    for i in range(rows):
        for j in range(columns):
            part = (slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block))
            scales[i, j] = weight[part].abs().max() / 448
            out[part] = (weight[part] / scales[i, j]).to(torch.float8_e4m3fn)
    return out, scales

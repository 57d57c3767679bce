"""Small DSA models with weights that make every part matter, and token batches for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from envgen.model.config import DSAConfig, RopeConfig
from envgen.model.modeling import DSAForCausalLM

YARN = RopeConfig(
    rope_type="yarn",
    factor=40.0,
    mscale=1.0,
    mscale_all_dim=1.0,
    original_max_position_embeddings=4096,
)

_SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "num_attention_heads": 3,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "index_topk": 6,
}


def small_config(**changes: Any) -> DSAConfig:
    """A config of a few thousand parameters that uses every part of the architecture."""
    return DSAConfig(**{**_SMALL, **changes})


@torch.no_grad()
def shake(model: torch.nn.Module, seed: int = 0, spread: float = 0.08) -> None:
    """Draw weights so that norms, biases and the router's correction bias all matter; in place."""
    draws = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=draws)
        if "norm" in name and name.endswith("weight"):
            weight.copy_(1 + 0.2 * noise)
        else:
            weight.copy_((0.1 if name.endswith("bias") else spread) * noise)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=draws))


def small_model(seed: int = 0, *, spread: float = 0.2, **changes: Any) -> DSAForCausalLM:
    """A shaken model in evaluation mode."""
    model = DSAForCausalLM(small_config(**changes))
    shake(model, seed, spread)
    return model.eval()


def tokens(batch: int, length: int, vocab_size: int = 96, seed: int = 0) -> Tensor:
    """Random ids [batch, length]."""
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab_size, (batch, length), generator=draws)


def padding_mask(lengths: list[int], width: int, side: str) -> Tensor:
    """Int64 [len(lengths), width]; zeros on ``side`` fill each row up."""
    places = torch.arange(width).expand(len(lengths), -1)
    counts = torch.tensor(lengths).unsqueeze(1)
    return (places >= width - counts if side == "left" else places < counts).long()


def sets_of(kept_BTK: Tensor) -> list[list[set[int]]]:
    """Key sets without ``HIDDEN``, per row and query."""
    return [[{s for s in row if s >= 0} for row in rows] for rows in kept_BTK.tolist()]


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients there are, by name."""
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def worst_gap(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    """Largest absolute difference of two sets of gradients, which must be of the same tensors."""
    assert one.keys() == two.keys()
    return max(float((g - two[n]).abs().max()) for n, g in one.items())

"""Rotary position embedding with YaRN (Su et al. 2021; Peng et al. 2023).

Shapes: B batch, T tokens, R rotary width, P = R / 2 pairs, S positions.

The attention heads pair neighbours (x0, x1), (x2, x3), ...; the indexer pairs halves (x_i, x_{i + R/2}).
Both use the same angles. ``rotate_pairs`` leaves its result de-interleaved (first members, then second
members): dot products are the same, and nothing else looks at the order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from envgen.model.config import RopeConfig, yarn_mscale


class Angles(NamedTuple):
    """cos and sin of every pair's angle at the positions of a batch: each [B, T, P]."""

    cos: Tensor
    sin: Tensor


def inverse_frequencies(rope: RopeConfig, width: int) -> Tensor:
    """Radians per position of each pair: float32 [width / 2]."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device="cpu") / width
    plain = 1.0 / rope.rope_theta**exponents
    if rope.rope_type == "default":
        return plain
    low, high = _ramp_bounds(rope, width)
    ramp = (torch.arange(width // 2, dtype=torch.float32, device="cpu") - low) / (high - low)
    stretched = ramp.clamp(0, 1)
    return plain / rope.factor * stretched + plain * (1 - stretched)


def _ramp_bounds(rope: RopeConfig, width: int) -> tuple[float, float]:
    """Between which pairs YaRN goes from not stretching to stretching fully."""
    original = rope.original_max_position_embeddings or 1

    def pair(rotations: float) -> float:
        turn = math.log(original / (rotations * 2 * math.pi))
        return width * turn / (2 * math.log(rope.rope_theta))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    return low, high + 0.001 if low == high else high


def angle_gain(rope: RopeConfig) -> float:
    """The factor of cos and sin: 1 unless YaRN's two mscales differ."""
    if rope.rope_type == "default":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return yarn_mscale(rope.factor, rope.mscale) / yarn_mscale(rope.factor, rope.mscale_all_dim)
    return yarn_mscale(rope.factor, 1.0)


class RopeTable:
    """cos and sin of all positions up to the largest one asked for; grows by doubling."""

    def __init__(self, rope: RopeConfig, width: int) -> None:
        self._inverse = inverse_frequencies(rope, width)
        self._gain = angle_gain(rope)
        self._table: Tensor | None = None  # [S, 2, P]

    def at(self, positions_BT: Tensor, largest: int, dtype: torch.dtype) -> Angles:
        """Angles at ``positions_BT`` (int64, at most ``largest``), in ``dtype``."""
        table = self._table
        device = positions_BT.device
        if table is None or table.device != device or table.shape[0] <= largest:
            table = self._table = self._build(max(256, 1 << largest.bit_length()), device)
        found = table[positions_BT].to(dtype)  # [B, T, 2, P]
        return Angles(found[..., 0, :], found[..., 1, :])

    def _build(self, size: int, device: torch.device) -> Tensor:
        with torch.inference_mode(False):  # it is kept, and training may be next to use it
            positions = torch.arange(size, dtype=torch.float32, device="cpu")
            angles = torch.outer(positions, self._inverse)
            return (torch.stack((angles.cos(), angles.sin()), 1) * self._gain).to(device)


def rotate_pairs(x: Tensor, angles: Angles) -> Tensor:
    """Turn neighbours; x [..., R] with angles that broadcast to [..., P]; result de-interleaved."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), -1)


def rotate_halves(x: Tensor, angles: Angles) -> Tensor:
    """Turn pairs made of the two halves; x [..., R] with angles that broadcast to [..., P]."""
    first, second = x.chunk(2, -1)
    cos, sin = angles
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

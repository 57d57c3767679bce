"""What to watch of one batch that GRPO learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


@dataclass
class Figures:
    """What to watch of one batch; a sum or list over its parts."""

    log_ratios: list[Tensor] = field(default_factory=list)
    divergences: list[Tensor] = field(default_factory=list)
    """(9)'s, before the first update: what engine and trainer differ by."""
    negatives: int = 0
    masked: int = 0
    clipped: int = 0
    tokens: int = 0
    tokens_run: int = 0
    entropy: float = 0.0
    kept_mass: float = 0.0
    least_kept_mass: float = 1.0
    ref_kept_mass: float = 0.0
    ref_tokens: int = 0
    """Tokens that pi_ref was asked about."""
    kl: float = 0.0
    index_loss: float = 0.0
    loss: float = 0.0
    norms: list[tuple[float, float]] = field(default_factory=list)
    assembly_s: float = 0.0

    @classmethod
    def merged(cls, parts: Sequence[Figures]) -> Figures:
        """Those of all processes: sums; the optimiser's are the same in each."""
        total = cls(norms=parts[0].norms)
        for part in parts:
            total.log_ratios += part.log_ratios
            total.divergences += part.divergences
            total.assembly_s = max(total.assembly_s, part.assembly_s)
            total.least_kept_mass = min(total.least_kept_mass, part.least_kept_mass)
            for name in SUMMED:
                setattr(total, name, getattr(total, name) + getattr(part, name))
        return total

    def named(self) -> dict[str, float]:
        """By their names in ``metrics.jsonl``."""
        found: dict[str, float] = {"update/tokens_run": self.tokens_run}
        if self.norms:
            trunk, indexer = np.array(self.norms).mean(0)
            found |= {"update/loss": self.loss / len(self.norms), "update/grad_norm": float(trunk)}
            found |= {
                "index/loss": self.index_loss / len(self.norms),
                "index/grad_norm": float(indexer),
            }
        if self.tokens:
            ratio_N = torch.cat(self.log_ratios).abs()
            found |= {
                "policy/entropy": self.entropy / self.tokens,
                "policy/kept_mass": self.kept_mass / self.tokens,
                "policy/least_kept_mass": self.least_kept_mass,
                "policy/clip_fraction": self.clipped / self.tokens,
                "policy/kl": self.kl / self.tokens,
                "policy/log_ratio_p99": quantile(ratio_N, 0.99),
                "policy/log_ratio_max": float(ratio_N.max()),
            }
        if self.ref_tokens:
            found["policy/ref_kept_mass"] = self.ref_kept_mass / self.ref_tokens
        if self.negatives:
            found["policy/masked_negatives"] = self.masked / self.negatives
        if self.divergences:
            apart = torch.cat(self.divergences)
            found |= {f"policy/mismatch_p{q}": quantile(apart, q / 100) for q in (50, 95, 100)}
        return found


SUMMED = (
    "negatives", "masked", "clipped", "tokens", "tokens_run", "entropy", "kept_mass", "ref_kept_mass",
    "ref_tokens", "kl", "index_loss", "loss",
)  # fmt: skip
"""Figures that add up over processes."""


def quantile(values: Tensor, q: float) -> float:
    """By sorting: ``torch.quantile`` takes 2^24 values at most."""
    ordered = values.sort().values
    return float(ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))])

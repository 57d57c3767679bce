"""Drawing the next token: temperature, top-k, top-p, and a record of what each draw could have given.

Tokens are ordered by probability, equal ones by id. Truncation keeps the first n of that order:

    n = min(top_k, max_kept, shortest prefix whose share of the top_k's mass reaches top_p)

so the kept set is exact, ties included, and every limit is part of the distribution that was sampled.
A draw inverts the cumulative distribution, in order of ids, at one uniform number. The numbers of a request
depend on its seed and the token's index alone, never on what else is in the batch.

Temperature 0 is greedy: the first of the order is the only token kept, its log-probability is 0, and
``full_logprobs`` are those of temperature 1.

Shapes: B rows, V vocabulary, K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envgen.core.errors import ConfigError, PolicyError

UNIFORMS_AT_ONCE = 64
MIN_TEMPERATURE = 1e-5
"""Below it, 0 aside, logits divided by it would soon be infinite in 32 bits."""
FIRST_CANDIDATES = 64
"""How many of the most likely tokens a nucleus is looked for in before more are fetched."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one reply is drawn and what is recorded of it.

    Raises:
        ConfigError: if a setting has no meaning.
    """

    temperature: float = 1.0
    """0: greedy; else at least ``MIN_TEMPERATURE``."""
    top_p: float = 1.0
    """Keep the shortest prefix with this share of the mass; in (0, 1]."""
    top_k: int = -1
    """Keep as many at most; 0 or less: no limit."""
    max_new_tokens: int = 1024
    seed: int = 0
    """Of the request's own random numbers: 0 to 2**64 - 1."""
    stop_ids: tuple[int, ...] = ()
    """Ids that end the reply; the one that did is its last id."""
    max_kept: int | None = None
    """Keep as many at most, so that recorded masks stay small; None: no limit."""
    capture_routing: bool = True
    capture_topk: bool = False
    capture_from: int = 0
    """First token whose routing and key sets are recorded; another reply has those before."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop_ids", tuple(self.stop_ids))
        warm = MIN_TEMPERATURE <= self.temperature < math.inf
        for broken, name, wanted in (
            (
                not (warm or self.temperature == 0),
                "temperature",
                f"0, or a finite number from {MIN_TEMPERATURE} on",
            ),
            (not 0 < self.top_p <= 1, "top_p", "above 0, and at most 1"),
            (self.max_new_tokens < 1, "max_new_tokens", "at least 1"),
            (not 0 <= self.seed < 1 << 64, "seed", "from 0 to 2**64 - 1"),
            (self.capture_from < 0, "capture_from", "at least 0"),
            (self.max_kept is not None and self.max_kept < 1, "max_kept", "at least 1, or None"),
        ):
            if broken:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", f"it must be {wanted}")

    @property
    def truncates(self) -> bool:
        """Whether any limit is set; greedy keeps one token."""
        limited = self.top_k > 0 or self.top_p < 1 or self.max_kept is not None
        return limited or self.temperature == 0

    def limit(self, vocab_size: int) -> int:
        """Most tokens that can be kept, the nucleus aside."""
        if self.temperature == 0:
            return 1
        given = [self.top_k] if self.top_k > 0 else []
        given += [] if self.max_kept is None else [self.max_kept]
        return min([vocab_size, *given])


class Uniforms:
    """Random numbers of one request: number i is draw i of ``Philox(key=seed)``, in [0, 1)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._block = -1
        self._numbers: list[float] = []

    def at(self, index: int) -> float:
        """Number ``index``; cheapest when asked for in order."""
        block, place = divmod(index, UNIFORMS_AT_ONCE)
        if block != self._block:
            # One step of Philox's counter gives four numbers.
            counter = block * (UNIFORMS_AT_ONCE // 4)
            generator = np.random.Generator(np.random.Philox(key=self._seed, counter=counter))
            self._numbers = generator.random(UNIFORMS_AT_ONCE).tolist()
            self._block = block
        return self._numbers[place]


class Kept(NamedTuple):
    """Vocabulary entries each row could have drawn; one row a token, ids ascending."""

    counts_B: NDArray[np.int64]
    ids: NDArray[np.int32]
    truncated_B: NDArray[np.bool_]
    """False where the row's set is the whole vocabulary."""


class Drawn(NamedTuple):
    """One token for each row."""

    ids_B: Tensor
    """int64, where the logits are."""
    logprobs_B: NDArray[np.float32]
    """Under the distribution that was sampled."""
    full_logprobs_B: NDArray[np.float32]
    """Log-softmax over the whole vocabulary at the row's temperature, before truncation."""
    kept: Kept | None
    """None when no row was truncated."""


class BatchSampler:
    """Draws for a batch of requests; made anew when the batch's members change.

    Args:
        params: of each row.
        vocab_size: V.
        device: where the logits will be.
    """

    def __init__(
        self, params: Sequence[SamplingParams], vocab_size: int, device: torch.device | str = "cpu"
    ) -> None:
        limits = [p.limit(vocab_size) for p in params]
        top_ks = [min(p.top_k, vocab_size) if p.top_k > 0 else vocab_size for p in params]
        top_ps = [p.top_p if p.temperature > 0 else 1.0 for p in params]
        temperatures = [p.temperature or 1.0 for p in params]
        self._vocab_size = vocab_size
        self._plain = all(t == 1.0 for t in temperatures)
        self._truncates = any(p.truncates for p in params)
        self._inverse_B1 = 1.0 / torch.tensor(temperatures, device=device).unsqueeze(1)
        self._limit_B = torch.tensor(limits, device=device)
        self._top_k_B = torch.tensor(top_ks, device=device)
        self._top_p_B = torch.tensor(top_ps, dtype=torch.float64, device=device)
        self._nucleus = any(p < 1 for p in top_ps)
        bounds = [n if p >= 1 else k for n, k, p in zip(limits, top_ks, top_ps, strict=True)]
        searched = [n if n < vocab_size else FIRST_CANDIDATES for n in bounds]
        self._candidates = min(max(searched, default=1), vocab_size)

    def draw(self, logits_BV: Tensor, uniforms_B: Sequence[float]) -> Drawn:
        """One token for each row of logits.

        Raises:
            PolicyError: if a row has no probabilities, because it holds NaN or infinity.
        """
        x_BV = logits_BV.float()
        if not self._plain:
            x_BV = x_BV * self._inverse_B1
        norm_B = x_BV.logsumexp(-1)
        keep_BV = self._kept(x_BV, norm_B) if self._truncates else None
        kept_norm_B = norm_B
        masked_BV = x_BV
        if keep_BV is not None:
            masked_BV = x_BV.masked_fill(~keep_BV, float("-inf"))
            kept_norm_B = masked_BV.logsumexp(-1)
        ids_B = _invert((masked_BV - kept_norm_B.unsqueeze(1)).exp_(), uniforms_B)
        found_B = x_BV.gather(1, ids_B.unsqueeze(1)).squeeze(1)
        both = torch.stack((found_B - kept_norm_B, found_B - norm_B)).cpu().numpy()
        if not np.isfinite(both).all():
            raise PolicyError(
                "the model gave logits without a distribution (NaN or infinite)",
                "look at the weights: the last update may have diverged",
            )
        return Drawn(ids_B, both[0], both[1], None if keep_BV is None else _rows(keep_BV))

    def _kept(self, x_BV: Tensor, norm_B: Tensor) -> Tensor:
        """Which tokens each row keeps: bool [B, V]."""
        best_BK = x_BV.topk(self._candidates, -1).values
        count_B = self._limit_B
        if self._nucleus:
            best_BK, nucleus_B = self._nucleus_sizes(x_BV, norm_B, best_BK)
            count_B = torch.minimum(count_B, nucleus_B)
        last_B1 = (count_B.clamp_max(best_BK.shape[1]) - 1).unsqueeze(1)
        threshold_B1 = best_BK.gather(1, last_B1)
        above_BV = x_BV > threshold_B1
        level_BV = x_BV == threshold_B1
        room_B1 = count_B.unsqueeze(1) - above_BV.sum(-1, keepdim=True)
        keep_BV = above_BV | (level_BV & (level_BV.cumsum(-1) <= room_B1))
        return keep_BV | (count_B == self._vocab_size).unsqueeze(1)

    def _nucleus_sizes(
        self, x_BV: Tensor, norm_B: Tensor, best_BK: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Candidates that hold every nucleus, most likely first, and the nuclei's sizes int64 [B]."""
        while True:
            mass_BK = (best_BK - norm_B.unsqueeze(1)).exp().cumsum(-1, dtype=torch.float64)
            size = mass_BK.shape[1]
            whole_B = mass_BK.gather(1, (self._top_k_B.clamp_max(size) - 1).unsqueeze(1)).squeeze(1)
            whole_B = torch.where(self._top_k_B <= size, whole_B, 1.0)
            target_B = torch.where(self._top_p_B < 1, self._top_p_B * whole_B, 2.0)
            count_B = (mass_BK < target_B.unsqueeze(1)).sum(-1) + 1
            settled_B = (count_B <= size) | (self._top_k_B <= size) | (self._limit_B <= size)
            if size == self._vocab_size or bool((settled_B | (self._top_p_B >= 1)).all()):
                unbound_B = torch.full_like(count_B, self._vocab_size)
                return best_BK, torch.where(self._top_p_B < 1, count_B, unbound_B).clamp_max(
                    self._vocab_size
                )
            best_BK = x_BV.topk(min(8 * size, self._vocab_size), -1).values


def _invert(p_BV: Tensor, uniforms_B: Sequence[float]) -> Tensor:
    """The first id at which the cumulative share exceeds the row's number: int64 [B]."""
    cumulative_BV = p_BV.cumsum(-1, dtype=torch.float64)
    u_B1 = torch.tensor(uniforms_B, dtype=torch.float64).to(p_BV.device).unsqueeze(1)
    # u < 1 = (2^53 - 1) / 2^53 at most, so the target stays below the whole.
    found_B1 = torch.searchsorted(cumulative_BV, u_B1 * cumulative_BV[:, -1:], right=True)
    return found_B1.squeeze(1).clamp_max(p_BV.shape[1] - 1)


def _rows(keep_BV: Tensor) -> Kept:
    keep = keep_BV.cpu().numpy()
    counts = keep.sum(1)
    return Kept(counts, np.nonzero(keep)[1].astype(np.int32), counts < keep.shape[1])

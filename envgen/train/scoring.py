"""Log-probabilities of recorded tokens under a model, renormalised over the sampling mask.

*Keep sampling mask* (paper, section 3.1): the sampler drew from the ids that top-k and top-p kept. Scored
over the whole vocabulary, a policy has another action space, and its ratio to the sampler is off by the
kept mass. So logits are renormalised over the recorded ids.

Shapes: N scored tokens, V vocabulary, Z recorded ids of all tokens together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Support(NamedTuple):
    """Sampling masks: the ids kept for each token, as CSR; an empty mask: truncation dropped nothing."""

    offsets: Tensor
    """int64 [N + 1]"""
    ids: Tensor
    """int64 [Z]"""


class Scores(NamedTuple):
    """A model's scores of recorded tokens."""

    logp_N: Tensor
    """Log-probability over the support, at the sampling temperature; float32, with gradient."""
    kept_mass_N: Tensor
    """Probability mass of the support under the untruncated policy; detached."""
    entropy_N: Tensor
    """Entropy of the policy renormalised over the support, in nats; detached."""


def score(
    logits_NV: Tensor, tokens_N: Tensor, temperature: float, support: Support | None = None
) -> Scores:
    """Score tokens given the logits that preceded them.

    Args:
        logits_NV: the policy's logits, any float dtype.
        tokens_N: int64, ids of the recorded tokens.
        temperature: of the sampler, > 0.
        support: the sampling masks; None: nothing was truncated.

    Raises:
        ValueError: if a token is not in its own support, or the temperature is not positive.
    """
    if temperature <= 0:
        raise ValueError(
            f"temperature must be above 0, got {temperature}; train on samples that were drawn so"
        )
    scaled_NV = logits_NV.float() / temperature
    chosen_N = scaled_NV.gather(1, tokens_N.unsqueeze(1)).squeeze(1)
    whole_N = torch.logsumexp(scaled_NV, -1)
    if support is None or not len(support.ids):
        every_N = torch.arange(len(tokens_N), device=tokens_N.device)
        entropy_N = _entropy(scaled_NV.detach(), whole_N.detach(), every_N)
        return Scores(chosen_N - whole_N, torch.ones_like(whole_N), entropy_N)
    row_Z = torch.repeat_interleave(
        torch.arange(len(tokens_N), device=tokens_N.device), support.offsets.diff()
    )
    picked_Z = scaled_NV[row_Z, support.ids]
    _require_members(tokens_N, support, row_Z)
    truncated_N = support.offsets.diff() > 0
    norm_N = torch.where(truncated_N, _segment_logsumexp(picked_Z, row_Z, len(tokens_N)), whole_N)
    with torch.no_grad():
        p_Z = (picked_Z - norm_N[row_Z]).exp()
        part_N = torch.zeros_like(norm_N).index_add_(0, row_Z, p_Z * picked_Z)
        entropy_N = norm_N - part_N
        plain_M = (~truncated_N).nonzero().squeeze(1)
        entropy_N[plain_M] = _entropy(scaled_NV, whole_N, plain_M)
    return Scores(chosen_N - norm_N, (norm_N - whole_N).exp().detach(), entropy_N)


ENTROPY_VALUES = 1 << 22
"""Most logits whose softmax is computed at a time: it keeps the temporary arrays small."""


def _entropy(scaled_NV: Tensor, whole_N: Tensor, rows_M: Tensor) -> Tensor:
    """Return the entropy over the whole vocabulary of the rows ``rows_M``: [M], nats."""
    found = []
    for rows in torch.split(rows_M, max(1, ENTROPY_VALUES // scaled_NV.shape[1])):
        some = scaled_NV[rows]
        found.append(whole_N[rows] - (torch.softmax(some, -1) * some).sum(-1))
    return torch.cat(found) if found else whole_N[:0]


def _segment_logsumexp(values_Z: Tensor, row_Z: Tensor, rows: int) -> Tensor:
    """Return the log-sum-exp of each row's values: [rows]; any finite number for rows without values."""
    with torch.no_grad():
        top = values_Z.new_full((rows,), float("-inf"))
        top = top.scatter_reduce(0, row_Z, values_Z, "amax")
        top = top.masked_fill(top == float("-inf"), 0.0)
    total = values_Z.new_zeros(rows).index_add(0, row_Z, (values_Z - top[row_Z]).exp())
    # The caller replaces rows without ids; log(1) keeps their gradient finite.
    return torch.where(total > 0, total, 1.0).log() + top


def _require_members(tokens_N: Tensor, support: Support, row_Z: Tensor) -> None:
    hits = support.ids == tokens_N[row_Z]
    found_N = torch.zeros(len(tokens_N), dtype=torch.int64, device=tokens_N.device)
    found_N.index_add_(0, row_Z, hits.long())
    lost = (support.offsets.diff() > 0) & (found_N == 0)
    if bool(lost.any()):
        first = int(lost.nonzero()[0])
        raise ValueError(
            f"token {int(tokens_N[first])} at place {first} is not in its own sampling mask: the mask was "
            "recorded in another sampling run"
        )

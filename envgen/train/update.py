"""What GRPO does with one batch of rollouts: advantages, mini-batches, gradients, figures to watch.

A mini-batch is run in parts that fit into memory; their gradients add up. A rollout is never split between
parts, for the off-policy mask looks at all of it.

Shapes: I rollouts of the batch, J of a part, N model tokens of a part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from envgen.core.types import Record
from envgen.model.attention import IndexLoss
from envgen.model.modeling import DSAForCausalLM
from envgen.train.batch import RowBatch, Said, row_batch, say
from envgen.train.figures import Figures
from envgen.train.grpo import (
    GRPOConfig,
    Loss,
    TokenBatch,
    divergence,
    group_advantages,
    grpo_loss,
    token_weights,
    varied,
)
from envgen.train.optimize import Optimizer, require_finite
from envgen.train.packing import common_prefix
from envgen.train.parallel import Alone, Ranks, balance
from envgen.train.rows import Row
from envgen.train.sharding import stand_in

KEPT_MASS_ALARM = 0.5
MASKED_ALARM = 0.5


class UpdateConfig(Record):
    """How a batch of rollouts is learnt from."""

    mini_batches: int = Field(default=1, ge=1)
    """Optimiser steps a batch; above 1 the later ones are off-policy."""
    part_tokens: int = Field(default=16_384, ge=1)
    """Tokens that are run at once, shared prefixes counted once."""
    pack_tokens: int = Field(default=512, ge=1)
    """Most tokens of rows that are packed behind a common prefix; longer rows as ``packing`` says."""
    index_loss_weight: float = Field(default=1.0, gt=0)
    """Of the indexer's loss, beside the objective."""
    router_bias_rate: float = Field(default=0.0, ge=0)
    """Step of the load-balancing bias; by default it is frozen, so that replayed routes stay likely."""


@dataclass(frozen=True, eq=False)
class Learnt:
    """A batch of rollouts as the objective sees it."""

    rows: Sequence[Row]
    group_I: NDArray[np.int64]
    reward_I: NDArray[np.float32]
    length_I: NDArray[np.int64]
    kl_scale_I: NDArray[np.float32] | None = None
    """Strength of the KL term of each, relative to ``kl_coef``; None: 1."""


@dataclass(eq=False)
class _Part:
    """Some rollouts that are run together."""

    rollout_J: list[int]
    batch: RowBatch
    old_N: Tensor | None = None
    """log pi of the trainer before the first update, where pi_old is to be that."""
    ref_N: Tensor | None = None


class _MiniBatch(NamedTuple):
    """What one optimiser step learns from."""

    groups: list[int]
    parts: list[_Part]
    spare: int
    """Passes that another process makes and this one has no part for, where the model is in shards."""


class Updater:
    """Learns from batches of rollouts.

    Args:
        model: what learns.
        optimizer: of it.
        objective: GRPO's.
        config: how batches are cut.
        temperature: of the sampler.
        reference: pi_ref, frozen; needed with ``kl_coef`` > 0.
        ranks: the processes that learn together; each is given its own groups.

    Attributes:
        step: optimiser steps so far.
    """

    def __init__(
        self,
        model: DSAForCausalLM,
        optimizer: Optimizer,
        objective: GRPOConfig,
        config: UpdateConfig,
        temperature: float,
        reference: DSAForCausalLM | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks or Alone()
        self._model, self._optimizer, self._reference = model, optimizer, reference
        self._objective, self._config, self._temperature = objective, config, temperature
        self.step = 0

    def update(self, learnt: Learnt, rng: Random) -> Figures:
        """Learn from a batch.

        Raises:
            DivergedError: if a loss or gradient is not finite; weights are those of the step before.
        """
        figures = Figures()
        group_I = torch.from_numpy(learnt.group_I)
        reward_I = torch.from_numpy(learnt.reward_I)
        advantage_I = reward_I
        if self._objective.advantage != "none":
            advantage_I = group_advantages(
                reward_I, group_I, normalize_std=self._objective.advantage == "std"
            )
        counted_I = torch.ones_like(group_I, dtype=torch.bool)
        if self._objective.zero_variance == "drop":
            counted_I = varied(reward_I, group_I)
        # Without a KL term a rollout without an advantage moves nothing.
        run_I = counted_I if self._objective.kl_coef > 0 else counted_I & (advantage_I != 0)
        batches = self._cut(learnt, run_I.numpy(), rng, figures)
        self._model.train()
        self._before_updates(batches, figures)
        for batch in batches:
            member_I = torch.from_numpy(np.isin(learnt.group_I, batch.groups)) & counted_I
            self._mini_batch(learnt, batch, advantage_I, member_I, figures)
        return figures

    def _cut(
        self, learnt: Learnt, run_I: NDArray[np.bool_], rng: Random, figures: Figures
    ) -> list[_MiniBatch]:
        """Mini-batches of whole groups, each with its parts."""
        started = time.perf_counter()
        groups = sorted(set(learnt.group_I.tolist()))
        rng.shuffle(groups)
        count = self._config.mini_batches
        found = []
        for n in range(count):
            some = groups[n::count]
            chosen = np.flatnonzero(np.isin(learnt.group_I, some) & run_I)
            parts = [self._part(learnt.rows, js) for js in self._parts(learnt.rows, chosen)]
            found.append(_MiniBatch(some, parts, 0))
        figures.assembly_s += time.perf_counter() - started
        if self._ranks.sharded:
            counts = zip(*self._ranks.gather([len(one.parts) for one in found]), strict=True)
            found = [
                one._replace(spare=max(n) - len(one.parts))
                for one, n in zip(found, counts, strict=True)
            ]
        return found

    def _parts(self, rows: Sequence[Row], chosen: NDArray[np.int64]) -> Iterator[list[int]]:
        """Rollouts in runs of about ``part_tokens``, what a row shares with the last one not counted.

        All packs of a part are padded to its longest, so a few long rollouts have parts of their own: in
        those of a part, rows that are too long for a pack are alike within a factor of 2.
        """
        by_rollout: dict[int, list[Row]] = {}
        for row in rows:
            by_rollout.setdefault(row.rollout, []).append(row)
        like: dict[int, list[int]] = {}
        for i in chosen.tolist():
            longest = max(len(row.ids) for row in by_rollout[i])
            over = longest / self._config.pack_tokens
            like.setdefault(0 if over <= 1 else 1 + int(math.log2(over)), []).append(i)
        for some in like.values():
            part: list[int] = []
            tokens, last = 0, np.zeros(0, np.int32)
            for i in some:
                added = 0
                for row in by_rollout[i]:
                    added += len(row.ids) - common_prefix(last, row.ids)
                    last = row.ids
                if part and tokens + added > self._config.part_tokens:
                    yield part
                    part, tokens, added = [], 0, sum(len(row.ids) for row in by_rollout[i])
                part.append(i)
                tokens += added
            yield part

    def _part(self, rows: Sequence[Row], chosen: list[int]) -> _Part:
        place = {i: j for j, i in enumerate(chosen)}
        some = [replace(row, rollout=place[row.rollout]) for row in rows if row.rollout in place]
        batch = row_batch(some, self._model.device, pack_tokens=self._config.pack_tokens)
        return _Part(chosen, batch)

    @torch.no_grad()
    def _before_updates(self, batches: Sequence[_MiniBatch], figures: Figures) -> None:
        """What is of the weights before the first update, or of other weights."""
        for batch in batches:
            if self._objective.old == "recomputed":
                for part in batch.parts:
                    part.old_N = self._said(self._model, part).scores.logp_N
                self._stand_in(batch)
            if self._objective.kl_coef > 0:
                assert self._reference is not None
                for part in batch.parts:
                    scores = self._said(self._reference, part).scores
                    part.ref_N = scores.logp_N
                    figures.ref_kept_mass += float(scores.kept_mass_N.sum())
                    figures.ref_tokens += len(scores.kept_mass_N)

    def _stand_in(self, batch: _MiniBatch, index_loss: IndexLoss | None = None) -> None:
        """The passes that other processes make and this one has no part for."""
        for _ in range(batch.spare):
            stand_in(self._model, index_loss)

    def _said(
        self, model: DSAForCausalLM, part: _Part, index_loss: IndexLoss | None = None
    ) -> Said:
        o = self._objective
        return say(
            model,
            part.batch,
            self._temperature,
            keep_mask=o.keep_sampling_mask,
            keep_routing=o.keep_routing,
            keep_topk=o.keep_topk,
            index_loss=index_loss,
        )

    def _mini_batch(
        self,
        learnt: Learnt,
        batch: _MiniBatch,
        advantage_I: Tensor,
        counted_I: Tensor,
        figures: Figures,
    ) -> None:
        """One optimiser step."""
        length_I = torch.from_numpy(learnt.length_I).float()
        mine = [
            counted_I.sum().item(),
            length_I[counted_I].sum().item(),
            sum(int(part.batch.valid_BT.sum()) for part in batch.parts),
        ]
        rollouts, tokens_all, run_all = self._ranks.sum(torch.tensor(mine).double()).tolist()
        if not run_all:
            return
        weight_I = token_weights(length_I, rollouts, tokens_all, self._objective)
        index_loss: IndexLoss | None = "sparse" if self._optimizer.config.indexer == "eq4" else None
        first = not figures.norms
        self._optimizer.zero_grad()
        for part in batch.parts:
            said = self._said(self._model, part, index_loss)
            tokens = self._tokens(learnt, part, said, advantage_I, length_I, weight_I)
            if first:
                figures.divergences.append(divergence(tokens))
            found = grpo_loss(tokens, self._objective, self._objective.off_policy_delta)
            total = found.loss
            if said.index_loss is not None:
                share = int(part.batch.valid_BT.sum()) / run_all
                total = total + self._config.index_loss_weight * share * said.index_loss
                figures.index_loss += share * float(said.index_loss.detach())
            require_finite(total, self.step)
            torch.autograd.backward(total)
            _note(figures, found, tokens, said, part)
        self._stand_in(batch, index_loss)
        self._ranks.add_gradients(self._optimizer.weights)
        norms = self._optimizer.step(self.step)
        figures.norms.append((norms.trunk, norms.indexer))
        if self._config.router_bias_rate:
            balance(self._model, self._config.router_bias_rate, self._ranks)
        self.step += 1

    def _tokens(
        self,
        learnt: Learnt,
        part: _Part,
        said: Said,
        advantage_I: Tensor,
        length_I: Tensor,
        weight_I: Tensor,
    ) -> TokenBatch:
        chosen, device = part.rollout_J, self._model.device
        kl_scale = None
        if learnt.kl_scale_I is not None:
            kl_scale = torch.from_numpy(learnt.kl_scale_I[chosen]).to(device)
        return TokenBatch(
            logp_N=said.scores.logp_N,
            old_N=part.batch.old_N if part.old_N is None else part.old_N,
            rollout_N=part.batch.rollout_N,
            advantage_I=advantage_I[chosen].to(device),
            length_I=length_I[chosen].to(device),
            weight_I=weight_I[chosen].to(device),
            ref_N=part.ref_N,
            sampler_N=part.batch.old_N,
            kl_scale_I=kl_scale,
        )


@torch.no_grad()
def _note(figures: Figures, found: Loss, tokens: TokenBatch, said: Said, part: _Part) -> None:
    scores = said.scores
    count = len(tokens.logp_N)
    negative_I = tokens.advantage_I < 0
    figures.loss += float(found.loss.detach())
    figures.log_ratios.append(found.ratio_N.log())
    figures.negatives += int(negative_I.sum())
    figures.masked += int((found.masked_I & negative_I).sum())
    figures.clipped += int(found.clipped_N.sum())
    figures.tokens += count
    figures.tokens_run += int(part.batch.valid_BT.sum())
    figures.entropy += float(scores.entropy_N.sum())
    figures.kept_mass += float(scores.kept_mass_N.sum())
    figures.least_kept_mass = min(figures.least_kept_mass, float(scores.kept_mass_N.min()))
    if found.kl_N is not None:
        figures.kl += float(found.kl_N.sum())

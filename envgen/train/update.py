"""One GRPO update from a batch of rollouts: advantages, mini-batches, losses, gradients, optimiser steps.

    advantages -> mini-batches of whole groups -> parts that fit into memory -> scores -> mask -> loss
    -> gradients of the parts added up -> one optimiser step a mini-batch

A rollout is never split between parts, because the off-policy mask is a mean over all of it. A function of
the same signature can replace each arrow; see ``Parts``.

Shapes: I rollouts of the batch, J of a part, N model tokens of a part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envgen.model.attention import IndexLoss
from envgen.model.modeling import DSAForCausalLM
from envgen.train.batch import BatchScores, RowBatch, row_batch, score_batch
from envgen.train.config import GRPOConfig, OptimizerConfig, UpdateConfig
from envgen.train.figures import Figures
from envgen.train.grpo import (
    Advantages,
    Loss,
    LossFunction,
    Mask,
    TokenBatch,
    advantages,
    divergence,
    grpo_loss,
    off_policy_mask,
    token_weights,
    varied,
)
from envgen.train.optimize import Optimizer, Steps, require_finite
from envgen.train.packing import Packing, common_prefix, pack
from envgen.train.parallel import Alone, Ranks, balance
from envgen.train.rows import Row
from envgen.train.sharding import stand_in


class Parts(NamedTuple):
    """The replaceable parts of a GRPO run, each a function or class of the same signature as the default.

        train_grpo(config, out, parts=Parts(mask=my_mask))

    Runs of several processes import them, so they must be functions of a module, not lambdas.
    """

    advantages: Advantages = advantages
    mask: Mask = off_policy_mask
    loss: LossFunction = grpo_loss
    pack: Packing = pack
    optimizer: Callable[[DSAForCausalLM, OptimizerConfig], Steps] = Optimizer
    model: type[DSAForCausalLM] = DSAForCausalLM
    """A subclass may have other ``blocks``; see ``envgen.model.modeling``."""


PAPER = Parts()


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """A batch of rollouts as the objective sees it."""

    rows: Sequence[Row]
    group_I: NDArray[np.int64]
    reward_I: NDArray[np.float32]
    length_I: NDArray[np.int64]
    kl_scale_I: NDArray[np.float32] | None = None
    """Factor of ``kl_coef`` for each rollout; None: 1."""


@dataclass(eq=False)
class _BatchPart:
    """The rollouts of one forward and backward pass."""

    rollout_J: list[int]
    rows: RowBatch
    old_N: Tensor | None = None
    """The trainer's log-probabilities before the first update, with ``old="recomputed"``."""
    ref_N: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that are run, padding not counted."""
        return int(self.rows.valid_BT.sum())


class _MiniBatch(NamedTuple):
    """The rollouts of one optimiser step."""

    groups: list[int]
    parts: list[_BatchPart]
    spare: int
    """Extra passes that a sharded model needs here, because another process has more parts."""


class _Targets(NamedTuple):
    """What the loss needs of each rollout and no forward pass gives."""

    group_I: Tensor
    advantage_I: Tensor
    length_I: Tensor
    counted_I: Tensor
    """bool: the rollout is in the loss's denominator."""
    kl_scale_I: Tensor | None


class Updater:
    """Learns from batches of rollouts.

    Args:
        model: the policy.
        optimizer: steps the policy's weights.
        objective: the loss.
        config: how batches are split.
        temperature: the sampler's.
        reference: pi_ref, frozen; needed with ``kl_coef`` > 0.
        ranks: the processes that train together; each is given its own groups.
        parts: replacements of the paper's functions.

    Attributes:
        step: optimiser steps so far.
    """

    def __init__(
        self,
        model: DSAForCausalLM,
        optimizer: Steps,
        objective: GRPOConfig,
        config: UpdateConfig,
        temperature: float,
        reference: DSAForCausalLM | None = None,
        ranks: Ranks | None = None,
        parts: Parts = PAPER,
    ) -> None:
        self._ranks = ranks or Alone()
        self._model, self._optimizer, self._reference = model, optimizer, reference
        self._objective, self._config, self._temperature = objective, config, temperature
        self._by = parts
        self.step = 0

    def update(self, batch: RolloutBatch, rng: Random) -> Figures:
        """Learn from a batch.

        Raises:
            DivergedError: if a loss or gradient is not finite; the weights are those of the previous step.
        """
        figures = Figures()
        targets = self._targets(batch)
        run_I = targets.counted_I
        if self._objective.kl_coef == 0:  # a rollout with advantage 0 then has no gradient
            run_I = run_I & (targets.advantage_I != 0)
        mini_batches = self._cut(batch, run_I.numpy(), rng, figures)
        self._model.train()
        self._score_before(mini_batches, figures)
        for one in mini_batches:
            self._learn(one, targets, figures)
        return figures

    def _targets(self, batch: RolloutBatch) -> _Targets:
        group_I, reward_I = torch.from_numpy(batch.group_I), torch.from_numpy(batch.reward_I)
        counted_I = torch.ones_like(group_I, dtype=torch.bool)
        if self._objective.zero_variance == "drop":
            counted_I = varied(reward_I, group_I)
        return _Targets(
            group_I,
            self._by.advantages(reward_I, group_I, self._objective),
            torch.from_numpy(batch.length_I).float(),
            counted_I,
            None if batch.kl_scale_I is None else torch.from_numpy(batch.kl_scale_I),
        )

    # ------------------------------------------------------------------ mini-batches and their parts

    def _cut(
        self, batch: RolloutBatch, run_I: NDArray[np.bool_], rng: Random, figures: Figures
    ) -> list[_MiniBatch]:
        """Split the batch into mini-batches of whole groups, and each of these into parts."""
        started = time.perf_counter()
        groups = sorted(set(batch.group_I.tolist()))
        rng.shuffle(groups)
        count = self._config.mini_batches
        found = []
        for n in range(count):
            some = groups[n::count]
            chosen = np.flatnonzero(np.isin(batch.group_I, some) & run_I)
            parts = [self._part(batch.rows, js) for js in self._cut_parts(batch.rows, chosen)]
            found.append(_MiniBatch(some, parts, 0))
        figures.assembly_s += time.perf_counter() - started
        if self._ranks.sharded:
            counts = zip(*self._ranks.gather([len(one.parts) for one in found]), strict=True)
            found = [
                one._replace(spare=max(n) - len(one.parts))
                for one, n in zip(found, counts, strict=True)
            ]
        return found

    def _cut_parts(self, rows: Sequence[Row], chosen: NDArray[np.int64]) -> Iterator[list[int]]:
        """Group rollouts into parts of about ``part_tokens``, prefixes shared with the last row not counted.

        All packs of a part are padded to its longest, so rollouts with long rows get parts of their own: rows
        longer than a pack are in one part only if their lengths are within a factor of 2.
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

    def _part(self, rows: Sequence[Row], chosen: list[int]) -> _BatchPart:
        place = {i: j for j, i in enumerate(chosen)}
        some = [replace(row, rollout=place[row.rollout]) for row in rows if row.rollout in place]
        pack_tokens = self._config.pack_tokens
        batch = row_batch(some, self._model.device, pack_tokens=pack_tokens, packing=self._by.pack)
        return _BatchPart(chosen, batch)

    # ------------------------------------------------------------------ scores

    @torch.no_grad()
    def _score_before(self, mini_batches: Sequence[_MiniBatch], figures: Figures) -> None:
        """Score all parts with the weights before the first update and with pi_ref, if the loss needs it."""
        for batch in mini_batches:
            if self._objective.old == "recomputed":
                for part in batch.parts:
                    part.old_N = self._score(self._model, part).scores.logp_N
                self._stand_in(batch)
            if self._objective.kl_coef > 0:
                assert self._reference is not None
                for part in batch.parts:
                    scores = self._score(self._reference, part).scores
                    part.ref_N = scores.logp_N
                    figures.ref_kept_mass += float(scores.kept_mass_N.sum())
                    figures.ref_tokens += len(scores.kept_mass_N)

    def _score(
        self, model: DSAForCausalLM, part: _BatchPart, index_loss: IndexLoss | None = None
    ) -> BatchScores:
        o = self._objective
        return score_batch(
            model,
            part.rows,
            self._temperature,
            keep_mask=o.keep_sampling_mask,
            keep_routing=o.keep_routing,
            keep_topk=o.keep_topk,
            index_loss=index_loss,
        )

    @property
    def _index_loss(self) -> IndexLoss | None:
        return "sparse" if self._optimizer.trains_indexer else None

    def _stand_in(self, batch: _MiniBatch, index_loss: IndexLoss | None = None) -> None:
        """Run the extra passes of ``batch.spare``, so that every process takes part in gathering shards."""
        for _ in range(batch.spare):
            stand_in(self._model, index_loss)

    # ------------------------------------------------------------------ losses and the step

    def _learn(self, batch: _MiniBatch, targets: _Targets, figures: Figures) -> None:
        """One optimiser step."""
        mine_I = torch.from_numpy(np.isin(targets.group_I, batch.groups)) & targets.counted_I
        mine = [
            mine_I.sum().item(),
            targets.length_I[mine_I].sum().item(),
            sum(part.num_tokens for part in batch.parts),
        ]
        rollouts, tokens, run = self._ranks.sum(torch.tensor(mine).double()).tolist()
        if not run:
            return
        weight_I = token_weights(targets.length_I, rollouts, tokens, self._objective)
        self._optimizer.zero_grad()
        for part in batch.parts:
            total = self._part_loss(part, targets, weight_I, run, figures)
            require_finite(total, self.step)
            torch.autograd.backward(total)
        self._stand_in(batch, self._index_loss)
        self._ranks.add_gradients(self._optimizer.weights)
        norms = self._optimizer.step(self.step)
        figures.norms.append((norms.trunk, norms.indexer))
        if self._config.router_bias_rate:
            balance(self._model, self._config.router_bias_rate, self._ranks)
        self.step += 1

    def _part_loss(
        self,
        part: _BatchPart,
        targets: _Targets,
        weight_I: Tensor,
        run: float,
        figures: Figures,
    ) -> Tensor:
        """Compute a part's share of the mini-batch's loss, the indexer's included.

        ``run`` is the number of tokens that all processes run in the mini-batch: eq. 4 is a mean over them.
        """
        scored = self._score(self._model, part, self._index_loss)
        tokens = self._tokens(part, scored, targets, weight_I)
        if not figures.norms:  # no step yet: only rounding separates engine and trainer
            figures.divergences.append(divergence(tokens))
        masked_J = self._by.mask(tokens, self._objective)
        found = self._by.loss(tokens, self._objective, masked_J)
        total = found.loss
        if scored.index_loss is not None:
            share = part.num_tokens / run
            total = total + self._config.index_loss_weight * share * scored.index_loss
            figures.index_loss += share * float(scored.index_loss.detach())
        _note(figures, found, tokens, scored, part)
        return total

    def _tokens(
        self, part: _BatchPart, scored: BatchScores, targets: _Targets, weight_I: Tensor
    ) -> TokenBatch:
        chosen, device = part.rollout_J, self._model.device
        scale_I = targets.kl_scale_I
        return TokenBatch(
            logp_N=scored.scores.logp_N,
            old_N=part.rows.old_N if part.old_N is None else part.old_N,
            rollout_N=part.rows.rollout_N,
            advantage_I=targets.advantage_I[chosen].to(device),
            length_I=targets.length_I[chosen].to(device),
            weight_I=weight_I[chosen].to(device),
            ref_N=part.ref_N,
            sampler_N=part.rows.old_N,
            kl_scale_I=None if scale_I is None else scale_I[chosen].to(device),
        )


@torch.no_grad()
def _note(
    figures: Figures, found: Loss, tokens: TokenBatch, scored: BatchScores, part: _BatchPart
) -> None:
    scores = scored.scores
    negative_I = tokens.advantage_I < 0
    figures.loss += float(found.loss.detach())
    figures.log_ratios.append(found.ratio_N.log())
    figures.negatives += int(negative_I.sum())
    figures.masked += int((found.masked_I & negative_I).sum())
    figures.clipped += int(found.clipped_N.sum())
    figures.tokens += len(tokens.logp_N)
    figures.tokens_run += part.num_tokens
    figures.entropy += float(scores.entropy_N.sum())
    figures.kept_mass += float(scores.kept_mass_N.sum())
    figures.least_kept_mass = min(figures.least_kept_mass, float(scores.kept_mass_N.min()))
    if found.kl_N is not None:
        figures.kl += float(found.kl_N.sum())

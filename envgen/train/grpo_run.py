"""``envgen train grpo``: the GRPO training loop, which resumes bit for bit.

One step: draw tasks, play each in a group of rollouts with the current weights, score the rollouts, update
the policy, publish its weights to the engine. All randomness comes from (seed, step), and rollouts are played
in lockstep (``lockstep.py``), so a killed run repeats the same steps from its last checkpoint.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from envgen.core.errors import ConfigError
from envgen.core.seeding import derive
from envgen.environments.families import check_backend
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.store.dataset import Dataset
from envgen.train.checkpoints import Checkpoints, fitting_encoding
from envgen.train.config import TrainGRPOConfig
from envgen.train.figures import (
    Figures,
    RunTotals,
    StepFigures,
    TrainGRPOSummary,
    step_figures,
    warn_of_step,
)
from envgen.train.held_out import held_out
from envgen.train.metrics import Metrics
from envgen.train.optimize import DivergedError
from envgen.train.parallel import Ranks, ranks
from envgen.train.rewards import RewardTable, constant_reward_error, permuted_totals, total_rewards
from envgen.train.rollouts import Rollouts, Sampler
from envgen.train.sharding import shard, whole_model
from envgen.train.tasks import make_sampler, of_split, task_pool
from envgen.train.update import PAPER, Parts, RolloutBatch, Updater
from envgen.verifiers.holes import is_unsolvable

logger = logging.getLogger(__name__)
Progress = Callable[[int, int, str], None]
Watch = Callable[[int, Mapping[str, float | None]], None]
CONSTANT_STEPS = 8
"""A run ends with an error if no rewards differ within a group in these first steps."""
DRAWS = 3
"""Tries of a step whose rollouts all ended in errors."""


def train_grpo(
    config: TrainGRPOConfig,
    out: str | Path,
    *,
    parts: Parts = PAPER,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> TrainGRPOSummary:
    """Train a policy on a dataset's tasks; ``out/last`` is the model, ``out/metrics.jsonl`` the curves.

    Args:
        config: the run's settings.
        out: the run's folder.
        parts: your own advantages, mask, loss, packing, optimiser or model. The run's settings don't hold
            them: pass the same ones to resume.
        progress: called with (steps done, steps in all, a text) after each step.
        watch: called with each step's number, from 1, and its figures as in ``metrics.jsonl``.

    Raises:
        ConfigError: before any computation, if there are no tasks, the tokenizer has more tokens than the
            model, or pi_ref has another vocabulary; later, if every try of a step ends in errors only.
        ResumeError: if ``out`` holds a run with another config.
        RewardError: if a reward is not finite, or rewards never differ within a group in the first steps.
        DivergedError: if a loss or gradient explodes or is not finite; ``out/diverged.pt`` holds the batch.
    """
    out = Path(out)
    with ranks(config, partial(run_grpo, config, out, parts), out) as mine:
        return run_grpo(config, out, parts, mine, progress, watch)


def run_grpo(
    config: TrainGRPOConfig,
    out: Path,
    parts: Parts,
    ranks: Ranks,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> TrainGRPOSummary:
    """Run one process of ``train_grpo``."""
    run = _GRPORun(config, out, parts, ranks)
    try:
        return run.train(progress, watch)
    finally:
        run.sampler.close()


class _GRPORun:
    """One process of a run: its model, tasks, sampler and updater, and the loop over steps."""

    def __init__(self, config: TrainGRPOConfig, out: Path, parts: Parts, ranks: Ranks) -> None:
        self.config, self.out, self.ranks = config, out, ranks
        encoding = fitting_encoding(config.model)
        self.dataset = open_dataset(config.data, trust=config.trust)
        chosen = _chosen_tasks(config, self.dataset)
        pool = task_pool(self.dataset, chosen)
        self.tasks = make_sampler(config.tasks, pool, derive(config.seed, "tasks"))
        self.checkpoints = Checkpoints(out, config.model_dump(mode="json"), Path(config.model))
        resumed = self.checkpoints.resume()
        folder = resumed[0] if resumed else config.model
        self.model = _load(parts, folder, config.device).requires_grad_(True)
        if ranks.sharded:
            shard(self.model)
        self.optimizer = parts.optimizer(self.model, config.optimizer)
        self.updater = Updater(
            self.model,
            self.optimizer,
            config.objective,
            config.update,
            config.sampling.temperature,
            _reference(config, parts, self.model),
            ranks,
            parts,
        )
        self.first = 0
        if resumed:
            state = resumed[1]
            self.first, self.updater.step = state.step, state.updates
            self.optimizer.load(state.optimizer)
            self.tasks.load(json.loads(state.tasks))
        if config.sampling.groups < ranks.size:
            raise ConfigError(
                f"{config.sampling.groups} groups can't be shared by {ranks.size} processes",
                "raise sampling.groups, or lower processes",
            )
        name = Path(config.model).name
        self.sampler = Sampler(
            self.model, encoding, self.dataset, config.sampling, name, config.judge
        )
        self.judges = held_out(config.eval, self.dataset, chosen, self.sampler, config.seed)
        self._first_rewards: list[RewardTable] = []

    def train(self, progress: Progress | None, watch: Watch | None) -> TrainGRPOSummary:
        """Run the remaining steps."""
        config, totals = self.config, RunTotals()
        leads = self.ranks.rank == 0
        sampling = config.sampling
        with Metrics(self.out, self.first or -1) if leads else nullcontext() as metrics:
            if progress and leads:
                plays = f"plays {sampling.groups} tasks, each {sampling.group_size} times"
                progress(self.first, config.steps, plays)
            if not self.first and (judged := self._judge(0)) and metrics:
                metrics.write(0, judged)
            for step in range(self.first, config.steps):
                began = time.monotonic()
                drawn = self._draw(step)
                sampled = time.monotonic()
                figures = self._learn(drawn, step)
                seconds = (sampled - began, time.monotonic() - sampled)
                totals.add(figures, *seconds)
                due = (step + 1) % config.save_every == 0 or step + 1 == config.steps
                saved = self._state() if due else None
                judged = self._judge(step + 1)
                if metrics is None:
                    continue
                line = {**figures.line(*seconds, self.tasks.metrics()), **judged}
                metrics.write(step + 1, line)
                if watch:
                    watch(step + 1, line)
                warn_of_step(figures, step, config.objective.off_policy_delta)
                if saved:
                    self.checkpoints.save(step + 1, *saved)
                if progress:
                    progress(step + 1, config.steps, figures.in_words())
        return totals.summary(self.out, config.steps - self.first)

    # ------------------------------------------------------------------ what a step does

    def _draw(self, step: int) -> Rollouts:
        """Play this process's groups of the step; all processes draw the same task ids.

        Raises:
            ConfigError: if no process gets a group with two error-free rollouts in ``DRAWS`` tries.
        """
        self.sampler.refresh(f"step-{step}")
        self.model.eval()
        errors: list[str] = []
        for attempt in range(DRAWS):
            task_ids = self.tasks.draw(self.config.sampling.groups)
            mine = range(self.ranks.rank, len(task_ids), self.ranks.size)
            seed = derive(self.config.seed, "rollouts", step, *([attempt] if attempt else []))
            drawn = self.sampler.draw([task_ids[i] for i in mine], seed, mine)
            errors = sorted(set(drawn.errored))
            for text in errors:
                logger.warning("step %d: an episode was left out: %s", step + 1, text)
            faults = Counter(fault[:500] for one in drawn.trajectories for fault in one.faults)
            for text, count in faults.most_common(3):
                logger.warning(
                    "step %d: %d x a fault of the environment: %s", step + 1, count, text
                )
            if sum(self.ranks.gather(len(drawn.trajectories))):
                return drawn
        raise ConfigError(
            f"step {step + 1} was tried {DRAWS} times, and no group has two rollouts without an error"
            + (f": {errors[0]}" if errors else ""),
            "play the dataset with `envgen rollout` first",
        )

    def _learn(self, drawn: Rollouts, step: int) -> StepFigures:
        """Score the step's rollouts and learn from them."""
        rewards = self._rewards(drawn, step)
        update = self._update(drawn, rewards, step)
        figures = step_figures(self.ranks, drawn, rewards, update)
        first_steps = min(CONSTANT_STEPS, self.config.steps)
        if step < first_steps and self.first == 0:
            self._first_rewards.append(figures.rewards)
            if error := constant_reward_error(self._first_rewards, first_steps=first_steps):
                raise error
        return figures

    def _rewards(self, drawn: Rollouts, step: int) -> RewardTable:
        """Reward this process's rollouts; report those of all processes to the task sampler."""
        table = total_rewards(
            drawn.trajectories,
            drawn.group_I,
            drawn.lengths_I,
            self.config.rewards,
            domains=self._domains(drawn),
        )
        passed: dict[str, list[bool]] = {}
        for one, ok in zip(drawn.trajectories, table.passed_I, strict=True):
            passed.setdefault(one.task_id, []).append(bool(ok))
        for own in self.ranks.gather(passed):
            for task_id, oks in own.items():
                self.tasks.observe(task_id, sum(oks), len(oks))
        if self.config.permute_rewards:
            seed = derive(self.config.seed, "permuted", step, self.ranks.rank)
            return replace(table, total_I=permuted_totals(table, seed))
        return table

    def _update(self, drawn: Rollouts, rewards: RewardTable, step: int) -> Figures:
        batch = RolloutBatch(
            rows=drawn.rows,
            group_I=drawn.group_I,
            reward_I=rewards.total_I,
            length_I=drawn.lengths_I,
            kl_scale_I=self._kl_scales(drawn),
        )
        rng = Random(derive(self.config.seed, "mini-batches", step))
        try:
            figures = self.updater.update(batch, rng)
        except DivergedError:
            spoiled = {
                "step": step,
                "ids": [torch.from_numpy(row.ids) for row in drawn.rows],
                "rollout": [row.rollout for row in drawn.rows],
                "reward": torch.from_numpy(rewards.total_I),
            }
            torch.save(spoiled, self.out / "diverged.pt")
            raise
        figures.assembly_s += drawn.assembly_s
        return figures

    def _kl_scales(self, drawn: Rollouts) -> NDArray[np.float32] | None:
        """Return each rollout's factor of ``kl_coef``; None if no domain has a KL coefficient of its own."""
        beta = self.config.objective.kl_coef
        own = [self.config.rewards.kl_coef_of(domain) for domain in self._domains(drawn)]
        if not beta or all(one is None for one in own):
            return None
        return np.array([1.0 if one is None else one / beta for one in own], np.float32)

    def _domains(self, drawn: Rollouts) -> list[str]:
        facts = [self.dataset.facts(one.task_id) for one in drawn.trajectories]
        return [self.dataset.environments[one.environment_id].category for one in facts]

    # ------------------------------------------------------------------ what is done between steps

    def _judge(self, step: int) -> dict[str, float]:
        """Evaluate on the held-out tasks after ``step`` steps; return {} if no evaluation is due."""
        if not self.judges.due(step, self.config.steps):
            return {}
        self.model.eval()
        self.sampler.refresh(f"step-{step}")
        return self.judges.judge(self.sampler, self.ranks)

    def _state(self) -> tuple[DSAForCausalLM, dict[str, Any]]:
        """Return the whole model and the trainer's state; with a sharded model all processes must call it."""
        state = {
            "optimizer": self.optimizer.state(),
            "updates": self.updater.step,
            "tasks": json.dumps(self.tasks.state()),
        }
        return whole_model(self.model), state


def _chosen_tasks(config: TrainGRPOConfig, dataset: Dataset) -> list[str]:
    asked = dataset.tasks if config.task_ids is None else config.task_ids
    unknown = [name for name in asked if name not in dataset.tasks]
    if unknown:
        raise ConfigError(f"{config.data!r} has no task {unknown[0]!r}", "see `envgen list`")
    chosen = of_split(dataset, asked, config.split)
    if all(is_unsolvable(dataset.tasks[name]) for name in chosen):
        raise ConfigError(
            f"no task in {config.data!r} can be solved: all are unsolvable canaries",
            "train on the dataset that the canaries were made from",
        )
    check_backend(dataset, chosen, config.sampling.backend)
    return chosen


def _load(parts: Parts, folder: str | Path, device: str) -> DSAForCausalLM:
    return parts.model.from_pretrained(folder, dtype=torch.float32, device=device)


def _reference(
    config: TrainGRPOConfig, parts: Parts, model: DSAForCausalLM
) -> DSAForCausalLM | None:
    """Load pi_ref, frozen; None if the objective has no KL term."""
    if config.objective.kl_coef == 0:
        return None
    reference = _load(parts, config.reference or config.model, config.device)
    if reference.config.vocab_size != model.config.vocab_size:
        raise ConfigError(
            f"the reference {config.reference!r} has {reference.config.vocab_size} tokens, the model "
            f"{model.config.vocab_size}",
            "choose a reference with the same tokenizer",
        )
    return reference.eval().requires_grad_(False)

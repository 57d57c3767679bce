"""``envgen train grpo``: play groups of episodes, learn from them, again. Resumes to the bit.

One step: draw tasks, play each in a group of rollouts with the current weights, score them, update, publish
the weights to the engine. Everything that is random is drawn from (seed, step), and rollouts are played in
lockstep (``lockstep.py``), so a run that was killed goes on from its last checkpoint with the same steps.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, JsonValue, model_validator

from envgen.core.errors import ConfigError
from envgen.core.limits import Label, Line, Whole
from envgen.core.seeding import derive
from envgen.environments.families import check_backend
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import Encoding
from envgen.store.dataset import Dataset
from envgen.train.checkpoints import Checkpoints
from envgen.train.figures import Figures
from envgen.train.fit import fitting_encoding
from envgen.train.grpo import GRPOConfig
from envgen.train.grpo_told import Spent, TrainGRPOSummary, everywhere, in_words, line_of, warn
from envgen.train.held_out import HeldOut, HeldOutConfig, held_out
from envgen.train.metrics import Metrics
from envgen.train.optimize import DivergedError, Optimizer, OptimizerConfig
from envgen.train.parallel import ParallelConfig, Ranks, ranks
from envgen.train.rewards import (
    RewardConfig,
    RewardTable,
    constant_reward_error,
    permuted_totals,
    total_rewards,
)
from envgen.train.rollouts import Rollouts, Sampler, SamplingConfig
from envgen.train.sharding import shard, whole_model
from envgen.train.tasks import (
    TaskSampler,
    TaskSamplerConfig,
    make_sampler,
    of_split,
    task_pool,
)
from envgen.train.update import Learnt, UpdateConfig, Updater
from envgen.verifiers.holes import is_unsolvable

logger = logging.getLogger(__name__)
Progress = Callable[[int, int, str], None]
Watch = Callable[[int, Mapping[str, float | None]], None]


class TrainGRPOConfig(ParallelConfig):
    """What is learnt, and how."""

    data: Label
    """The dataset that is played."""
    model: Line
    """Model folder to start from."""
    split: Literal["train", "validation", "test"] | None = "train"
    """Play tasks of this split only; None: every task."""
    task_ids: tuple[Label, ...] | None = None
    """Play these only; None: all of the split, variants included."""
    steps: int = Field(default=100, ge=1)
    """Batches of rollouts."""
    sampling: SamplingConfig = SamplingConfig()
    tasks: TaskSamplerConfig = TaskSamplerConfig()
    rewards: RewardConfig = RewardConfig()
    objective: GRPOConfig = GRPOConfig()
    update: UpdateConfig = UpdateConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        lr=3e-4, indexer_lr=1e-4, warmup_steps=5, weight_decay=0.0
    )
    reference: Label | None = None
    """Model folder of pi_ref; None: ``model``."""
    permute_rewards: bool = False
    """A control: rewards are shuffled within each group, so there is nothing to learn."""
    eval: HeldOutConfig = HeldOutConfig()
    save_every: int = Field(default=25, ge=1)
    """Steps between checkpoints."""
    seed: Whole = 0
    trust: bool = False
    """The dataset's code was written or read by the user: it may run without isolation."""

    @model_validator(mode="after")
    def _reference_repeats_key_sets(self) -> Self:
        if (
            self.objective.kl_coef > 0
            and self.objective.keep_topk
            and not self.sampling.capture_topk
        ):
            # Otherwise pi_ref would choose its own, and the KL were not 0 where the two agree.
            sampling = self.sampling.model_copy(update={"capture_topk": True})
            object.__setattr__(self, "sampling", sampling)
        return self


class _Setup(NamedTuple):
    """What a run works with."""

    model: DSAForCausalLM
    encoding: Encoding
    dataset: Dataset
    chosen: list[str]
    """Tasks that are trained on."""
    tasks: TaskSampler
    updater: Updater
    optimizer: Optimizer
    checkpoints: Checkpoints
    ranks: Ranks
    first: int


def train_grpo(
    config: TrainGRPOConfig,
    out: str | Path,
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> TrainGRPOSummary:
    """Train a policy on a dataset's tasks; ``out/last`` is the model, ``out/metrics.jsonl`` the curves.

    Args:
        config: what, and how.
        out: the run's folder.
        progress: called with (done, total, what) after each step.
        watch: called with each step's number, from 1, and its figures as in ``metrics.jsonl``.

    Raises:
        ConfigError: before anything is computed: no tasks, a tokenizer that does not fit, a reference of
            another vocabulary. Later, if errors spoil all rollouts of a step, however often they are drawn.
        ResumeError: if ``out`` holds a run with another config.
        RewardError: if a reward is no number, or is the same for all rollouts of the first steps.
        DivergedError: if a loss or gradient explodes or is not finite; ``out/diverged.pt`` holds the batch.
    """
    out = Path(out)
    with ranks(config, "grpo", out) as mine:
        return play_and_learn(config, out, mine, progress, watch)


def play_and_learn(
    config: TrainGRPOConfig,
    out: Path,
    ranks: Ranks,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> TrainGRPOSummary:
    """One process's part of ``train_grpo``."""
    setup = _set_up(config, out, ranks)
    sampler = Sampler(
        setup.model, setup.encoding, setup.dataset, config.sampling, Path(config.model).name
    )
    spent = Spent()
    history: list[RewardTable] = []
    first_steps = min(CONSTANT_STEPS, config.steps)
    try:
        judges = held_out(config.eval, setup.dataset, setup.chosen, sampler, config.seed)
        with Metrics(out, setup.first or -1) if ranks.rank == 0 else nullcontext() as metrics:
            if progress and ranks.rank == 0:
                progress(setup.first, config.steps, _to_play(config.sampling))
            if not setup.first and (judged := _judged(setup, sampler, judges, 0, config.steps)):
                if metrics is not None:
                    metrics.write(0, judged)
            for step in range(setup.first, config.steps):
                sampler.refresh(f"step-{step}")
                begun = time.monotonic()
                drawn = _draw(setup, sampler, config, step)
                sampled = time.monotonic()
                table = _rewards(setup, drawn, config, step)
                figures = _learn(setup, drawn, table, config, step, out)
                told = everywhere(setup.ranks, drawn, table, figures)
                if step < first_steps and setup.first == 0:
                    history.append(told.table)
                    if error := constant_reward_error(history, first_steps=first_steps):
                        raise error
                spent.note(told, sampled - begun, time.monotonic() - sampled)
                due = (step + 1) % config.save_every == 0 or step + 1 == config.steps
                saved = _saved(setup) if due else None
                judged = _judged(setup, sampler, judges, step + 1, config.steps)
                if metrics is None:
                    continue
                line = {**line_of(told, spent, setup.tasks.metrics()), **judged}
                metrics.write(step + 1, line)
                if watch:
                    watch(step + 1, line)
                warn(told, step, config.objective.off_policy_delta)
                if saved:
                    setup.checkpoints.save(step + 1, *saved)
                if progress:
                    progress(step + 1, config.steps, in_words(told))
    finally:
        sampler.close()
    return spent.summary(out, config.steps - setup.first)


def _judged(
    setup: _Setup, sampler: Sampler, judges: HeldOut, step: int, steps: int
) -> dict[str, float]:
    """What the held-out tasks say after ``step`` steps; nothing where they are not due."""
    if not judges.due(step, steps):
        return {}
    setup.model.eval()
    sampler.refresh(f"step-{step}")
    return judges.judge(sampler, setup.ranks)


CONSTANT_STEPS = 8
"""A run whose first steps, or all, show no difference between rewards ends with an error."""


def _to_play(sampling: SamplingConfig) -> str:
    """What the first step begins with, for a progress bar."""
    return f"plays {sampling.groups} tasks, each {sampling.group_size} times"


def _set_up(config: TrainGRPOConfig, out: Path, ranks: Ranks) -> _Setup:
    encoding = fitting_encoding(config.model)
    dataset = open_dataset(config.data, trust=config.trust)
    asked = dataset.tasks if config.task_ids is None else config.task_ids
    unknown = [name for name in asked if name not in dataset.tasks]
    if unknown:
        raise ConfigError(f"no task {unknown[0]!r} in {config.data!r}", "see `envgen list`")
    chosen = of_split(dataset, asked, config.split)
    if all(is_unsolvable(dataset.tasks[name]) for name in chosen):
        raise ConfigError(
            f"no task in {config.data!r} can be solved: all are unsolvable canaries",
            "train on the dataset that they were made of",
        )
    check_backend(dataset, chosen, config.sampling.backend)
    tasks = make_sampler(config.tasks, task_pool(dataset, chosen), derive(config.seed, "tasks"))
    checkpoints = Checkpoints(out, config.model_dump(mode="json"), Path(config.model))
    resumed = checkpoints.resume()
    model = _load(resumed[0] if resumed else config.model, config.device)
    model.requires_grad_(True)
    if ranks.sharded:
        shard(model)
    optimizer = Optimizer(model, config.optimizer)
    updater = Updater(
        model,
        optimizer,
        config.objective,
        config.update,
        config.sampling.temperature,
        _reference(config, model) if config.objective.kl_coef > 0 else None,
        ranks,
    )
    first = 0
    if resumed:
        state = resumed[1]
        first, updater.step = state.step, state.updates
        optimizer.load(state.optimizer)
        tasks.load(json.loads(state.tasks))
    if config.sampling.groups < ranks.size:
        raise ConfigError(
            f"{config.sampling.groups} groups can't be shared by {ranks.size} processes",
            "raise sampling.groups, or lower processes",
        )
    return _Setup(
        model, encoding, dataset, chosen, tasks, updater, optimizer, checkpoints, ranks, first
    )


def _load(folder: str | Path, device: str) -> DSAForCausalLM:
    return DSAForCausalLM.from_pretrained(folder, dtype=torch.float32, device=device)


def _reference(config: TrainGRPOConfig, model: DSAForCausalLM) -> DSAForCausalLM:
    reference = _load(config.reference or config.model, config.device)
    if reference.config.vocab_size != model.config.vocab_size:
        raise ConfigError(
            f"the reference {config.reference!r} has {reference.config.vocab_size} tokens, the model "
            f"{model.config.vocab_size}",
            "choose a reference with the same tokenizer",
        )
    return reference.eval().requires_grad_(False)


def _saved(setup: _Setup) -> tuple[DSAForCausalLM, dict[str, object]]:
    """The whole model, and what resuming needs beside; of use in the process that leads."""
    tasks: dict[str, JsonValue] = setup.tasks.state()
    state = {
        "optimizer": setup.optimizer.state(),
        "updates": setup.updater.step,
        "tasks": json.dumps(tasks),
    }
    return whole_model(setup.model), state


DRAWS = 3
"""A step whose rollouts were all spoiled by errors is drawn again, so many times in all."""


def _draw(setup: _Setup, sampler: Sampler, config: TrainGRPOConfig, step: int) -> Rollouts:
    """This process's groups of the step; all processes draw the same tasks.

    Raises:
        ConfigError: if errors spoil all that is drawn, again and again.
    """
    setup.model.eval()
    told: list[str] = []
    for attempt in range(DRAWS):
        task_ids = setup.tasks.draw(config.sampling.groups)
        mine = range(setup.ranks.rank, len(task_ids), setup.ranks.size)
        seed = derive(config.seed, "rollouts", step, *([attempt] if attempt else []))
        drawn = sampler.draw([task_ids[i] for i in mine], seed, mine)
        told = sorted(set(drawn.errored))
        for text in told:
            logger.warning("step %d: an episode was left out: %s", step + 1, text)
        faults = Counter(fault[:500] for one in drawn.trajectories for fault in one.faults)
        for text, count in faults.most_common(3):
            logger.warning("step %d: %d x a fault of the environment: %s", step + 1, count, text)
        if sum(setup.ranks.gather(len(drawn.trajectories))):
            return drawn
    raise ConfigError(
        f"step {step + 1} was drawn {DRAWS} times, and no group has two rollouts without an error"
        + (f": {told[0]}" if told else ""),
        "play the dataset with `envgen rollout` first",
    )


def _domains(setup: _Setup, drawn: Rollouts) -> list[str]:
    dataset = setup.dataset
    return [
        dataset.environments[dataset.facts(one.task_id).environment_id].category
        for one in drawn.trajectories
    ]


def _rewards(setup: _Setup, drawn: Rollouts, config: TrainGRPOConfig, step: int) -> RewardTable:
    """Of this process's rollouts; the task sampler is told of all."""
    table = total_rewards(
        drawn.trajectories,
        drawn.group_I,
        drawn.lengths_I,
        config.rewards,
        domains=_domains(setup, drawn),
    )
    passed: dict[str, list[bool]] = {}
    for one, ok in zip(drawn.trajectories, table.passed_I, strict=True):
        passed.setdefault(one.task_id, []).append(bool(ok))
    for own in setup.ranks.gather(passed):
        for task_id, oks in own.items():
            setup.tasks.observe(task_id, sum(oks), len(oks))
    if config.permute_rewards:
        seed = derive(config.seed, "permuted", step, setup.ranks.rank)
        return replace(table, total_I=permuted_totals(table, seed))
    return table


def _learn(
    setup: _Setup,
    drawn: Rollouts,
    table: RewardTable,
    config: TrainGRPOConfig,
    step: int,
    out: Path,
) -> Figures:
    learnt = Learnt(
        rows=drawn.rows,
        group_I=drawn.group_I,
        reward_I=table.total_I,
        length_I=drawn.lengths_I,
        kl_scale_I=_kl_scales(setup, drawn, config),
    )
    try:
        figures = setup.updater.update(learnt, Random(derive(config.seed, "mini-batches", step)))
        figures.assembly_s += drawn.assembly_s
        return figures
    except DivergedError:
        torch.save(
            {
                "step": step,
                "ids": [torch.from_numpy(row.ids) for row in drawn.rows],
                "rollout": [row.rollout for row in drawn.rows],
                "reward": torch.from_numpy(table.total_I),
            },
            out / "diverged.pt",
        )
        raise


def _kl_scales(
    setup: _Setup, drawn: Rollouts, config: TrainGRPOConfig
) -> NDArray[np.float32] | None:
    """Each rollout's KL strength relative to the objective's, where domains have their own."""
    beta = config.objective.kl_coef
    own = [config.rewards.kl_coef_of(domain) for domain in _domains(setup, drawn)]
    if not beta or all(one is None for one in own):
        return None
    return np.array([1.0 if one is None else one / beta for one in own], np.float32)

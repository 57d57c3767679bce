"""``envgen train grpo``: play groups of episodes, learn from them, again. Resumes to the bit.

One step: draw tasks, play each in a group of rollouts with the current weights, score them, update, publish
the weights to the engine. Everything that is random is drawn from (seed, step), and rollouts are played in
lockstep (``lockstep.py``), so a run that was killed goes on from its last checkpoint with the same steps.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, JsonValue, model_validator

from envgen.core.errors import ConfigError
from envgen.core.seeding import derive
from envgen.core.types import Record
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import Encoding, load_encoding
from envgen.store.dataset import Dataset
from envgen.train.checkpoints import Checkpoints
from envgen.train.grpo import GRPOConfig, varied
from envgen.train.metrics import Metrics
from envgen.train.optimize import DivergedError, Optimizer, OptimizerConfig
from envgen.train.rewards import RewardConfig, RewardTable, constant_reward_error, total_rewards
from envgen.train.rollouts import Rollouts, Sampler, SamplingConfig
from envgen.train.tasks import TaskSampler, TaskSamplerConfig, make_sampler, task_pool
from envgen.train.update import (
    KEPT_MASS_ALARM,
    MASKED_ALARM,
    Figures,
    Learnt,
    UpdateConfig,
    Updater,
)
from envgen.train.well_formed import form_share

logger = logging.getLogger(__name__)
Progress = Callable[[int, int, str], None]


class TrainGRPOConfig(Record):
    """What is learnt, and how."""

    data: str
    """The dataset that is played."""
    model: str
    """Model folder to start from."""
    split: Literal["train", "validation", "test"] | None = "train"
    """Play tasks of this split only; None: of all."""
    task_ids: tuple[str, ...] | None = None
    """Play these only; None: all of the split, variants included."""
    steps: int = Field(default=100, ge=1)
    sampling: SamplingConfig = SamplingConfig()
    tasks: TaskSamplerConfig = TaskSamplerConfig()
    rewards: RewardConfig = RewardConfig()
    objective: GRPOConfig = GRPOConfig()
    update: UpdateConfig = UpdateConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        lr=3e-4, indexer_lr=1e-4, warmup_steps=5, weight_decay=0.0
    )
    reference: str | None = None
    """Model folder of pi_ref; None: ``model``."""
    save_every: int = Field(default=25, ge=1)
    seed: int = 0
    device: str = "cpu"

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


class TrainGRPOSummary(Record):
    """What came out."""

    out: str
    steps: int
    rollouts: int
    """In this call, like the seconds."""
    tokens: int
    """Model tokens."""
    pass_rate: float | None
    """Of the last step; None if there was none to do."""
    seconds: float
    sampling_seconds: float
    update_seconds: float


class _Setup(NamedTuple):
    """What a run works with."""

    model: DSAForCausalLM
    encoding: Encoding
    dataset: Dataset
    tasks: TaskSampler
    updater: Updater
    optimizer: Optimizer
    checkpoints: Checkpoints
    first: int


def train_grpo(
    config: TrainGRPOConfig, out: str | Path, *, progress: Progress | None = None
) -> TrainGRPOSummary:
    """Train a policy on a dataset's tasks; ``out/last`` is the model, ``out/metrics.jsonl`` the curves.

    Raises:
        ConfigError: before anything is computed: no tasks, a tokenizer that does not fit, a reference of
            another vocabulary.
        ResumeError: if ``out`` holds a run with another config.
        RewardError: if a reward is no number, or is the same for all rollouts of the first steps.
        DivergedError: if a loss stops being finite; ``out/diverged.pt`` holds the batch.
    """
    out = Path(out)
    setup = _set_up(config, out)
    sampler = Sampler(
        setup.model, setup.encoding, setup.dataset, config.sampling, Path(config.model).name
    )
    started = time.monotonic()
    rollouts = tokens = 0
    sampling_s = update_s = 0.0
    pass_rate = None
    history: list[RewardTable] = []
    try:
        with Metrics(out, setup.first) as metrics:
            for step in range(setup.first, config.steps):
                sampler.refresh(f"step-{step}")
                begun = time.monotonic()
                drawn = _draw(setup, sampler, config, step)
                sampled = time.monotonic()
                table = _rewards(setup, drawn, config)
                if step < CONSTANT_STEPS and setup.first == 0:
                    history.append(table)
                    if error := constant_reward_error(history, first_steps=CONSTANT_STEPS):
                        raise error
                figures = _learn(setup, drawn, table, config, step, out)
                done = time.monotonic()
                sampling_s, update_s = sampling_s + sampled - begun, update_s + done - sampled
                rollouts += len(drawn.trajectories)
                tokens += int(drawn.lengths_I.sum())
                pass_rate = float(table.passed_I.mean())
                metrics.write(
                    step + 1,
                    {
                        **_described(drawn, table),
                        **setup.tasks.metrics(),
                        **figures.named(),
                        "policy/delta": setup.updater.delta,
                        "time/sampling_s": sampled - begun,
                        "time/update_s": done - sampled,
                        "time/assembly_s": figures.assembly_s,
                    },
                )
                _warn(figures, step)
                if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
                    setup.checkpoints.save(step + 1, setup.model, _state(setup))
                if progress:
                    progress(step + 1, config.steps, _line(table, drawn, figures))
    finally:
        sampler.close()
    return TrainGRPOSummary(
        out=str(out),
        steps=config.steps - setup.first,
        rollouts=rollouts,
        tokens=tokens,
        pass_rate=pass_rate,
        seconds=time.monotonic() - started,
        sampling_seconds=sampling_s,
        update_seconds=update_s,
    )


CONSTANT_STEPS = 8
"""A run whose first steps show no difference between rewards ends."""


def _set_up(config: TrainGRPOConfig, out: Path) -> _Setup:
    encoding = load_encoding(config.model)
    dataset = open_dataset(config.data)
    asked = dataset.tasks if config.task_ids is None else config.task_ids
    unknown = [name for name in asked if name not in dataset.tasks]
    if unknown:
        raise ConfigError(f"no task {unknown[0]!r} in {config.data!r}", "see `envgen list`")
    chosen = [
        name for name in asked if config.split is None or dataset.tasks[name].split == config.split
    ]
    if not chosen:
        raise ConfigError(
            f"{config.data!r} has no task in split {config.split!r}",
            "name another split, or none; see `envgen list`",
        )
    tasks = make_sampler(config.tasks, task_pool(dataset, chosen), derive(config.seed, "tasks"))
    checkpoints = Checkpoints(out, config.model_dump(mode="json"), Path(config.model))
    resumed = checkpoints.resume()
    model = _load(resumed[0] if resumed else config.model, config.device)
    if encoding.tokenizer.vocab_size > model.config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {encoding.tokenizer.vocab_size} tokens, the model {model.config.vocab_size}",
            "they are not of one model; make one with `envgen model init`",
        )
    model.requires_grad_(True)
    optimizer = Optimizer(model, config.optimizer)
    updater = Updater(
        model,
        optimizer,
        config.objective,
        config.update,
        config.sampling.temperature,
        _reference(config, model) if config.objective.kl_coef > 0 else None,
    )
    first = 0
    if resumed:
        state = resumed[1]
        first, updater.step, updater.delta = state["step"], state["updates"], state["delta"]
        optimizer.load(state["optimizer"])
        tasks.load(json.loads(state["tasks"]))
    return _Setup(model, encoding, dataset, tasks, updater, optimizer, checkpoints, first)


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


def _state(setup: _Setup) -> dict[str, object]:
    """What resuming needs beside the weights."""
    tasks: dict[str, JsonValue] = setup.tasks.state()
    return {
        "optimizer": setup.optimizer.state(),
        "updates": setup.updater.step,
        "delta": setup.updater.delta,
        "tasks": json.dumps(tasks),
    }


def _draw(setup: _Setup, sampler: Sampler, config: TrainGRPOConfig, step: int) -> Rollouts:
    setup.model.eval()
    task_ids = setup.tasks.draw(config.sampling.groups)
    drawn = sampler.draw(task_ids, derive(config.seed, "rollouts", step))
    for text in sorted(set(drawn.errored)):
        logger.warning("step %d: an episode was left out: %s", step + 1, text)
    return drawn


def _domains(setup: _Setup, drawn: Rollouts) -> list[str]:
    dataset = setup.dataset
    return [
        dataset.environments[dataset.tasks[one.task_id].environment_id].category
        for one in drawn.trajectories
    ]


def _rewards(setup: _Setup, drawn: Rollouts, config: TrainGRPOConfig) -> RewardTable:
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
    for task_id, oks in passed.items():
        setup.tasks.observe(task_id, sum(oks), len(oks))
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
        return setup.updater.update(learnt, Random(derive(config.seed, "mini-batches", step)))
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


def _described(drawn: Rollouts, table: RewardTable) -> dict[str, float]:
    lengths = drawn.lengths_I
    group_I, reward_I = torch.from_numpy(drawn.group_I), torch.from_numpy(table.total_I)
    turns = [len(one.turns) for one in drawn.trajectories]
    return {
        **table.metrics(),
        "groups/zero_variance": float((~varied(reward_I, group_I)).float().mean()),
        "rollout/model_tokens": float(lengths.mean()),
        "rollout/turns": float(np.mean(turns)),
        "rollout/well_formed": float(np.mean([form_share(one) for one in drawn.trajectories])),
        "rollout/errored": float(len(drawn.errored)),
    }


def _line(table: RewardTable, drawn: Rollouts, figures: Figures) -> str:
    """A step in a few words."""
    named = figures.named()
    entropy = f", entropy {named['policy/entropy']:.3f}" if "policy/entropy" in named else ""
    return f"pass {table.passed_I.mean():.3f}, {drawn.lengths_I.mean():.0f} tokens{entropy}"


def _warn(figures: Figures, step: int) -> None:
    named = figures.named()
    if named.get("policy/masked_negatives", 0.0) > MASKED_ALARM:
        logger.warning(
            "step %d: the off-policy mask drops %.0f %% of the rollouts with negative advantage; raise "
            "objective.off_policy_delta or floor_multiple, or make fewer mini-batches",
            step + 1,
            100 * named["policy/masked_negatives"],
        )
    if named.get("policy/kept_mass", 1.0) < KEPT_MASS_ALARM:
        logger.warning(
            "step %d: what the sampler kept has %.2f of the policy's probability; loosen top_p or top_k",
            step + 1,
            named["policy/kept_mass"],
        )

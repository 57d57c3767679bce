"""The reward of a rollout: its verifier's value, minus penalties for length, language and form.

    R_i = w_outcome v_i - s_i (w_length L_i + w_language (1 - C_i) + w_format (1 - F_i))

v is the verifier's value, L the share of the length penalty (``length_shares``), C the share of the model's
prose in the prompt's language (``language.py``; 1 if there is too little to tell), F the share of well-formed
calls and ending (``well_formed.py``): all in 0 .. 1. s is 1 for a failing rollout; for a passing one it is
the distance from the best failing to the worst passing value of its group (1 if the verifier says 0 or 1).
The three penalty weights add up to less than the outcome's weight. So a failing rollout outranks a passing
one of its group only if the verifier's own values do.
V3.2 section 3: "outcome reward, length penalty and language consistency reward"; weights and KL strength
differ between domains, which are trained in one stage.

Shapes: I rollouts, in any number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from envgen.core.errors import ConfigError, EnvgenError
from envgen.core.limits import Label
from envgen.core.seeding import derive
from envgen.core.types import Record, Trajectory
from envgen.train.language import language_consistency, prompt_language
from envgen.train.well_formed import form_share

Floats = NDArray[np.float32]
Wide = NDArray[np.float64]
LengthForm = Literal["ranked", "additive", "overlong", "off"]


class RewardError(EnvgenError):
    """Raised when a reward is not finite, or when rewards never differ within a group."""


class Weights(NamedTuple):
    """The weights of a reward's parts."""

    outcome: float
    length: float
    language: float
    format: float


class DomainRewards(Record):
    """A domain's own weights; None: as in ``RewardConfig``."""

    outcome: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    length: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    language: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    format: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    kl_coef: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """beta of the GRPO objective. The paper: mathematics does well with little or none."""


class RewardConfig(Record):
    """Parts of the reward and their weights; 0 turns a part off."""

    outcome: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Weight of the verifier's value."""
    length: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Weight of the length penalty; by default it ranks passing rollouts of a group only."""
    language: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Weight of the penalty for prose that is not in the prompt's language."""
    format: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the penalty for malformed calls and endings; off, because the paper has no such part."""
    length_form: LengthForm = "ranked"
    """Form of the length penalty (``length_shares``); additive and overlong reach failing rollouts, too."""
    length_limit: int = Field(default=8_192, ge=1)
    """Model tokens at which additive and overlong reach the full penalty."""
    length_buffer: int = Field(default=2_048, ge=1)
    """Model tokens before the limit over which overlong rises from 0."""
    domains: dict[Label, DomainRewards] = Field(default_factory=dict)
    """Domain (the category of an environment) -> its own weights."""

    @model_validator(mode="after")
    def _outcome_rules(self) -> Self:
        for domain in (None, *self.domains):
            weights = self.weights_of(domain)
            if weights.length + weights.language + weights.format >= weights.outcome:
                where = "" if domain is None else f" in domain {domain!r}"
                raise ValueError(
                    f"length {weights.length:g} + language {weights.language:g} + format "
                    f"{weights.format:g} reach the outcome's {weights.outcome:g}{where}: a failing "
                    "rollout could outrank a passing one"
                )
        if self.length_form == "overlong" and self.length_buffer > self.length_limit:
            raise ValueError(
                f"length_buffer {self.length_buffer} is above length_limit {self.length_limit}"
            )
        return self

    def weights_of(self, domain: str | None) -> Weights:
        """The weights in a domain."""
        own = self.domains.get(domain or "", DomainRewards())
        return Weights(
            *(
                value if (value := getattr(own, name)) is not None else getattr(self, name)
                for name in Weights._fields
            )
        )

    def kl_coef_of(self, domain: str | None) -> float | None:
        """Return the KL coefficient of a domain; None: that of the objective (``GRPOConfig.kl_coef``)."""
        return self.domains[domain].kl_coef if domain in self.domains else None


@dataclass(frozen=True, eq=False)
class RewardTable:
    """Rewards of a batch, part by part; the parts add up to the total."""

    outcome_I: Floats
    length_I: Floats
    """0 or below."""
    language_I: Floats
    """0 or below."""
    format_I: Floats
    """0 or below."""
    total_I: Floats
    group_I: NDArray[np.int64]
    passed_I: NDArray[np.bool_]

    def columns(self) -> dict[str, Floats]:
        """Every part and the total, by name."""
        return {
            "outcome": self.outcome_I,
            "length": self.length_I,
            "language": self.language_I,
            "format": self.format_I,
            "total": self.total_I,
        }

    def metrics(self) -> dict[str, float]:
        """Means, named ``reward/...``."""
        means = {f"reward/{name}": float(part.mean()) for name, part in self.columns().items()}
        return {**means, "reward/pass_rate": float(self.passed_I.mean())}


def joined(tables: Sequence[RewardTable]) -> RewardTable:
    """Concatenate the rewards of several batches; groups are renumbered."""
    columns = {
        column.name: np.concatenate([getattr(table, column.name) for table in tables])
        for column in fields(RewardTable)
    }
    sizes = [int(table.group_I.max(initial=-1)) + 1 for table in tables]
    offsets = np.cumsum([0, *sizes[:-1]])
    shifted = [table.group_I + offset for table, offset in zip(tables, offsets, strict=True)]
    return RewardTable(**{**columns, "group_I": np.concatenate(shifted)})


def total_rewards(
    trajectories: Sequence[Trajectory],
    group_I: NDArray[np.int64],
    lengths_I: NDArray[np.int64],
    config: RewardConfig,
    *,
    domains: Sequence[str] | None = None,
) -> RewardTable:
    """Compute the rewards of a batch of rollouts.

    Args:
        trajectories: I scored rollouts.
        group_I: int64 [I], number of each one's group.
        lengths_I: int64 [I], model tokens of each, over all its turns.
        config: parts and weights.
        domains: [I], each one's domain; needed if ``config.domains`` has any.

    Raises:
        ConfigError: if a rollout was not scored, or domains are needed and not given.
        RewardError: if a part is not finite; the message names task and part.
        ValueError: if the lengths of the arguments differ.
    """
    count = len(trajectories)
    if domains is None and config.domains:
        raise ConfigError(
            "rewards.domains is set, but the domains of the rollouts are missing",
            "give domains, one for each rollout",
        )
    if not count == len(group_I) == len(lengths_I) == len(domains or trajectories):
        raise ValueError(f"{count} trajectories, {len(group_I)} groups, {len(lengths_I)} lengths")
    everywhere: list[str | None] = [None] * count
    weights = [config.weights_of(domain) for domain in domains or everywhere]
    weights_IW = np.array(weights, np.float64).reshape(count, len(Weights._fields))
    value_I = np.array([_value(one) for one in trajectories], np.float64)
    _require_finite(value_I[:, None], trajectories)
    passed_I = np.array([_passed(one) for one in trajectories], bool)
    length_I = length_shares(
        config.length_form,
        lengths_I,
        passed_I,
        group_I,
        limit=config.length_limit,
        buffer=config.length_buffer,
    )
    language_I = [
        _foreign_share(one) if w.language else 0.0
        for one, w in zip(trajectories, weights, strict=True)
    ]
    format_I = [
        1.0 - form_share(one) if w.format else 0.0
        for one, w in zip(trajectories, weights, strict=True)
    ]
    scale_I = _scale(value_I, passed_I, group_I)
    losses = np.stack((length_I, language_I, format_I), 1) * weights_IW[:, 1:] * scale_I[:, None]
    parts = np.column_stack((weights_IW[:, 0] * value_I, -losses))
    _require_finite(parts, trajectories)
    narrow = parts.astype(np.float32) + np.float32(0.0)  # no -0.0
    # The total is summed in float64 and then rounded: rounding can make ties but never reverse an order.
    return RewardTable(
        outcome_I=narrow[:, 0],
        length_I=narrow[:, 1],
        language_I=narrow[:, 2],
        format_I=narrow[:, 3],
        total_I=parts.sum(1).astype(np.float32),
        group_I=np.asarray(group_I, np.int64),
        passed_I=passed_I,
    )


def length_shares(
    form: LengthForm,
    lengths_I: NDArray[np.int64],
    passed_I: NDArray[np.bool_],
    group_I: NDArray[np.int64],
    *,
    limit: int,
    buffer: int,
) -> Wide:
    """Return the share of the length penalty of each rollout: [I], 0 to 1.

    * ``ranked``: among the passing rollouts of a group, linear from 0 for the shortest to 1 for the longest
      (as in Kimi k1.5, section 2.3.3, for correct responses). Failing ones lose nothing, so a policy that
      can't solve a task yet is not taught to give up early.
    * ``additive``: tokens over a limit's worth of them, for every rollout.
    * ``overlong``: DAPO's soft overlong punishment (Yu et al. 2025, eq. 13): nothing up to ``limit - buffer``
      tokens, then linear, all of it from ``limit`` on; for every rollout.
    * ``off``: zeros.

    Args:
        form: which rule.
        lengths_I: model tokens of the rollouts.
        passed_I: whether their verifiers passed them.
        group_I: number of each rollout's group, 0 or more.
        limit: tokens at which ``additive`` and ``overlong`` take all.
        buffer: tokens before ``limit`` at which ``overlong`` begins.
    """
    if form == "off":
        return np.zeros(len(lengths_I))
    if form == "additive":
        return np.clip(lengths_I / limit, 0.0, 1.0)
    if form == "overlong":
        return np.clip((lengths_I - (limit - buffer)) / buffer, 0.0, 1.0)
    return ranked_shares(lengths_I, passed_I, group_I)


def ranked_shares(
    lengths_I: NDArray[np.int64], passed_I: NDArray[np.bool_], group_I: NDArray[np.int64]
) -> Wide:
    """(length - shortest) / (longest - shortest) over each group's passing rollouts; 0 for the others."""
    num_groups = int(group_I.max(initial=-1)) + 1
    shortest, longest = np.full(num_groups, np.inf), np.full(num_groups, -np.inf)
    np.minimum.at(shortest, group_I[passed_I], lengths_I[passed_I])
    np.maximum.at(longest, group_I[passed_I], lengths_I[passed_I])
    span_I = (longest - shortest)[group_I]
    ranked_I = passed_I & (span_I > 0)
    shares = np.zeros(len(lengths_I))
    shares[ranked_I] = (lengths_I - shortest[group_I])[ranked_I] / span_I[ranked_I]
    return shares


def constant_reward_error(
    tables: Sequence[RewardTable], *, first_steps: int = 10
) -> RewardError | None:
    """Return an error if no group's rewards differ in the first steps: GRPO has no gradient then.

    If no rollout passes, differences by length and language alone don't count: they tell nothing about the
    task.

    Args:
        tables: of a run's first steps, in order.
        first_steps: number of steps to look at; fewer ``tables`` give None.

    Returns:
        The error to raise, or None.
    """
    seen = tables[:first_steps]
    if len(seen) < first_steps or any(_teaches(table) for table in seen):
        return None
    totals = np.concatenate([table.total_I for table in seen])
    low, high = float(totals.min()), float(totals.max())
    what = (
        f"{low:g} in all" if low == high else f"the same within each group ({low:g} to {high:g}) in"
    )
    passed = float(np.concatenate([table.passed_I for table in seen]).mean())
    if any(_varies(table.total_I, table.group_I) for table in seen):
        what = "different by length and language alone, and no verifier was content, in all"
    hint = "cold-start the policy, or keep tasks that it passes sometimes (`envgen filter`)"
    if passed == 1.0:
        hint = "these tasks are solved; take harder ones"
    return RewardError(
        f"the reward was {what} of {len(totals)} rollouts of the first {first_steps} steps "
        f"(pass rate {passed:.3g}): there is nothing to learn from",
        hint,
    )


def permuted_totals(table: RewardTable, seed: int) -> Floats:
    """Shuffle the totals within each group: a control experiment whose rewards carry no information."""
    rng = np.random.Generator(np.random.PCG64(derive(seed, "permuted rewards")))
    shuffled = table.total_I.copy()
    for group in np.unique(table.group_I):
        members = np.flatnonzero(table.group_I == group)
        shuffled[members] = table.total_I[rng.permutation(members)]
    return shuffled


def _scale(value_I: Wide, passed_I: NDArray[np.bool_], group_I: NDArray[np.int64]) -> Wide:
    """Return s [I]: 1 for failing rollouts, else the gap between the group's passing and failing values."""
    num_groups = int(group_I.max(initial=-1)) + 1
    worst, best = np.full(num_groups, np.inf), np.zeros(num_groups)
    np.minimum.at(worst, group_I[passed_I], value_I[passed_I])
    np.maximum.at(best, group_I[~passed_I], value_I[~passed_I])
    gap_I = np.maximum(worst - best, 0.0)[group_I]
    return np.where(passed_I, gap_I, 1.0)


def _value(trajectory: Trajectory) -> float:
    if trajectory.score is None:
        raise ConfigError(
            f"task {trajectory.task_id!r}, sample {trajectory.sample} has no score"
            + (f": {trajectory.error.text}" if trajectory.error else ""),
            "leave rollouts that an error spoiled out of the batch",
        )
    return trajectory.score.value


def _passed(trajectory: Trajectory) -> bool:
    return trajectory.score is not None and trajectory.score.passed


def _foreign_share(trajectory: Trajectory) -> float:
    """Return 1 - C, the share of the model's prose not in the language of the first user message."""
    written = "\n\n".join(
        text
        for message in trajectory.messages
        if message.role == "assistant"
        for text in (message.reasoning, message.content)
        if text
    )
    if not written:
        return 0.0
    prompt = next((m.content for m in trajectory.messages if m.role == "user"), "")
    expected = prompt_language(prompt)
    if expected is None:
        return 0.0
    share = language_consistency(written, expected)
    return 0.0 if share is None else 1.0 - share


def _require_finite(parts: Wide, trajectories: Sequence[Trajectory]) -> None:
    for i, part in np.argwhere(~np.isfinite(parts)):
        one = trajectories[i]
        raise RewardError(
            f"the {Weights._fields[part]} part of the reward of task {one.task_id!r}, sample "
            f"{one.sample} is {parts[i, part]}",
            "look at the task's verifier",
        )


def _teaches(table: RewardTable) -> bool:
    """Return whether a group's rewards differ; if none passed, by more than length and language."""
    wanted = table.total_I if table.passed_I.any() else table.outcome_I + table.format_I
    return _varies(wanted, table.group_I)


def _varies(reward_I: Floats, group_I: NDArray[np.int64]) -> bool:
    return any(np.ptp(reward_I[group_I == group]) > 0 for group in np.unique(group_I))

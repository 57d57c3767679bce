"""How a policy judges by a rubric."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from envgen.core.limits import Whole
from envgen.core.types import Record, Sampling
from envgen.policies.registry import PolicyConfig


class RubricConfig(Record):
    """How a policy judges by a rubric."""

    votes: int = Field(default=1, ge=1, le=99)
    """Answers asked for; an item is met if more than half of them say so."""
    sampling: Sampling = Sampling(temperature=0.0)
    """How votes are drawn."""
    tries: int = Field(default=2, ge=1, le=10)
    """Replies for one vote, until one can be read."""
    max_chars: int = Field(default=40_000, ge=100)
    """Of the answer and of the question; longer ones lose their middle."""
    seed: Whole = 0

    @model_validator(mode="after")
    def _votes_differ(self) -> Self:
        if self.votes > 1 and self.sampling.temperature == 0:
            raise ValueError(
                f"{self.votes} votes at temperature 0 are all the same: set a temperature, or one vote"
            )
        return self


class RubricJudgeConfig(RubricConfig):
    """Who judges, and how."""

    policy: PolicyConfig
    """The model that judges answers to open questions, as --policy names one."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    """What the judge may cost."""
    concurrency: int = Field(default=8, ge=1, le=256)
    """Answers judged at the same time."""
    untested: bool = False
    """Take a judge that has passed no test."""

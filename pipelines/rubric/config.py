"""How a policy judges by a rubric."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from envgen.core.limits import Whole
from envgen.core.types import Record, Sampling


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

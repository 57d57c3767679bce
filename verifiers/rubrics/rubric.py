"""Rubrics: what a good answer to an open question holds, item by item, and what counts against it.

No rule can tell whether an answer does what an item says: a judge does (``pipelines/rubric``), or nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from envgen.core.errors import UnjudgedError
from envgen.core.limits import AtMost, Id
from envgen.core.types import Record, Score
from envgen.verifiers.rubrics.openers import says_nothing

Dimension = Literal["correctness", "citation", "coverage", "concision", "instruction"]
PASS = 0.5
"""An answer passes with this share of the weight."""


class RubricItem(Record):
    """One thing that an answer does or does not do."""

    id: Id
    dimension: Dimension
    text: Annotated[str, Field(min_length=1), AtMost(4_096)]
    """What the answer does: "says that ..."."""
    weight: float = Field(gt=0, le=1_000, allow_inf_nan=False)
    pitfall: bool = False
    """Whether it counts against the answer."""


class Rubric(Record):
    """A question, and the items by which an answer to it is judged."""

    question: Annotated[str, Field(min_length=1), AtMost(1 << 16)]
    items: Annotated[tuple[RubricItem, ...], Field(min_length=5, max_length=20)]

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        ids = [item.id for item in self.items]
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            raise ValueError(f"two items have the id {twice[0]!r}; give each its own")
        if all(item.pitfall for item in self.items):
            raise ValueError("all items are pitfalls; at least one must be worth something")
        return self

    def value(self, met: Collection[str]) -> float:
        """The share of the weight that is met, less that of the pitfalls; 0 to 1.

        Args:
            met: ids of the items that the answer meets.
        """
        whole = sum(item.weight for item in self.items if not item.pitfall)
        sums = (
            -item.weight if item.pitfall else item.weight for item in self.items if item.id in met
        )
        return min(1.0, max(0.0, sum(sums) / whole))


Rate = Callable[[Rubric, str], Score]
"""Scores an answer; raises ``UnjudgedError`` if it can't."""


def is_rubric(verifier: str) -> bool:
    """Whether a stored verifier is a rubric."""
    try:
        found = json.loads(verifier)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"question", "items"} <= found.keys()


def rated(rubric: Rubric, answer: str, rate: Rate | None) -> Score:
    """The score of an answer to an open question: 0 for one that says nothing, else what the judge says.

    Raises:
        UnjudgedError: if there is no judge, or it can't tell.
    """
    if says_nothing(answer):
        return Score(value=0.0, passed=False, reasons=("it says nothing",))
    if rate is None:
        raise UnjudgedError(
            "an open question: only a judge can score its answer",
            "envgen judge RUN --policy SPEC; train grpo --judge SPEC; in Python: judge=",
        )
    return rate(rubric, answer)

"""Targets of a generation: how hard tasks must be, and how near its drafts came."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from envgen.core.limits import Count, Real
from envgen.core.types import Difficulty, Record


class Targets(Record):
    """How hard tasks must be, by what is measured of each."""

    density: float | None = Field(default=None, gt=0, le=1)
    """Largest share of all answers that may be right, such as 1e-4. None: any.
    Drafts that miss a target are rejected; where too few reach it, the figures of the nearest one are told
    and the exit code is 1."""
    min_calls: int | None = Field(default=None, ge=1, le=10_000)
    """Least tool calls: of the fewest that any solver found to suffice. None: any."""
    max_shortcut: float | None = Field(default=None, ge=0, le=1)
    """Largest share of re-seeds that first row, greedy, first fit or a recipe may pass. None: any."""

    @property
    def any(self) -> bool:
        """Whether there is a target."""
        return (self.density, self.min_calls, self.max_shortcut) != (None, None, None)

    def missed(self, found: Achieved) -> Iterator[tuple[str, float]]:
        """Name the targets that a task misses, each with a number that grows with the distance."""
        if self.density is not None and not found.density <= self.density:
            yield "density", math.log(found.density / self.density)
        if self.min_calls is not None and found.calls < self.min_calls:
            yield "min_calls", math.log(self.min_calls / max(1, found.calls))
        if self.max_shortcut is not None and not found.shortcut <= self.max_shortcut:
            yield "max_shortcut", found.shortcut - self.max_shortcut

    def distance(self, found: Achieved) -> tuple[int, float]:
        """How many targets a task misses, and by how much."""
        missed = [by for _, by in self.missed(found)]
        return len(missed), sum(missed)


class Achieved(Record):
    """The figures of a task that targets are about; what is not measured counts as easy."""

    density: Real
    """The upper end of its interval."""
    calls: Count
    shortcut: Real

    @classmethod
    def of(cls, found: Difficulty) -> Achieved:
        """The figures of a task."""
        return cls(
            density=1.0 if found.density is None else found.density.high,
            calls=found.calls_upper_bound or 0,
            shortcut=1.0 if found.shortcuts is None else found.shortcuts.best,
        )

    def __str__(self) -> str:
        """The figures in words."""
        return f"density {self.density:.3g}, calls {self.calls}, best shortcut {self.shortcut:.3g}"

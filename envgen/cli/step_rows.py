"""The live table of ``envgen train grpo``: rows of figures on stderr, above the progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from envgen.cli.console import NEXT_LINES_S, remark, talk

TERMINAL_S = 1.0
"""Rows are at least so far apart on a terminal."""


class _Column(NamedTuple):
    head: str
    metric: str
    form: str


COLUMNS = (
    _Column("reward", "reward/total", ".3f"),
    _Column("passed", "reward/pass_rate", ".3f"),
    _Column("KL", "policy/kl", ".4f"),
    _Column("clipped", "policy/clip_fraction", ".3f"),
    _Column("masked", "policy/masked_negatives", ".3f"),
    _Column("entropy", "policy/entropy", ".3f"),
    _Column("kept", "policy/kept_mass", ".3f"),
    _Column("tokens", "rollout/model_tokens", ".1f"),
    _Column("calls ok", "rollout/valid_calls", ".3f"),
    _Column("tokens/s", "time/model_tokens_per_s", ".0f"),
)
WIDTH = 8


class StepRows:
    """Shows a run's figures as rows: the first step, the last, and some between.

    Args:
        steps: of the whole run.
        clock: seconds, for what is between.
        interval: seconds between rows; None: by whether there is a terminal.
    """

    def __init__(
        self,
        steps: int,
        clock: Callable[[], float] = time.monotonic,
        interval: float | None = None,
    ) -> None:
        self._steps, self._clock = steps, clock
        self._interval = interval or (TERMINAL_S if talk.is_terminal else NEXT_LINES_S)
        self._last: float | None = None

    def show(self, step: int, figures: Mapping[str, float | None]) -> None:
        """Tell of a step, if it is time to."""
        now = self._clock()
        if self._last is None:
            remark("  step " + " ".join(f"{column.head:>{WIDTH}}" for column in COLUMNS))
        elif now - self._last < self._interval and step < self._steps:
            return
        self._last = now
        cells = (_cell(figures.get(column.metric), column.form) for column in COLUMNS)
        remark(f"{step:>6} " + " ".join(f"{cell:>{WIDTH}}" for cell in cells))


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

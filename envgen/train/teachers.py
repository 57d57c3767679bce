"""Conversations to learn from: the stored rollouts of teachers.

Any run folder will do: ``gold``, ``hasty:0.6`` (a biased expert, who often takes the first row that breaks
no rule), a larger model. A teacher's conversation is written in the student's own encoding; a rollout in a
prompting style (``policies.styles``) is written in that style's mode, with thinking or without.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from envgen.core.errors import ConfigError
from envgen.core.seeding import derive
from envgen.core.types import SourceKind, Style, Trajectory
from envgen.policies.encoding import Encoding, EncodingError, make_encoding
from envgen.policies.registry import PolicyConfig
from envgen.policies.styles import thinks
from envgen.rollout.run import Progress as RolloutProgress
from envgen.rollout.run import RolloutConfig, rollout
from envgen.rollout.task_tools import TaskTools
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.train.sft import SFTRow, sft_rows

logger = logging.getLogger(__name__)


class Modes:
    """A student's encoding in both modes, with thinking and without."""

    def __init__(self, encoding: Encoding) -> None:
        self._own = encoding
        self._by_thinking = {encoding.config.thinking: encoding}
        self._used: set[bool] = set()

    def of(self, style: Style | None) -> Encoding:
        """Return the encoding of a style; None: the student's own."""
        thinking = self._own.config.thinking if style is None else thinks(style)
        self._used.add(thinking)
        if thinking not in self._by_thinking:
            changed = self._own.config.model_copy(update={"thinking": thinking})
            self._by_thinking[thinking] = make_encoding(changed, self._own.tokenizer)
        return self._by_thinking[thinking]

    def require_told_apart(self) -> None:
        """Check that prompts of both modes differ, if both were used.

        Raises:
            ConfigError: if they are the same.
        """
        if len(self._used) > 1 and not self._own.config.system:
            raise ConfigError(
                "records with and without reasoning would have the same prompts: the model's encoding "
                "leaves system messages out",
                "make the model with `-c encoding.system=true`, or learn from one kind",
            )


def play_teachers(
    dataset: Dataset,
    specs: Sequence[str],
    folder: Path,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
    *,
    episodes: int = 1,
) -> list[Path]:
    """Play every task, variants included, with each teacher; episodes already played are kept.

    Returns:
        The run folders, in order.
    """
    runs = []
    for spec in specs:
        out = teacher_folder(folder, spec)
        config = RolloutConfig(
            dataset=str(dataset.path),
            policy=PolicyConfig(spec=spec),
            out=str(out),
            n=episodes,
            seed=derive(seed, "teacher", spec),
            variants=True,
            trust=dataset.source is SourceKind.TRUSTED,
        )

        def report(now: RolloutProgress, spec: str = spec) -> None:
            if progress:
                progress(now.done, now.total, f"{spec} plays")

        rollout(config, progress=report)
        runs.append(out)
    return runs


def teacher_folder(folder: Path, spec: str) -> Path:
    """Return the run folder of a teacher."""
    return folder / re.sub(r"[^\w.-]+", "_", spec)


def teacher_rows(
    runs: Sequence[str | Path],
    dataset: Dataset,
    encoding: Encoding,
    *,
    split: str | None = None,
    passed_only: bool = False,
    max_tokens: int | None = None,
    weights: Sequence[float] = (),
) -> list[SFTRow]:
    """Turn all conversations of some runs into rows, in order.

    Args:
        runs: run folders of ``envgen rollout`` on ``dataset``.
        dataset: for the tools.
        encoding: the student's.
        split: of the tasks to learn from; None: all.
        passed_only: leave rollouts out that did not pass.
        max_tokens: leave longer rows out.
        weights: loss weight of each run's tokens; empty: 1.

    Raises:
        ConfigError: if nothing is left to learn from.
    """
    tools, modes = TaskTools(dataset), Modes(encoding)
    rows: list[SFTRow] = []
    left_out: Counter[str] = Counter()
    for weight, trajectory in _trajectories(runs, weights or [1.0] * len(runs)):
        if split is not None and dataset.facts(trajectory.task_id).split != split:
            continue
        if trajectory.error is not None:
            left_out["episodes that an error spoiled"] += 1
            continue
        if passed_only and not _passed(trajectory):
            continue
        task, style = trajectory.task_id, trajectory.style
        why = tools.misfit(trajectory)
        if why is not None:
            left_out[f"rollouts of another style than asked ({style}: {why})"] += 1
            continue
        try:
            found = sft_rows(modes.of(style), trajectory.messages, tools.of(task, style), task)
        except EncodingError as error:
            left_out["rollouts that the encoding can't express"] += 1
            logger.debug("task %s sample %d: %s", trajectory.task_id, trajectory.sample, error)
            continue
        kept = [row for row in found if max_tokens is None or len(row.ids) <= max_tokens]
        left_out["rows that are too long"] += len(found) - len(kept)
        rows += kept if weight == 1 else [_weighted(row, weight) for row in kept]
    for what, count in (+left_out).most_common():
        logger.warning("left out: %d %s", count, what)
    modes.require_told_apart()
    if not rows:
        raise ConfigError(
            "the teachers' rollouts leave nothing to learn from",
            "look at `envgen pass-at-k` of the runs; drop --passed-only; raise the model's window",
        )
    return rows


def _trajectories(
    runs: Sequence[str | Path], weights: Sequence[float]
) -> Iterator[tuple[float, Trajectory]]:
    for folder, weight in zip(runs, weights, strict=True):
        with RunStore.read(folder) as run:
            yield from ((weight, trajectory) for trajectory in run.trajectories())


def _weighted(row: SFTRow, weight: float) -> SFTRow:
    return replace(row, weights=np.full(len(row.places), weight, np.float32))


def _passed(trajectory: Trajectory) -> bool:
    return trajectory.score is not None and trajectory.score.passed

"""A run of ``envgen rollout``, to be read by a person: its figures, or one episode turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envgen.cli.console import heading, prose, remark, say
from envgen.cli.records import show_record, show_rows
from envgen.core.errors import ConfigError
from envgen.core.registry import near_names
from envgen.core.types import Score, Trajectory

if TYPE_CHECKING:
    from envgen.report.transcript import Step
    from envgen.store.runs import RunStore

MAX_CHARS = 1200
"""Of one text of an episode, unless all is asked for."""


def show_run(folder: Path, task_id: str | None, sample: int | None, full: bool) -> object:
    """Print the figures of a run or, of a task that is named, one episode; return what was shown.

    Raises:
        ConfigError: if the run has no such episode.
        StoreError: if the run can't be read.
    """
    from envgen.store.runs import RunStore

    with RunStore.read(folder) as store:
        if task_id is None and sample is None:
            return _figures(store)
        episode = _episode(store, task_id, sample)
    _show_episode(episode, full)
    return episode


def _figures(store: RunStore) -> dict[str, object]:
    counts, totals = store.counts(), store.totals()
    first = next(store.trajectories(), None)
    found: dict[str, object] = {
        "policy": "" if first is None else first.policy,
        "tasks": len(counts),
        "episodes": int(totals["episodes"]),
        "passed": sum(count.c for count in counts.values()),
        "errors": sum(count.errors for count in counts.values()),
        "mean_calls": totals["num_calls"] / totals["episodes"] if totals["episodes"] else None,
        "cost_usd": totals["cost_usd"],
    }
    show_record(found, store.folder)
    rows = [(name, count.n, count.c, count.errors) for name, count in counts.items()]
    show_rows(("task", "episodes ", "passed ", "errors "), rows)
    remark(f"one episode: `envgen show {store.folder} TASK --sample N`; rates: `envgen pass-at-k`")
    return found


def _episode(store: RunStore, task_id: str | None, sample: int | None) -> Trajectory:
    done = store.done()
    names = sorted({name for name, _ in done})
    begin = [name for name in names if name.startswith(task_id or "")]
    found = [task_id] if task_id in names else begin
    see = f"`envgen show {store.folder}` names them all"
    if not found or (len(found) > 1 and task_id is not None):
        near = near_names(task_id or "", begin or names)
        raise ConfigError(f"no task {task_id or ''!r} in {str(store.folder)!r}{near}", see)
    samples = sorted(number for name, number in done if name == found[0])
    wanted = samples[0] if sample is None else sample
    for one in store.trajectories(found[0]):
        if one.sample == wanted:
            return one
    have = f"its samples are {samples[0]}..{samples[-1]}"
    raise ConfigError(f"task {found[0]!r} has no sample {wanted!r}", have)


def _show_episode(episode: Trajectory, full: bool) -> None:
    from envgen.report.transcript import steps_of

    say(f"{episode.task_id} sample {episode.sample}, policy {episode.policy}")
    steps = steps_of(episode, cut=False)
    for step in steps:
        _show_step(step, full)
    heading("Outcome")
    prose(
        f"stopped: {episode.stop.value}, {episode.num_calls} calls, {episode.wall_s:.1f} s",
        indent=2,
    )
    if episode.error is not None:
        _show_text(f"error: {episode.error.text}", full)
    _show_score(episode.score, full)
    for fault in episode.faults:
        _show_text(f"a fault of the environment: {fault}", full)


def _show_step(step: Step, full: bool) -> None:
    whose = f"result of {step.tool}" if step.tool else step.role
    heading(f"{step.number}. {whose}")
    if step.reasoning:
        _show_text(f"(thinks) {step.reasoning}", full)
    if step.text:
        _show_text(step.text, full)
    for name, arguments in step.calls:
        _show_text(f"calls {name}" + (f"\n{arguments}" if arguments else ""), full)


def _show_score(score: Score | None, full: bool) -> None:
    if score is None:
        prose("no score", indent=2)
        return
    prose(f"score {score.value:g}, {'passed' if score.passed else 'not passed'}", indent=2)
    reasons: Sequence[str] = score.reasons
    for reason in reasons:
        _show_text(f"- {reason}", full)


def _show_text(text: str, full: bool) -> None:
    left = 0 if full else len(text) - MAX_CHARS
    prose(text if left <= 0 else text[:MAX_CHARS], indent=2)
    if left > 0:
        prose(f"[... {left:,} more characters; --full shows them]", indent=2, style="dim")

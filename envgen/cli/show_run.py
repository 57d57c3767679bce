"""A run of ``envgen rollout``, to be read by a person: its figures, or one episode turn by turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from envgen.cli.columns import CUT
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


MAX_EPISODES = 200
"""Of a page."""


def show_run(
    folder: Path,
    task_id: str | None,
    sample: int | None,
    *,
    full: bool,
    failed: bool,
    page: Path | None,
) -> object:
    """Print the figures of a run or, of a task that is named, one episode; return what was shown.

    Args:
        folder: the run.
        task_id: a task, or its beginning.
        sample: which episode of it; else the first.
        full: long texts whole.
        failed: only episodes that did not pass: without a task a table of them.
        page: an HTML file to write the episodes to instead.

    Raises:
        ConfigError: if the run has no such episode.
        StoreError: if the run can't be read, or the page can't be written.
    """
    from envgen.store.runs import RunStore

    with RunStore.read(folder) as store:
        if task_id is None and sample is None and not failed and page is None:
            return _figures(store)
        chosen = _chosen(store, task_id, sample, failed)
        if page is not None:
            return _write_page(store, chosen, page, failed)
        if task_id is None and sample is None:
            return _table(store, chosen)
        episode = next(chosen)
    _show_episode(episode, full)
    return episode


def _chosen(
    store: RunStore, task_id: str | None, sample: int | None, failed: bool
) -> Iterator[Trajectory]:
    """The episodes that are meant, one at least."""
    if sample is not None:
        found = iter([_episode(store, task_id, sample)])
    else:
        found = store.trajectories(None if task_id is None else _task(store, task_id))
    left = (one for one in found if not (failed and _passed(one)))
    first = next(left, None)
    if first is None:
        what = f"no episode that is meant failed in {str(store.folder)!r}"
        what = what if failed else f"{str(store.folder)!r} has no episode yet"
        raise ConfigError(what, f"`envgen show {store.folder}` has the figures of all")
    return chain([first], left)


def _passed(episode: Trajectory) -> bool:
    return episode.score is not None and episode.score.passed


def _table(store: RunStore, chosen: Iterator[Trajectory]) -> list[dict[str, object]]:
    """Print a line for each episode."""
    found: list[dict[str, object]] = [
        {
            "task_id": one.task_id,
            "sample": one.sample,
            "calls": one.num_calls,
            "stop": one.stop.value,
            "why": _why(one),
        }
        for one in chosen
    ]
    heads = ("task", "sample ", "calls ", "stopped", f"why{CUT}")
    show_rows(heads, [tuple(row.values()) for row in found])
    remark(f"one of them: `envgen show {store.folder} TASK --sample N`; as a page: --html FILE")
    return found


def _why(episode: Trajectory) -> str:
    if episode.error is not None:
        return f"error: {episode.error.text}"
    return "; ".join(episode.score.reasons) if episode.score else "no score"


def _write_page(
    store: RunStore, chosen: Iterator[Trajectory], page: Path, failed: bool
) -> dict[str, object]:
    from envgen.report.html import render_episodes, write_page

    found = list(islice(chosen, MAX_EPISODES))
    more = sum(1 for _ in chosen)
    lead = f"{len(found)}{' failed' if failed else ''} episode{'s' * (len(found) != 1)}"
    if more:
        lead += f", the first of {len(found) + more}"
    write_page(page, render_episodes(store.folder.resolve().name, f"{lead}.", found))
    say(f"wrote {lead} to {page}")
    if more:
        remark("name a TASK for the others, or leave passed ones out with --failed")
    return {"path": str(page), "episodes": len(found), "left_out": more}


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
    remark("what went wrong: --failed; conversations as a page: --html FILE")
    return found


def _task(store: RunStore, task_id: str | None) -> str:
    """The task of this id, or of the only id that begins so; None: the first.

    Raises:
        ConfigError: if there is none; similar ids are named.
    """
    names = sorted({name for name, _ in store.done()})
    begin = [name for name in names if name.startswith(task_id or "")]
    found = [task_id] if task_id in names else begin
    see = f"`envgen show {store.folder}` names them all"
    if not found or (len(found) > 1 and task_id is not None):
        near = near_names(task_id or "", begin or names)
        raise ConfigError(f"no task {task_id or ''!r} in {str(store.folder)!r}{near}", see)
    return found[0]


def _episode(store: RunStore, task_id: str | None, sample: int) -> Trajectory:
    task = _task(store, task_id)
    for one in store.trajectories(task):
        if one.sample == sample:
            return one
    samples = sorted(number for name, number in store.done() if name == task)
    have = f"its samples are {samples[0]}..{samples[-1]}"
    raise ConfigError(f"task {task!r} has no sample {sample!r}", have)


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

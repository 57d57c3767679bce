"""How the command line talks: progress and talk on stderr, data on stdout."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import NoReturn

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

PIPE_WIDTH = 100_000
"""Columns where there is no terminal to ask: nothing is wrapped or cut for want of width."""
READABLE_WIDTH = 100
"""Prose is not set wider than this."""
FIRST_LINE_S, NEXT_LINES_S, LONGEST_PAUSE_S = 2.0, 10.0, 120.0
"""Without a terminal, progress is a line now and then, and more rarely while nothing moves."""
RECENT_STEPS, RECENT_S = 10, 60.0
"""The pace is that of the last so many steps, or of so many seconds where those hold more steps."""

OnProgress = Callable[[int, int, str], None]
_ACTING = dict.fromkeys(
    (*range(9), *range(11, 32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    "\N{REPLACEMENT CHARACTER}",
)
"""Characters that a terminal obeys or that turn what follows around, all but tabs and newlines."""


class _SafeConsole(Console):
    """A console on which the texts of strangers (prompts, names, messages) only stand."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            one if one.control else one._replace(text=one.text.translate(_ACTING)) for one in buffer
        )


def _console(*, stderr: bool) -> Console:
    console = _SafeConsole(stderr=stderr, highlight=False, markup=False)
    if not (stderr or console.is_terminal or "COLUMNS" in console._environ):
        console.width = max(console.width, PIPE_WIDTH)
    return console


out = _console(stderr=False)
talk = _console(stderr=True)


def say(text: str) -> None:
    """Print a line of data as it is: no markup, no wrapping."""
    out.print(text, markup=False, soft_wrap=True)


def remark(text: str) -> None:
    """Print a line of talk on stderr as it is."""
    talk.print(text, markup=False, soft_wrap=True)


def heading(text: str) -> None:
    """Print the heading of a part, after an empty line."""
    out.print()
    out.print(Text(text, style="bold"), soft_wrap=True)


def prose(text: str, *, indent: int = 0, style: str = "") -> None:
    """Print running text, wrapped to a width that one can read and indented."""
    width = min(out.width, READABLE_WIDTH) - indent
    for paragraph in text.splitlines():
        lines = Text(paragraph, style=style).wrap(out, width) if paragraph.strip() else [Text("")]
        for line in lines:
            line.rstrip()
            out.print(Text(" " * indent) + line, soft_wrap=True)


def time_left(task: Task) -> float | None:
    """Estimate the seconds left from the recent pace, less the time since the last step.

    None where nothing was done for longer than all that is left should take: the pace tells nothing then.
    """
    if task.finished:
        return 0.0
    pace, at = task.fields["pace"], task.fields["at"]
    if pace is None or task.remaining is None:
        return None
    left: float = pace * task.remaining - (talk.get_time() - at)
    return left if left > 0 else None


class _TimeLeft(TimeRemainingColumn):
    def render(self, task: Task) -> Text:
        left = time_left(task)
        label = "-:--:--" if left is None else str(timedelta(seconds=round(left)))
        return Text(label, style="progress.remaining")


@contextmanager
def progress(title: str) -> Iterator[OnProgress]:
    """Show progress and the time left on stderr: a bar, or a line now and then without a terminal.

    The callback takes (done, total, what). Lines also come while it is not called, so that a long
    first step is seen to run.
    """
    columns = (
        TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(),
        _TimeLeft(), TextColumn("[dim]{task.fields[what]}"),
    )  # fmt: skip
    bar = Progress(*columns, console=talk, transient=True)
    task = bar.add_task(title, total=None, what="", at=None, pace=None)
    # Of this part of the work, (time, done). The first unit that it tells of is not counted, for what a
    # resumed part had done before says nothing of its pace.
    recent: deque[tuple[float, int]] = deque(maxlen=1000)

    def update(done: int, total: int, what: str = "") -> None:
        if done < bar.tasks[0].completed:
            bar.reset(task)
            recent.clear()
        if total != bar.tasks[0].total:
            recent.clear()
        if not recent or done != recent[-1][1]:
            recent.append((talk.get_time(), done))
        at = recent[-1][0]
        while len(recent) > RECENT_STEPS + 1 and recent[1][0] <= at - RECENT_S:
            recent.popleft()
        since, first = recent[0]
        pace = (at - since) / (done - first) if done > first else None
        bar.update(task, completed=done, total=total, what=what, at=at, pace=pace)

    if talk.is_terminal:
        with bar:
            yield update
        return
    ended = Event()
    ticker = Thread(target=_tick, args=(bar.tasks[0], ended), name="progress", daemon=True)
    ticker.start()
    try:
        yield update
    finally:
        ended.set()
        ticker.join()


def _tick(task: Task, ended: Event) -> None:
    """Print lines until ``ended`` is set; runs in a thread of its own."""
    started, pause = time.monotonic(), FIRST_LINE_S
    told: tuple[object, ...] = ()
    while not ended.wait(pause):
        now = (task.completed, task.total, task.fields["what"])
        pause = NEXT_LINES_S if now != told else min(pause * 1.5, LONGEST_PAUSE_S)
        told = now
        so_far = f"{time.monotonic() - started:.0f} s"
        if task.total:
            so_far = f"{task.completed:.0f}/{task.total:.0f} after {so_far}"
        rest = timedelta(seconds=round(time_left(task) or 0))
        parts = (so_far, f"about {rest} left" if rest else "", task.fields["what"])
        remark(f"{task.description}: " + ", ".join(part for part in parts if part))


STDOUT = Path("-")
"""As the name of a file: standard output."""


def figures_on_stdout(path: Path | None) -> None:
    """Leave stdout to the figures if ``--json -`` asks for them there; what else is said goes to stderr."""
    out.stderr = path == STDOUT
    if out.stderr:
        out.width = talk.width


def fail() -> NoReturn:
    """End the command: a check failed.

    Raises:
        click.exceptions.Exit: with code 1.
    """
    raise click.exceptions.Exit(1)


def require(
    count: int, asked: int | None, what: str, hint: str = "", *, fatal: bool = True
) -> None:
    """Warn on stderr if less was made than ``asked`` (None: any number above zero).

    ``what`` is a plural, such as "episodes played"; ``fatal``: the command has failed if there are none.

    Raises:
        click.exceptions.Exit: with code 1 if it has failed.
    """
    if count and (asked is None or count >= asked):
        return
    of = "" if asked is None else f" of {asked}"
    failed = fatal and not count
    remark(f"{'error' if failed else 'warning'}: {count}{of} {what}")
    if hint:
        remark(f"hint: {hint}")
    if failed:
        fail()

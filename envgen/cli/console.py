"""How the command line talks: progress and talk on stderr, data on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from envgen.core.canonical import pretty

PIPE_WIDTH = 120
"""Columns where there is no terminal to ask."""
READABLE_WIDTH = 100
"""Prose is not set wider than this."""
FIRST_LINE_S, NEXT_LINES_S = 2.0, 10.0
"""Without a terminal, progress is a line now and then."""

OnProgress = Callable[[int, int, str], None]


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in console._environ:
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


@contextmanager
def progress(title: str) -> Iterator[OnProgress]:
    """Show progress on stderr: a bar, or rare lines without a terminal.

    The callback takes (done, total, what).
    """
    if not talk.is_terminal:
        yield _lines(title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[what]}"),
    )
    with Progress(*columns, console=talk, transient=True) as bar:
        task = bar.add_task(title, total=None, what="")

        def update(done: int, total: int, what: str = "") -> None:
            bar.update(task, completed=done, total=total, what=what)

        yield update


def _lines(title: str) -> OnProgress:
    started = time.monotonic()
    due = started + FIRST_LINE_S

    def update(done: int, total: int, what: str = "") -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + NEXT_LINES_S
            remark(
                f"{title}: {done}/{total} after {now - started:.0f} s" + (f", {what}" * bool(what))
            )

    return update


def table(*columns: str, title: str = "") -> Table:
    """An empty table in house style; a column whose name ends in a space is right-aligned.

    The first column is never broken: it is what one copies.
    """
    made = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for i, column in enumerate(columns):
        right = column.endswith(" ")
        made.add_column(
            column.strip(),
            justify="right" if right else "left",
            no_wrap=i == 0 or right,
            overflow="fold",
        )
    return made


def write_json(path: Path | None, figures: BaseModel | dict[str, object] | list[object]) -> None:
    """Write ``figures`` where ``--json`` says, if it says so."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pretty(figures), encoding="utf-8")
        remark(f"wrote {path}")

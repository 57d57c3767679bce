"""How the command line talks: progress and talk on stderr, data on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from envgen.core.canonical import pretty

out = Console()
talk = Console(stderr=True)

OnProgress = Callable[[int, int, str], None]


@contextmanager
def progress(title: str) -> Iterator[OnProgress]:
    """A progress bar on stderr; the callback takes (done, total, what)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[what]}"),
    )
    with Progress(*columns, console=talk, transient=True) as bar:
        task = bar.add_task(title, total=None, what="")

        def update(done: int, total: int, what: str = "") -> None:
            bar.update(task, completed=done, total=total, what=what)

        yield update


def table(title: str, *columns: str) -> Table:
    """An empty table in house style; numbers' columns end in a space and are right-aligned."""
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column.strip(), justify="right" if column.endswith(" ") else "left")
    return made


def write_json(path: Path | None, figures: BaseModel | dict[str, object] | list[object]) -> None:
    """Write ``figures`` where ``--json`` says, if it says so."""
    if path is not None:
        path.write_text(pretty(figures), encoding="utf-8")
        talk.print(f"wrote {path}")

"""Options that several commands share, and what commands do with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from envgen.core.errors import ConfigError

if TYPE_CHECKING:
    from envgen.store.dataset import Dataset

DatasetPath = Annotated[
    Path,
    typer.Argument(
        metavar="DATASET", help="A dataset folder, or package:NAME.", show_default=False
    ),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="PATH", help="Where to write.", show_default=False)
]
Seed = Annotated[int, typer.Option(metavar="N", help="Fixes every random choice.")]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Processes. Default: one per core.")
]
Backend = Annotated[
    Literal["auto", "bubblewrap", "docker", "process", "inline"],
    typer.Option(
        metavar="NAME",
        help="Where generated code runs: auto, bubblewrap, docker; process or inline for trusted code.",
    ),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the figures to this file."),
]
MaxTurns = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Most replies of an episode. Default: what its task allows."
    ),
]
Style = Annotated[
    Literal["reasoning", "agent", "thinking-agent"] | None,
    typer.Option(
        metavar="NAME",
        help="Ask for records of a cold start: reasoning, agent or thinking-agent.",
        show_default=False,
    ),
]
Unproven = Annotated[
    bool, typer.Option("--unproven", help="Accept a dataset whose tasks lack evidence.")
]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", metavar="ID", help="Only this task; repeatable.")
]


TAKEN = {"dataset.json": "a dataset", "run.json": "a run of `envgen rollout`"}
"""Files that tell whose a folder is."""


def examples(*lines: str) -> str:
    """The end of a command's help: commands to copy."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def run_folder(path: Path) -> Path:
    """``path``, where a run may be written: it is no file, and nothing else's folder.

    Raises:
        ConfigError: if it is.
    """
    for mark, what in TAKEN.items():
        if (path / mark).exists():
            raise ConfigError(f"--out {str(path)!r} is {what}", "choose another --out")
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out {str(path)!r} is a file", "choose another --out")
    return path


def open_dataset(path: Path, *, unproven: bool = False) -> Dataset:
    """Open what the user named: a folder or ``package:NAME``."""
    from envgen.environments.hosts import open_dataset as load

    return load(path, unproven=unproven)

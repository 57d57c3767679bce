"""Options that several commands share, and what commands do with them."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from envgen.cli.console import figures_on_stdout
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
    typer.Option(
        "--json",
        metavar="FILE",
        help="Also write the figures to this file; -: to stdout, and the rest to stderr.",
        callback=figures_on_stdout,
    ),
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
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="I wrote or read this dataset's code: it may run without isolation."
    ),
]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", metavar="ID", help="Only this task; repeatable.")
]


PolicyOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="A setting of the model client, such as api_key_env=NAME; repeatable.",
    ),
]
Preflight = Annotated[
    bool,
    typer.Option(
        "--preflight/--no-preflight",
        help="Ask a model server one small thing before the work begins.",
    ),
]
MaxErrors = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Stop after so many identical errors of a model in a row; 0: never.",
    ),
]


TAKEN = {"dataset.json": "a dataset", "run.json": "a run of `envgen rollout`"}
"""Files that tell whose a folder is."""


def examples(*lines: str) -> str:
    """The end of a command's help: commands to copy."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def parse_options(items: list[str] | None) -> dict[str, Any]:
    """``["timeout_s=60", ...]`` as a mapping; values are JSON where they parse as such.

    Raises:
        ConfigError: for an item without ``=``.
    """
    options: dict[str, Any] = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"{item!r} is no option", "write --option name=value")
        try:
            options[name] = jsonlib.loads(value)
        except jsonlib.JSONDecodeError:
            options[name] = value
    return options


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


def open_dataset(path: Path, *, unproven: bool = False, trust: bool = False) -> Dataset:
    """Open what the user named: a folder or ``package:NAME``."""
    from envgen.environments.hosts import open_dataset as load

    return load(path, unproven=unproven, trust=trust)

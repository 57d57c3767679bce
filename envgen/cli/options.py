"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

DatasetPath = Annotated[Path, typer.Argument(help="A dataset folder.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write.", show_default=False)]
Seed = Annotated[int, typer.Option(help="Fixes every random choice.")]
Workers = Annotated[int | None, typer.Option(help="Processes. Default: one per core.")]
Backend = Annotated[
    Literal["auto", "bubblewrap", "docker", "process", "inline"],
    typer.Option(help="Where generated code runs; process and inline are for trusted code."),
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")]
Unproven = Annotated[bool, typer.Option(help="Accept a dataset whose tasks lack evidence.")]

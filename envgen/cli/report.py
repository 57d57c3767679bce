"""``envgen report``: the page of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envgen.cli.console import say, write_json
from envgen.cli.options import Json, examples


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(
        "report",
        epilog=examples("envgen report runs/grpo", "envgen report runs/sft --out sft.html"),
    )(report)


def report(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A folder of `envgen train`.", show_default=False),
    ],
    out_path: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Default: RUN/report.html.")
    ] = None,
    json: Json = None,
) -> None:
    """Show a training run's curves on one page, finished or not."""
    from envgen.report.html import write_report
    from envgen.report.training import training_report

    data = training_report(run)
    path = write_report(out_path or run / "report.html", data)
    say(f"report: {path}")
    write_json(json, data)

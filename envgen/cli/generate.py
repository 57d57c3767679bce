"""``envgen generate``: make datasets."""

from __future__ import annotations

from typing import Annotated

import typer

from envgen.cli.console import out as stdout
from envgen.cli.console import progress, table, write_json
from envgen.cli.options import Backend, Json, Out, Seed, Workers, examples
from envgen.core.errors import ConfigError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
GENERAL_EXAMPLES = examples(
    "envgen generate general --out ds/",
    "envgen generate general --category trip_planning --environments 5 --level 1..5 --out ds/",
)


@app.callback()
def _group() -> None:
    """Generate environment datasets."""


def parse_levels(text: str) -> tuple[int, int]:
    """``"1..5"`` or ``"3"`` as a pair.

    Raises:
        ConfigError: if it is neither, or not within 1..10.
    """
    low, dots, high = text.partition("..")
    try:
        levels = int(low), int(high if dots else low)
    except ValueError:
        levels = (0, 0)
    if not 1 <= levels[0] <= levels[1] <= 10:
        hint = "levels are 1 (easy) to 10: write --level 3 or --level 1..5"
        raise ConfigError(f"{text!r} is no level", hint)
    return levels


@app.command("general", epilog=GENERAL_EXAMPLES)
def general(
    out: Out,
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="trip_planning, order_management or meeting_scheduling; repeatable. Default: all.",
        ),
    ] = None,
    environments: Annotated[int, typer.Option(min=1, metavar="N", help="Databases to make.")] = 6,
    tasks_per_environment: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most tasks over one database.")
    ] = 2,
    level: Annotated[
        str, typer.Option(metavar="LEVELS", help="1 (easy) .. 10: one level or a range.")
    ] = "1..5",
    seed: Seed = 0,
    name: Annotated[str, typer.Option(metavar="ID", help="The dataset's name.")] = "general",
    workers: Workers = None,
    backend: Backend = "auto",
    json: Json = None,
) -> None:
    """Synthesize <environment, tools, task, verifier> tuples, each proven by all gates.

    Needs no model. Stopped, the same command goes on where it was.
    """
    from envgen.pipelines.general.generate import GenerateConfig
    from envgen.pipelines.general.generate import generate as make

    low, high = parse_levels(level)
    config = GenerateConfig(
        categories=tuple(category or ()),
        environments=environments,
        tasks_per_environment=tasks_per_environment,
        min_level=low,
        max_level=high,
        seed=seed,
        name=name,
    )
    with progress("generating") as update:
        summary = make(config, out, workers=workers, backend=backend, progress=update)
    shown = table("what", "n ", title=str(summary.path))
    shown.add_row("environments", str(summary.environments))
    shown.add_row("proven tasks", str(summary.tasks))
    shown.add_row("drafts", str(summary.drafted))
    for gate, n in summary.rejected.items():
        shown.add_row(f"  rejected by {gate}", str(n))
    shown.add_row("seconds", f"{summary.seconds:.1f}")
    shown.add_row("tasks per second", f"{summary.tasks_per_second:.2f}")
    stdout.print(shown)
    write_json(json, summary)

"""``envgen export``: a dataset's tasks, or a run's episodes, as files that others read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from envgen.cli.console import STDOUT, out, progress, remark, say, write_json
from envgen.cli.options import Json, Unproven, examples, open_dataset
from envgen.cli.outcome import require
from envgen.core.errors import ConfigError

if TYPE_CHECKING:
    from envgen.rollout.export import EpisodeFilter


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(
        "export",
        epilog=examples(
            "envgen export ds/ --format parquet",
            "envgen export ds/ --out prompts.jsonl",
            "envgen export code/ --format swe-bench",
            "envgen export runs/x --format parquet --out episodes.parquet",
            "envgen export runs/x --format openai-sft --data ds/ --passed-only",
        ),
    )(export)


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A dataset folder, package:NAME, or a run folder of `envgen rollout`.",
            show_default=False,
        ),
    ],
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Default: SOURCE.FORMAT, here; -: to stdout."
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of a dataset: jsonl (default), parquet, or for code tasks swe-bench, ...; "
            "of a run: messages (default), openai-sft, parquet.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET", help="Of a run: the dataset that was rolled out, for the tools."
        ),
    ] = None,
    passed_only: Annotated[
        bool, typer.Option("--passed-only", help="Of a run: episodes that passed.")
    ] = False,
    min_reward: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="X", help="Of a run: this reward or more; 0: all but errors."
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Of a run: database URL instead of run.sqlite."),
    ] = None,
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Export a dataset's tasks, or a run's episodes, to one file.

    jsonl and parquet hold the public part of tasks: prompts, tools, schemas and rules; no solution, verifier,
    rows or probes. The records of code tasks (swe-bench, swe-bench-live, swe-rebench, swe-gym,
    multi-swe-bench) do hold them. Of a run there is one record an episode (docs/trajectories.md);
    openai-sft leaves out episodes that an error spoiled; the other formats mark them.
    """
    out.stderr = out.stderr or out_path == STDOUT  # else talk would stand among the records
    if (source / "run.json").is_file():
        from envgen.rollout.export import EpisodeFilter

        chosen = EpisodeFilter(passed_only=passed_only, min_reward=min_reward)
        _export_run(source, out_path, format or "messages", chosen, data, db, unproven, json)
        return
    if data is not None or passed_only or min_reward is not None or db is not None:
        raise ConfigError(
            f"{str(source)!r} is no run: --data, --passed-only, --min-reward and --db are for runs",
            "give a run folder of `envgen rollout`, or leave them out",
        )
    _export_dataset(source, out_path, format or "jsonl", unproven, json)


def _export_dataset(
    source: Path, out_path: Path | None, format: str, unproven: bool, json: Path | None
) -> None:
    opened = open_dataset(source, unproven=unproven)
    name = opened.path.resolve().name
    if format in ("jsonl", "parquet"):
        from envgen.store.subset import export as write

        kind: Literal["jsonl", "parquet"] = "parquet" if format == "parquet" else "jsonl"
        path = out_path or Path(f"{name}.{format}")
        with progress("exporting") as update:
            n = write(opened, None if path == STDOUT else path, kind, progress=update)
    else:
        from envgen.pipelines.code.export import export_records
        from envgen.pipelines.code.formats.registry import FORMATS

        if format not in FORMATS:
            raise ConfigError(
                f"unknown format {format!r}",
                f"one of jsonl, parquet; for code tasks also {', '.join(FORMATS)}",
            )
        if out_path == STDOUT:
            raise ConfigError(f"{format} can't go to standard output", "name a file with --out")
        path = out_path or Path(f"{name}.{format}.jsonl")
        n = export_records(opened, path, format)
    say(f"wrote {n} task{'' if n == 1 else 's'} to {path}")
    write_json(json, {"path": str(path), "tasks": n, "bytes": _size(path)})
    require(n, None, "tasks written")


def _export_run(
    run: Path,
    out_path: Path | None,
    format: str,
    chosen: EpisodeFilter,
    data: Path | None,
    db: str | None,
    unproven: bool,
    json: Path | None,
) -> None:
    from envgen.rollout.export import export_run

    ending = {"parquet": "parquet", "openai-sft": "openai-sft.jsonl"}.get(format, "jsonl")
    path = out_path or Path(f"{run.resolve().name}.{ending}")
    dataset = None if data is None else open_dataset(data, unproven=unproven)
    with progress("exporting") as update:
        found = export_run(
            run,
            None if path == STDOUT else path,
            format,
            chosen=chosen,
            dataset=dataset,
            db_url=db,
            progress=update,
        )
    say(f"wrote {found.written} of {found.stored} episodes to {path}")
    write_json(json, {"path": str(path), **found._asdict(), "bytes": _size(path)})
    require(found.written, None, "episodes written", "the filters leave none, or the run has none")
    if found.errors:
        remark(
            f"warning: {found.errors} of them are errors, without a reward; --min-reward 0 drops them"
        )


def _size(path: Path) -> int | None:
    return None if path == STDOUT else path.stat().st_size

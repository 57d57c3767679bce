"""Commands about a dataset: list, validate, variants, export; ``show`` has its own file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from envgen.cli.console import out, progress, say, table, write_json
from envgen.cli.options import (
    Backend,
    DatasetPath,
    Json,
    Out,
    Seed,
    Tasks,
    Unproven,
    Workers,
    examples,
    open_dataset,
)
from envgen.cli.show import density_text, show
from envgen.core.types import GateStatus, TaskSpec

if TYPE_CHECKING:
    from envgen.store.dataset import Dataset


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(
        "list",
        epilog=examples("envgen list ds/", "envgen list package:trip_planning --json tasks.json"),
    )(list_tasks)
    app.command(
        "show", epilog=examples("envgen show ds/ TASK", "envgen show ds/ TASK --secrets | less")
    )(show)
    app.command(
        "validate",
        epilog=examples(
            "envgen validate ds/",
            "envgen validate ds/ --seed 1",
            "envgen validate code/ --repeats 3",
        ),
    )(validate)
    app.command(
        "variants", epilog=examples("envgen variants ds/ --per-task 500 --seed 9 --out train/")
    )(variants)
    app.command(
        "export",
        epilog=examples(
            "envgen export ds/ --format parquet",
            "envgen export ds/ --out prompts.jsonl",
            "envgen export code/ --format swe-bench",
        ),
    )(export)


def list_tasks(dataset: DatasetPath, unproven: Unproven = False, json: Json = None) -> None:
    """List a dataset's tasks: how hard, how well proven."""
    opened = open_dataset(dataset, unproven=unproven)
    counts = opened.manifest.counts
    numbers = [
        f"{n} {word}{'' if n == 1 else 's'}"
        for n, word in (
            (counts.environments, "environment"),
            (counts.tasks, "task"),
            (counts.variants, "variant"),
        )
    ]
    out.print(Text(f"{opened.manifest.name}: {', '.join(numbers)}", style="bold"), soft_wrap=True)
    shown = table("task", "split", "level ", "density ", "calls ", "killed ", "pass@1")
    tasks = [opened.tasks[task_id] for task_id in opened.own_task_ids]
    for task in sorted(tasks, key=lambda t: (t.difficulty.level, t.id)):
        shown.add_row(task.id, task.split, *figures(task))
    out.print(shown)
    say("calls: tool calls of the solution; killed: share of wrong verifiers told apart")
    write_json(json, [task.model_dump(mode="json") for task in tasks])


def figures(task: TaskSpec) -> tuple[str, str, str, str, str]:
    """Level, density, gold calls, kill rate and pass@1 of a task, as text."""
    difficulty = task.difficulty
    kill = next((r.figure for r in task.evidence if r.gate == "mutants"), None)
    rates = ", ".join(f"{p.policy} {p.c}/{p.n}" for p in task.pass_at)
    return (
        str(difficulty.level),
        density_text(difficulty.density.value) if difficulty.density else "-",
        str(difficulty.minimum_calls),
        "-" if kill is None else f"{math.floor(100 * kill)}%",  # one survivor is not 100 %
        rates or "-",
    )


def validate(
    dataset: DatasetPath,
    seed: Seed = 0,
    variants: Annotated[
        int, typer.Option(min=0, metavar="N", help="Variants to replay, drawn at random.")
    ] = 20,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of a code task's gold patch and of none.")
    ] = 3,
    backend: Backend = "auto",
    json: Json = None,
) -> None:
    """Prove a dataset again from its files alone.

    Every gate runs again, in a sandbox, but the one that plays episodes (a rollout of random-valid does);
    code tasks are built anew, and their gold patch, no patch and the test patch alone are judged. A table
    shows what holds, and the exit code is 1 if one fails.
    """
    from envgen.pipelines.general.validate import validate as check

    opened = open_dataset(dataset, unproven=True)
    if opened.own_task_ids and all(task.family == "code" for task in opened.tasks.values()):
        validate_code(opened, dataset, repeats, backend, json)
        return
    path = opened.path
    with progress("validating") as update:
        report = check(path, seed=seed, backend=backend, variants=variants, progress=update)
    shown = table("task", "method", "gates passed ", "result", title=str(dataset))
    for task in report.tasks:
        passed = sum(result.status is GateStatus.PASSED for result in task.evidence)
        failure = task.failure
        verdict = Text("holds", style="green")
        if failure is not None:
            verdict = Text.assemble((failure.gate, "red"), f": {failure.reason}")
        shown.add_row(task.task_id, task.method, f"{passed}/{len(task.evidence)}", verdict)
    for result in report.dataset_evidence:
        style = {"passed": "green", "failed": "red"}.get(result.status, "yellow")
        verdict = Text.assemble((result.status.value, style), f" {result.reason}".rstrip())
        figure = "-" if result.figure is None else f"{result.figure:.3g} (n={result.n})"
        shown.add_row("whole dataset", result.gate, figure, verdict)
    out.print(shown)
    failed = sum(not task.passed for task in report.tasks)
    say(f"{failed} of {len(report.tasks)} fail" if failed else f"all {len(report.tasks)} hold")
    if not failed and not report.passed:
        say("the dataset as a whole fails: generate more kinds of tasks, or over other seeds")
    write_json(json, report)
    if not report.passed:
        raise typer.Exit(1)


def validate_code(
    opened: Dataset, dataset: Path, repeats: int, backend: str, json: Path | None
) -> None:
    """``validate`` for a dataset of code tasks."""
    from envgen.environments.families import code_backend
    from envgen.pipelines.code.revalidate import revalidate

    with progress("validating") as update:
        report = revalidate(opened, repeats=repeats, backend=code_backend(backend), progress=update)
    shown = table("task", "gold ", "no patch ", "result", title=str(dataset))
    for task in report.tasks:
        verdict = Text("holds", style="green") if task.passed else Text(task.failure, style="red")
        golds, empties = f"{task.gold}/{task.repeats}", f"{task.empty}/{task.repeats}"
        shown.add_row(task.task_id, golds, empties, verdict)
    out.print(shown)
    failed = sum(not task.passed for task in report.tasks)
    say(f"{failed} of {len(report.tasks)} fail" if failed else f"all {len(report.tasks)} hold")
    write_json(json, report)
    if failed:
        raise typer.Exit(1)


def variants(
    dataset: DatasetPath,
    out_path: Out,
    per_task: Annotated[int, typer.Option(min=1, metavar="N", help="Variants of each task.")] = 100,
    task: Tasks = None,
    seed: Seed = 0,
    workers: Workers = None,
    backend: Backend = "auto",
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Make training episodes: proven tasks over new rows.

    Each variant has its own rows and re-bound parameters; its gold, verifier and an independent solver
    agree, the other gates are inherited. The dataset at --out holds the parents too.
    """
    from envgen.pipelines.general.variants import VariantsConfig
    from envgen.pipelines.general.variants import variants as make

    path = open_dataset(dataset, unproven=unproven).path
    config = VariantsConfig(per_task=per_task, seed=seed, task_ids=tuple(task or ()))
    with progress("variants") as update:
        summary = make(
            config, path, out_path,
            workers=workers, backend=backend, unproven=unproven, progress=update,
        )  # fmt: skip
    shown = table("what", "n ", title=summary.path)
    shown.add_row("parents", str(summary.parents))
    shown.add_row("variants", str(summary.variants))
    shown.add_row("re-seeds rejected", str(summary.rejected))
    shown.add_row("megabytes", f"{summary.bytes / 1e6:.1f}")
    shown.add_row("seconds", f"{summary.seconds:.1f}")
    shown.add_row("variants per second", f"{summary.variants_per_second:.0f}")
    out.print(shown)
    if summary.skipped_parents:
        say(f"can't be re-seeded: {', '.join(summary.skipped_parents)}")
    write_json(json, summary)


def export(
    dataset: DatasetPath,
    out_path: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Default: DATASET.FORMAT, here."),
    ] = None,
    format: Annotated[
        str, typer.Option(metavar="NAME", help="jsonl, parquet, or for code tasks: swe-bench, ...")
    ] = "jsonl",
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Export the tasks' public part to one file, or code tasks as records that others read.

    jsonl and parquet hold prompts, tools, schemas and rules; no solution, verifier, rows or probes. The
    records of code tasks (swe-bench, swe-bench-live, swe-rebench, swe-gym, multi-swe-bench) do hold them.
    """
    opened = open_dataset(dataset, unproven=unproven)
    name = opened.path.resolve().name
    if format in ("jsonl", "parquet"):
        from envgen.store.subset import export as write

        kind: Literal["jsonl", "parquet"] = "parquet" if format == "parquet" else "jsonl"
        path = out_path or Path(f"{name}.{format}")
        with progress("exporting") as update:
            n = write(opened, path, kind, progress=update)
    else:
        from envgen.pipelines.code.export import export_records

        path = out_path or Path(f"{name}.{format}.jsonl")
        n = export_records(opened, path, format)
    say(f"wrote {n} task{'' if n == 1 else 's'} to {path}")
    write_json(json, {"path": str(path), "tasks": n, "bytes": path.stat().st_size})

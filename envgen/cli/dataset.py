"""Commands about a dataset: list, show, validate, variants, export."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.panel import Panel

from envgen.cli.console import out, progress, table, write_json
from envgen.cli.options import Backend, DatasetPath, Json, Out, Seed, Unproven, Workers
from envgen.core.types import GateResult, GateStatus, TaskSpec
from envgen.store.dataset import Dataset

COLOURS = {
    GateStatus.PASSED: "green",
    GateStatus.FAILED: "red",
    GateStatus.NOT_APPLICABLE: "dim",
    GateStatus.NOT_RUN: "yellow",
}


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command("list")(list_tasks)
    app.command("show")(show)
    app.command("validate")(validate)
    app.command("variants")(variants)
    app.command("export")(export)


def list_tasks(dataset: DatasetPath, unproven: Unproven = False, json: Json = None) -> None:
    """List the tasks of a dataset."""
    opened = Dataset.open(dataset, unproven=unproven)
    counts = opened.manifest.counts
    title = f"{opened.manifest.name}: {counts.environments} environments, {counts.tasks} tasks"
    shown = table(
        f"{title}, {counts.variants} variants",
        "task", "environment", "split", "level ", "density ", "gold calls ", "kill rate ", "pass@1",
    )  # fmt: skip
    for task_id in opened.own_task_ids:
        task = opened.tasks[task_id]
        category = opened.environments[task.environment_id].category
        shown.add_row(task_id, category, task.split, *figures(task))
    out.print(shown)
    write_json(
        json, [opened.tasks[task_id].model_dump(mode="json") for task_id in opened.own_task_ids]
    )


def figures(task: TaskSpec) -> tuple[str, str, str, str, str]:
    """Level, density, gold calls, kill rate and pass@1 of a task, as text."""
    difficulty = task.difficulty
    kill = next((r.figure for r in task.evidence if r.gate == "mutants"), None)
    rates = ", ".join(f"{p.policy} {p.c}/{p.n}" for p in task.pass_at)
    return (
        str(difficulty.level),
        f"{difficulty.density.value:.1e}" if difficulty.density else "-",
        str(difficulty.minimum_calls),
        "-" if kill is None else f"{kill:.2f}",
        rates or "-",
    )


def show(
    dataset: DatasetPath,
    task: Annotated[str, typer.Argument(help="A task id (see `envgen list`).")],
    secrets: Annotated[bool, typer.Option(help="Also show solution and verifier.")] = False,
    unproven: Unproven = False,
) -> None:
    """Read one task: prompt, tools, rules and evidence."""
    opened = Dataset.open(dataset, unproven=unproven)
    spec = find_task(opened, task)
    environment = opened.environments[spec.environment_id]
    out.print(Panel(escape(spec.prompt), title=f"{environment.title}: {task}", title_align="left"))
    if environment.policy_text:
        out.print(Panel(escape(environment.policy_text), title="policy", title_align="left"))
    tools = table("tools", "name", "arguments", "what it does")
    for tool in environment.tools:
        arguments = tool.parameters.get("properties", {})
        names = ", ".join(arguments) if isinstance(arguments, dict) else ""
        mark = " (writes)" if tool.mutates else ""
        tools.add_row(tool.name, names, escape(tool.description) + mark)
    out.print(tools)
    steps = " > ".join(step.operator for step in spec.difficulty.lineage)
    out.print(f"\nlevel {spec.difficulty.level}" + (f": {steps}" if steps else ""))
    out.print(evidence_table(spec.evidence))
    if secrets:
        files = opened.task_files(task)
        out.print(Panel(escape(files.solution), title="solution.py", title_align="left"))
        out.print(Panel(escape(files.verifier), title="verifier.py", title_align="left"))


def find_task(dataset: Dataset, task_id: str) -> TaskSpec:
    """The task, or a ConfigError that names similar ids."""
    from difflib import get_close_matches

    from envgen.core.errors import ConfigError

    if task_id not in dataset.tasks:
        near = get_close_matches(task_id, list(dataset.own_task_ids), n=3, cutoff=0.3)
        raise ConfigError(
            f"no task {task_id!r} in {str(dataset.path)!r}",
            f"did you mean {', '.join(near)}?" if near else "see `envgen list`",
        )
    return dataset.tasks[task_id]


def evidence_table(evidence: tuple[GateResult, ...]) -> object:
    """Gates and what they found."""
    shown = table("evidence", "gate", "status", "n ", "figure ", "reason")
    for result in evidence:
        colour = COLOURS[result.status]
        figure = "" if result.figure is None else f"{result.figure:.4g}"
        status = result.status.value + (" (inherited)" if result.inherited_from else "")
        shown.add_row(
            result.gate, f"[{colour}]{status}[/]", str(result.n), figure, escape(result.reason)
        )
    return shown


def validate(
    dataset: DatasetPath,
    seed: Seed = 0,
    variants: Annotated[int, typer.Option(help="Variants to replay, drawn at random.")] = 20,
    backend: Backend = "auto",
    json: Json = None,
) -> None:
    """Prove a dataset again from its files alone; exit 1 and a table if a gate fails."""
    from envgen.pipelines.general.validate import validate as check

    with progress("validating") as update:
        report = check(dataset, seed=seed, backend=backend, variants=variants, progress=update)
    shown = table(f"{report.path}", "task", "method", "gates passed ", "result")
    for task in report.tasks:
        passed = sum(result.status is GateStatus.PASSED for result in task.evidence)
        failure = task.failure
        verdict = (
            "[green]holds[/]"
            if failure is None
            else f"[red]{failure.gate}[/]: {escape(failure.reason)}"
        )
        shown.add_row(task.task_id, task.method, f"{passed}/{len(task.evidence)}", verdict)
    out.print(shown)
    write_json(json, report)
    if not report.passed:
        raise typer.Exit(1)


def variants(
    dataset: DatasetPath,
    out_path: Out,
    per_task: Annotated[int, typer.Option(help="Variants of each task.")] = 100,
    task: Annotated[list[str] | None, typer.Option(help="Only these parents; repeatable.")] = None,
    seed: Seed = 0,
    workers: Workers = None,
    backend: Backend = "auto",
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Make training episodes: proven tasks over new rows with re-bound parameters."""
    from envgen.pipelines.general.variants import VariantsConfig
    from envgen.pipelines.general.variants import variants as make

    config = VariantsConfig(per_task=per_task, seed=seed, task_ids=tuple(task or ()))
    with progress("variants") as update:
        summary = make(
            config, dataset, out_path,
            workers=workers, backend=backend, unproven=unproven, progress=update,
        )  # fmt: skip
    shown = table(summary.path, "what", "n ")
    shown.add_row("parents", str(summary.parents))
    shown.add_row("variants", str(summary.variants))
    shown.add_row("re-seeds rejected", str(summary.rejected))
    shown.add_row("megabytes", f"{summary.bytes / 1e6:.1f}")
    shown.add_row("variants per second", f"{summary.variants_per_second:.0f}")
    out.print(shown)
    if summary.skipped_parents:
        out.print(f"can't be re-seeded: {', '.join(summary.skipped_parents)}")
    write_json(json, summary)


def export(
    dataset: DatasetPath,
    out_path: Out,
    format: Annotated[Literal["jsonl", "parquet"], typer.Option(help="File format.")] = "jsonl",
    unproven: Unproven = False,
) -> None:
    """Export the public part of every task (no solution, verifier, rows or probes)."""
    from envgen.store.subset import export as write

    n = write(Dataset.open(dataset, unproven=unproven), out_path, format)
    out.print(f"wrote {n} tasks to {out_path}")

"""Commands about a dataset: list, validate, variants; ``show`` and ``export`` have files of their own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from envgen.cli.console import out, progress, remark, say, table, write_json
from envgen.cli.options import (
    Backend,
    DatasetPath,
    Json,
    Out,
    Seed,
    Tasks,
    Trust,
    Unproven,
    Workers,
    examples,
    open_dataset,
)
from envgen.cli.outcome import require
from envgen.cli.show import density_text, show
from envgen.core.types import GateStatus, TaskSpec

if TYPE_CHECKING:
    from envgen.pipelines.packed.pack import PackedTask
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
        "pack",
        epilog=examples(
            "envgen pack examples/library_loans --out loans/",
            "envgen pack my-desk/ --out desk/ --json desk.json",
        ),
    )(pack)
    app.command(
        "variants", epilog=examples("envgen variants ds/ --per-task 500 --seed 9 --out train/")
    )(variants)


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
    tasks = [opened.tasks[task_id] for task_id in opened.own_task_ids]
    code = any(task.family == "code" for task in tasks)
    heads = ("task", "split", "level ", "density ", "calls ", "killed ", "pass@1")
    shown = table(*heads, *(("verdicts proven",) if code else ()))
    for task in sorted(tasks, key=lambda t: (t.difficulty.level, t.id)):
        shown.add_row(task.id, task.split, *figures(task), *((proof(task),) if code else ()))
    out.print(shown)
    say("calls: tool calls of the solution; killed: share of wrong verifiers told apart")
    if code:
        say(
            "verdicts proven: fail-to-pass tests that only code which computes the answer passes, of all"
        )
    write_json(json, [task.model_dump(mode="json") for task in tasks])
    require(len(tasks), None, "tasks in the dataset")


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


def proof(task: TaskSpec) -> str:
    """How many verdicts of a code task are proven, and the chance of a blind guess at one of them."""
    if task.family != "code":
        return "-"
    gate = next((result for result in task.evidence if result.gate == "verdicts"), None)
    if gate is None or not gate.figure:
        return "none: report believed"
    odds = gate.details.get("odds")
    guess = f", odds <= 1/{1 / odds:.0f}" if isinstance(odds, float) and odds else ""
    return f"{gate.figure:.0f} of {gate.n}{guess}"


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
    trust: Trust = False,
    json: Json = None,
) -> None:
    """Prove a dataset again from its files alone.

    Every gate runs again, in a sandbox, and everything stored is compared with what follows from it;
    tasks of another version or author are judged by evaluation, without comparing texts. Code tasks
    are built anew, and their gold patch, no patch and the test patch alone are judged. A table shows
    what holds, and the exit code is 1 if one fails.
    """
    from envgen.pipelines.general.validate import validate as check

    opened = open_dataset(dataset, unproven=True)
    if opened.own_task_ids and all(task.family == "code" for task in opened.tasks.values()):
        validate_code(opened, dataset, repeats, backend, json)
        return
    path = opened.path
    with progress("validating") as update:
        report = check(
            path, seed=seed, backend=backend, variants=variants, trust=trust, progress=update
        )
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
        whole = (one for one in report.dataset_evidence if one.status is GateStatus.FAILED)
        say(f"the dataset as a whole fails: {', '.join(one.gate for one in whole)}")
    write_json(json, report)
    require(len(report.tasks), None, "tasks to prove")
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
    if report.tables.status is not GateStatus.PASSED:
        say(f"tables: {report.tables.reason}")
    write_json(json, report)
    if not report.passed:
        raise typer.Exit(1)


def pack(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="tools.py, a database and tasks; see docs/pack.md.",
            show_default=False,
        ),
    ],
    out_path: Out,
    seed: Seed = 0,
    backend: Backend = "auto",
    trust: Trust = False,
    json: Json = None,
) -> None:
    """Make a proven dataset of an environment that you wrote.

    FOLDER holds tools.py, database.sqlite or database.sql, and tasks/NAME/ with prompt.md, submit.json,
    verifier.py and, if you can, solution.py. Every gate that can run is run, in a sandbox; the dataset is
    written only if every task passes. Run it again after an edit: what has not changed is not proven again.
    """
    from envgen.pipelines.packed.gates import HINTS
    from envgen.pipelines.packed.pack import pack as make

    with progress("packing") as update:
        summary = make(folder, out_path, seed=seed, backend=backend, trust=trust, progress=update)
    shown = table(
        "task", "gold calls ", "faults seen ", "gates passed ", "result", title=str(out_path)
    )
    for task in summary.tasks:
        shown.add_row(task.task_id, *_packed_cells(task))
    out.print(shown)
    skipped = {
        one.gate: one.reason
        for task in summary.tasks
        for one in task.evidence
        if one.status is GateStatus.NOT_APPLICABLE
    }
    say("not applicable: " + "; ".join(f"{gate} ({why})" for gate, why in skipped.items()))
    write_json(json, summary)
    for gate in dict.fromkeys(one.gate for task in summary.tasks for one in task.failures):
        remark(f"{gate}: {HINTS[gate]}")
    if not summary.passed:
        say("nothing was written; mend the tasks that fail and run the command again")
        raise typer.Exit(1)
    say(f"next: envgen show {out_path}; envgen rollout {out_path} --policy gold --out runs/gold")


def _packed_cells(task: PackedTask) -> tuple[str, str, str, Text]:
    """Gold calls, kill rate, gates passed and verdict of a packed task."""
    found = {one.gate: one for one in task.evidence}
    calls = found["gold"].details.get("calls", "-")
    kill = found["mutants"].figure
    passed = sum(one.status is GateStatus.PASSED for one in task.evidence)
    tried = sum(one.status is not GateStatus.NOT_APPLICABLE for one in task.evidence)
    verdict = Text("unchanged" if task.reused else "proven", style="green")
    if task.failures:
        failed = task.failures[0]
        verdict = Text.assemble((failed.gate, "red"), f": {failed.reason}")
    elif found["gold"].status is GateStatus.NOT_APPLICABLE:
        verdict = Text("holds, but nobody has shown that it can be solved", style="yellow")
    rate = "-" if kill is None else f"{math.floor(100 * kill)}%"
    return str(calls), rate, f"{passed}/{tried}", verdict


def variants(
    dataset: DatasetPath,
    out_path: Out,
    per_task: Annotated[int, typer.Option(min=1, metavar="N", help="Variants of each task.")] = 100,
    task: Tasks = None,
    seed: Seed = 0,
    workers: Workers = None,
    backend: Backend = "auto",
    unproven: Unproven = False,
    trust: Trust = False,
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
            workers=workers, backend=backend, unproven=unproven, trust=trust, progress=update,
        )  # fmt: skip
    shown = table("what", "n ", title=summary.path)
    shown.add_row("parents", str(summary.parents))
    shown.add_row("variants", str(summary.variants))
    shown.add_row("re-seeds rejected", str(summary.rejected))
    shown.add_row("megabytes", f"{summary.bytes / 1e6:.1f}")
    shown.add_row("seconds", f"{summary.seconds:.1f}")
    shown.add_row("variants per second", f"{summary.variants_per_second:.0f}")
    out.print(shown)
    write_json(json, summary)
    for reason, n in list(summary.reasons.items())[:3]:
        remark(f"  {n} x {reason}")
    skipped = ", ".join(summary.skipped_parents)
    why = f"can't be re-seeded: {skipped}; " if skipped else ""
    why += f"{summary.rejected} re-seeds were rejected"
    require(summary.variants, summary.asked, "variants made", why)

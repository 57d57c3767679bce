"""Commands about rollouts: rollout, pass-at-k, filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from envgen.cli.console import out, progress, remark, say, table, time_left, write_json
from envgen.cli.options import (
    Backend,
    DatasetPath,
    Json,
    MaxErrors,
    MaxTurns,
    Out,
    PolicyOptions,
    Preflight,
    Seed,
    Style,
    Tasks,
    Trust,
    Unproven,
    examples,
    parse_options,
)
from envgen.cli.outcome import require
from envgen.core.errors import ConfigError

if TYPE_CHECKING:
    from envgen.rollout.pass_at_k import PassReport

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder that `envgen rollout` wrote.")
]
Db = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="Database URL instead of RUN/run.sqlite."),
]


WIDE = 110
"""Columns from which on a table of tasks has all intervals."""


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(
        "rollout",
        epilog=examples(
            "envgen rollout ds/ --policy random-valid --n 100 --out runs/x",
            "envgen rollout ds/ --policy openai:MODEL@http://localhost:8000/v1 --max-cost 5 --out runs/m",
            "envgen rollout ds/ --policy dsa:m/ --n 8 --max-tokens 512 --out runs/d",
            "envgen rollout ds/ --policy openai:MODEL@http://localhost:8000/v1 --style agent --out runs/a",
        ),
    )(rollout)
    app.command(
        "pass-at-k",
        epilog=examples("envgen pass-at-k runs/x", "envgen pass-at-k runs/x --k 1,8 --no-tasks"),
    )(pass_at_k)
    app.command(
        "filter",
        epilog=examples(
            "envgen filter ds/ --rollouts runs/x --max-pass-at-1 0.95 --out kept/",
            "envgen filter ds/ --rollouts runs/m --pass-at 8 --min 0.1 --inclusive --out kept/",
            "envgen filter code/ --proof strict --out proven/",
        ),
    )(filter_dataset)


def parse_ks(text: str) -> tuple[int, ...]:
    """``"1,10,100"`` as numbers.

    Raises:
        ConfigError: unless each is a number of at least 1.
    """
    try:
        ks = tuple(int(part) for part in text.split(","))
    except ValueError:
        ks = ()
    if not ks or min(ks) < 1:
        raise ConfigError(f"{text!r} is no list of k", "write --k 1,10,100")
    return ks


def rollout(
    dataset: DatasetPath,
    out_path: Out,
    policy: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="random, random-valid, greedy, gold, noisy-gold:P, hasty:P, replay:PATH, "
            "record:PATH:POLICY, scripted:PATH, "
            "dsa:FOLDER, openai:MODEL@URL, vllm:MODEL@URL or sglang:MODEL@URL.",
        ),
    ],
    n: Annotated[int, typer.Option(min=1, metavar="N", help="Episodes of each task.")] = 1,
    seed: Seed = 0,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Threads for a model (default: server 8, dsa 32), processes for an offline policy.",
        ),
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0, metavar="USD", help="Stop at this many dollars.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0, metavar="X", help="Sampling temperature.")
    ] = 1.0,
    top_p: Annotated[float, typer.Option(max=1, metavar="X", help="Nucleus sampling.")] = 1.0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most tokens of one reply.")
    ] = None,
    task: Tasks = None,
    variants: Annotated[bool, typer.Option("--variants", help="Play the variants, too.")] = False,
    max_turns: MaxTurns = None,
    style: Style = None,
    option: PolicyOptions = None,
    preflight: Preflight = True,
    max_errors: MaxErrors = 5,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Play a stored run's errored episodes again.")
    ] = False,
    backend: Backend = "auto",
    isolate: Annotated[
        Literal["environment", "episode"],
        typer.Option(metavar="WHAT", help="What has a sandbox of its own: environment or episode."),
    ] = "environment",
    db: Db = None,
    unproven: Unproven = False,
    trust: Trust = False,
    json: Json = None,
) -> None:
    """Play episodes and store them.

    The same command goes on where a stopped run left off.
    """
    from envgen.core.types import Sampling
    from envgen.policies.registry import PolicyConfig
    from envgen.rollout.run import Progress, RolloutConfig
    from envgen.rollout.run import rollout as run

    config = RolloutConfig(
        dataset=str(dataset),
        policy=PolicyConfig(spec=policy, options=parse_options(option)),
        out=str(out_path),
        n=n,
        seed=seed,
        task_ids=tuple(task) if task else None,
        variants=variants,
        max_turns=max_turns,
        style=style,
        sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
        concurrency=concurrency,
        backend=backend,
        isolate=isolate,
        max_cost_usd=max_cost,
        unproven=unproven,
        trust=trust,
        retry_errors=retry_errors,
        preflight=preflight,
        max_errors=max_errors,
        db_url=db,
    )
    with progress(f"rollouts of {policy}") as update:

        def on_progress(now: Progress) -> None:
            said = f"{now.passed} passed, {now.errors} errors"
            if now.replies and not now.done:  # its episodes may all end at once
                left = time_left(now.seconds, now.replies, now.replies + now.replies_left)
                said = f"{now.replies} replies, {left or 'nothing left'} if all use their turns up"
            update(now.done, now.total, said)

        summary = run(config, progress=on_progress)
    shown = table("what", "value ", title=str(out_path))
    rows: dict[str, str] = {
        "tasks": str(summary.tasks),
        "episodes stored": f"{summary.samples} of {summary.wanted}",
        "of these new": str(summary.new),
        **({f"of these no {style} record": str(sum(summary.misfits.values()))} if style else {}),
        "passed": str(summary.passed),
        "errors": str(summary.errors),
        "tool calls, mean": f"{summary.mean_calls:.1f}",
        "reached the verifier": f"{summary.reached_verifier:.0%}",
        "cost": f"${summary.cost_usd:.4f}",
        "seconds": f"{summary.seconds:.1f}",
    }
    for name, value in rows.items():
        shown.add_row(name, value)
    out.print(shown)
    for fault, count in summary.faults.items():
        remark(f"{count} x {fault}")
    tell_tool_faults(summary.tool_faults)
    for why, count in summary.misfits.items():
        remark(f"{count} x no {style} record, `train sft` leaves it out: {why}")
    write_json(json, summary)
    if summary.ended != "complete":
        why = "the budget is spent" if summary.ended == "cost" else "interrupted"
        remark(f"stopped: {why}; the same command goes on from here")
    again = "--retry-errors plays what errors have spoiled again" if summary.errors else ""
    require(summary.samples - summary.errors, summary.wanted, "episodes played", again)
    if summary.new:
        require(summary.new - summary.spoiled, None, "new episodes played", again)


def tell_tool_faults(faults: Mapping[str, int]) -> None:
    """Say what tools and verifiers did that no spec documents."""
    for fault, count in faults.items():
        remark(
            f"{count} x a fault of the environment, which the agent was told of or not paid for: {fault}"
        )


def pass_at_k(
    run: Run,
    k: Annotated[
        str, typer.Option("--k", metavar="LIST", help="Which k, with commas.")
    ] = "1,10,100",
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, metavar="X", help="Of the intervals.")
    ] = 0.95,
    tasks: Annotated[bool, typer.Option(help="A row for each task, not only each level.")] = True,
    db: Db = None,
    json: Json = None,
) -> None:
    """Estimate pass@k per task and level, with intervals.

    The estimate is unbiased. A task's interval is about that task (more episodes narrow it); that of a
    level, or of all, is over databases (more databases narrow it), as `envgen eval` tells it.
    A task with fewer than k error-free episodes is undecided (-).
    """
    from envgen.rollout.pass_at_k import run_report

    report = run_report(run, parse_ks(k), confidence=confidence, db_url=db)
    ks = report.ks
    if tasks:
        _task_table(report, run)
    heads, with_interval = _heads(report)
    means = table(report.policy, "tasks ", "solved ", "episodes ", "errors ", *heads)
    for group in (*report.levels, report.total):
        cells = []
        for i in ks:
            cells.append(_rate(group.means[i]))
            if i in with_interval:
                cells.append(_ends(group.intervals.get(i)))
        counts = (group.tasks, group.solved, group.samples, group.errors)
        means.add_row(group.group, *map(str, counts), *cells)
    out.print(means)
    if len(with_interval) < len(ks):
        say("the other intervals: a wider terminal, or --json FILE")
    write_json(json, report)
    require(
        report.total.samples, None, "error-free episodes", "see `envgen rollout --retry-errors`"
    )
    for one in ks:
        decided = report.total.tasks - report.total.undecided[one]
        least = (
            f"pass@{one} needs {one} error-free episodes of a task: a smaller --k, or more of them"
        )
        require(
            decided, report.total.tasks, f"tasks have a pass@{one}", least, fatal=one == min(ks)
        )


def _heads(report: PassReport) -> tuple[list[str], Sequence[int]]:
    """Columns of estimates; a narrow terminal gets the first k's interval only."""
    with_interval = report.ks if out.width >= WIDE else report.ks[:1]
    heads: list[str] = []
    for k in report.ks:
        heads += [f"pass@{k} ", f"{report.confidence:.0%} "][: 1 + (k in with_interval)]
    return heads, with_interval


def _ends(interval: tuple[float, float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}"


def _task_table(report: PassReport, run: Path) -> None:
    """Estimates and intervals per task."""
    heads, with_interval = _heads(report)
    shown = table("task", "level ", "n ", "passed ", "errors ", *heads, title=str(run))
    for one in report.tasks:
        cells: list[str] = []
        for k in report.ks:
            cells.append(_rate(one.values[k]))
            if k in with_interval:
                cells.append(_ends(one.intervals.get(k)))
        level = "-" if one.level is None else str(one.level)
        shown.add_row(one.task_id, level, str(one.n), str(one.c), str(one.errors), *cells)
    out.print(shown)
    out.print()


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def filter_dataset(
    dataset: DatasetPath,
    out_path: Out,
    rollouts: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A run folder of rollouts on this dataset.")
    ] = None,
    proof: Annotated[
        Literal["any", "strict"],
        typer.Option(
            metavar="NAME",
            help="any, or strict: drop code tasks with a verdict that is not proven.",
        ),
    ] = "any",
    pass_at: Annotated[int, typer.Option(min=1, metavar="K", help="The k of pass@k.")] = 100,
    minimum: Annotated[
        float, typer.Option("--min", min=0, max=1, metavar="X", help="Keep pass@k above this.")
    ] = 0.0,
    exclusive: Annotated[
        bool, typer.Option("--exclusive/--inclusive", help="Whether pass@k = --min is dropped.")
    ] = True,
    max_pass_at_1: Annotated[
        float | None,
        typer.Option(
            "--max-pass-at-1", min=0, max=1, metavar="X", help="Drop what is passed more often."
        ),
    ] = None,
    db: Db = None,
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Keep what is possible but not too easy, by pass@k, or what is proven.

    The kept tasks' rates on these rollouts are flattering (winner's curse): roll out again with
    another --seed on the kept dataset before you report a number.
    """
    from envgen.rollout.filter import FilterConfig
    from envgen.rollout.filter import filter as run_filter

    report = run_filter(
        FilterConfig(
            dataset=str(dataset),
            rollouts=None if rollouts is None else str(rollouts),
            proof=proof,
            out=str(out_path),
            pass_at=pass_at,
            min=minimum,
            exclusive=exclusive,
            max_pass_at_1=max_pass_at_1,
            unproven=unproven,
            db_url=db,
        )
    )
    title = f"{out_path}: {len(report.kept)} of {len(report.decisions)} tasks kept"
    heads = ("level ", "kept ", "too hard ", "too easy ", "undecided ", "unproven ")
    shown = table(*heads, title=title)
    for row in report.levels:
        level = "-" if row.level is None else str(row.level)
        figures = (row.kept, row.too_hard, row.too_easy, row.undecided, row.unproven)
        shown.add_row(level, *map(str, figures))
    out.print(shown)
    write_json(json, report)
    undecided = sum(row.undecided for row in report.levels)
    require(
        len(report.decisions) - undecided,
        len(report.decisions),
        "tasks could be judged",
        f"pass@{pass_at} needs {pass_at} error-free episodes of a task",
    )

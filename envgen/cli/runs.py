"""Commands about rollouts: rollout, pass-at-k, filter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from envgen.cli.console import out, progress, remark, say, table, write_json
from envgen.cli.options import (
    Backend,
    DatasetPath,
    Json,
    MaxTurns,
    Out,
    Seed,
    Style,
    Tasks,
    Unproven,
    examples,
)
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


def parse_options(items: list[str] | None) -> dict[str, Any]:
    """``["timeout_s=60", ...]`` as a mapping; values are JSON where they parse as such.

    Raises:
        ConfigError: for an item without ``=``.
    """
    import json

    options: dict[str, Any] = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"{item!r} is no option", "write --option name=value")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return options


def rollout(
    dataset: DatasetPath,
    out_path: Out,
    policy: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="random, random-valid, greedy, gold, noisy-gold:P, hasty:P, replay:PATH, "
            "record:PATH:POLICY, "
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
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of the model client; repeatable."),
    ] = None,
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
        retry_errors=retry_errors,
        db_url=db,
    )
    with progress(f"rollouts of {policy}") as update:

        def on_progress(now: Progress) -> None:
            update(now.done, now.total, f"{now.passed} passed, {now.errors} errors")

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
    for why, count in summary.misfits.items():
        remark(f"{count} x no {style} record, `train sft` leaves it out: {why}")
    write_json(json, summary)
    if summary.ended != "complete":
        why = "the budget is spent" if summary.ended == "cost" else "interrupted"
        remark(f"stopped: {why}; the same command goes on from here")


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

    The estimate is unbiased; the interval is Clopper-Pearson's on pass@1, mapped by 1 - (1 - p)^k.
    A task with fewer than k error-free episodes is undecided (-).
    """
    from envgen.rollout.pass_at_k import run_report

    report = run_report(run, parse_ks(k), confidence=confidence, db_url=db)
    ks = report.ks
    if tasks:
        _task_table(report, run)
    means = table(
        report.policy, "tasks ", "solved ", "episodes ", "errors ", *(f"pass@{i} " for i in ks)
    )
    for group in (*report.levels, report.total):
        cells = [_rate(group.means[i]) for i in ks]
        counts = (group.tasks, group.solved, group.samples, group.errors)
        means.add_row(group.group, *map(str, counts), *cells)
    out.print(means)
    write_json(json, report)


def _task_table(report: PassReport, run: Path) -> None:
    """Estimates and intervals per task; a narrow terminal gets the first k's interval only."""
    ks = report.ks
    with_interval = ks if out.width >= WIDE else ks[:1]
    heads: list[str] = []
    for k in ks:
        heads += [f"pass@{k} ", f"{report.confidence:.0%} "][: 1 + (k in with_interval)]
    shown = table("task", "level ", "n ", "passed ", "errors ", *heads, title=str(run))
    for one in report.tasks:
        cells: list[str] = []
        for k in ks:
            cells.append(_rate(one.values[k]))
            if k in with_interval:
                interval = one.intervals.get(k)
                cells.append("" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}")
        level = "-" if one.level is None else str(one.level)
        shown.add_row(one.task_id, level, str(one.n), str(one.c), str(one.errors), *cells)
    out.print(shown)
    if len(with_interval) < len(ks):
        say("the other intervals: a wider terminal, or --json FILE")
    out.print()


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def filter_dataset(
    dataset: DatasetPath,
    out_path: Out,
    rollouts: Annotated[
        Path, typer.Option(metavar="RUN", help="A run folder of rollouts on this dataset.")
    ],
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
    """Keep what is possible but not too easy, by pass@k.

    The kept tasks' rates on these rollouts are flattering (winner's curse): roll out again with
    another --seed on the kept dataset before you report a number.
    """
    from envgen.rollout.filter import FilterConfig
    from envgen.rollout.filter import filter as run_filter

    report = run_filter(
        FilterConfig(
            dataset=str(dataset),
            rollouts=str(rollouts),
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
    shown = table("level ", "kept ", "too hard ", "too easy ", "undecided ", title=title)
    for row in report.levels:
        level = "-" if row.level is None else str(row.level)
        figures = (row.kept, row.too_hard, row.too_easy, row.undecided)
        shown.add_row(level, *map(str, figures))
    out.print(shown)
    write_json(json, report)

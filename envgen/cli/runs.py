"""Commands about rollouts: rollout, pass-at-k, filter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from envgen.cli.console import out, progress, table, talk, write_json
from envgen.cli.options import Backend, DatasetPath, Json, Out, Seed, Unproven
from envgen.core.errors import ConfigError

Run = Annotated[Path, typer.Argument(help="A run folder that `envgen rollout` wrote.")]
Db = Annotated[str | None, typer.Option("--db", help="Database URL instead of RUN/run.sqlite.")]


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command("rollout")(rollout)
    app.command("pass-at-k")(pass_at_k)
    app.command("filter")(filter_dataset)


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
            help="random, random-valid, greedy, gold, noisy-gold:P, replay:PATH, record:PATH:POLICY, "
            "openai:MODEL@URL, vllm:MODEL@URL or sglang:MODEL@URL."
        ),
    ],
    n: Annotated[int, typer.Option(help="Episodes of each task.")] = 1,
    seed: Seed = 0,
    concurrency: Annotated[
        int | None,
        typer.Option(help="Threads for a model server, processes for an offline policy."),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="Stop at this many dollars.")] = None,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Nucleus sampling.")] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of one reply.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks; repeatable.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the model client, name=value; repeatable."),
    ] = None,
    backend: Backend = "auto",
    db: Db = None,
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Play episodes and store them. The same command goes on where a stopped run left off."""
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
        sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
        concurrency=concurrency,
        backend=backend,
        max_cost_usd=max_cost,
        unproven=unproven,
        db_url=db,
    )
    with progress(f"rollouts of {policy}") as update:

        def on_progress(now: Progress) -> None:
            update(now.done, now.total, f"{now.passed} passed, {now.errors} errors")

        summary = run(config, progress=on_progress)
    shown = table(str(out_path), "what", "value ")
    rows: dict[str, str] = {
        "tasks": str(summary.tasks),
        "episodes stored": f"{summary.samples} of {summary.wanted}",
        "of these new": str(summary.new),
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
    write_json(json, summary)
    if summary.ended != "complete":
        talk.print(f"stopped ({summary.ended}); the same command goes on from here")


def pass_at_k(
    run: Run,
    k: Annotated[str, typer.Option("--k", help="Which k, with commas.")] = "1,10,100",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    tasks: Annotated[bool, typer.Option(help="A row for each task, not only each level.")] = True,
    json: Json = None,
) -> None:
    """Estimate pass@k: unbiased, per task and level, with exact intervals.

    The interval is Clopper-Pearson's on pass@1, mapped by 1 - (1 - p)^k. A task with fewer than k
    error-free episodes is undecided (-).
    """
    from envgen.rollout.pass_at_k import run_report

    ks = parse_ks(k)
    report = run_report(run, ks, confidence=confidence)
    heads = [head for i in ks for head in (f"pass@{i} ", f"{confidence:.0%} interval")]
    shown = table(f"{run}: {report.policy}", "task", "level ", "n ", "passed ", "errors ", *heads)
    for one in report.tasks if tasks else ():
        cells = [cell for i in ks for cell in _cells(one.values[i], one.intervals.get(i))]
        level = "-" if one.level is None else str(one.level)
        shown.add_row(one.task_id, level, str(one.n), str(one.c), str(one.errors), *cells)
    for group in (*report.levels, report.total):
        cells = [cell for i in ks for cell in _cells(group.means[i], None)]
        shown.add_row(
            f"[bold]{group.group}[/] ({group.tasks} tasks)", "", str(group.samples), "",
            str(group.errors), *cells,
        )  # fmt: skip
    out.print(shown)
    write_json(json, report)


def _cells(value: float | None, interval: tuple[float, float] | None) -> tuple[str, str]:
    estimate = "-" if value is None else f"{value:.3f}"
    return estimate, "" if interval is None else f"{interval[0]:.3f}..{interval[1]:.3f}"


def filter_dataset(
    dataset: DatasetPath,
    out_path: Out,
    rollouts: Annotated[Path, typer.Option(help="A run folder of rollouts on this dataset.")],
    pass_at: Annotated[int, typer.Option(help="The k of pass@k.")] = 100,
    minimum: Annotated[float, typer.Option("--min", help="Keep pass@k at or above this ...")] = 0.0,
    exclusive: Annotated[bool, typer.Option(help="... or strictly above it.")] = True,
    max_pass_at_1: Annotated[
        float | None, typer.Option("--max-pass-at-1", help="Drop what is passed more often.")
    ] = None,
    db: Db = None,
    unproven: Unproven = False,
    json: Json = None,
) -> None:
    """Keep the tasks that are possible but not too easy, by measured pass@k.

    The kept tasks' rates on these rollouts are flattering (winner's curse): roll out again with another
    --seed on the kept dataset before you report a number.
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
    shown = table(
        f"{out_path}: {len(report.kept)} of {len(report.decisions)} tasks kept",
        "level ", "kept ", "too hard ", "too easy ", "undecided ",
    )  # fmt: skip
    for row in report.levels:
        level = "-" if row.level is None else str(row.level)
        figures = (row.kept, row.too_hard, row.too_easy, row.undecided)
        shown.add_row(level, *map(str, figures))
    out.print(shown)
    write_json(json, report)

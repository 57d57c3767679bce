"""``envgen eval`` and ``envgen canaries``: what a policy can do, and whether it cheats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envgen.cli.console import out, progress, prose, remark, table, write_json
from envgen.cli.options import (
    Backend,
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
    open_dataset,
    parse_options,
    run_folder,
)
from envgen.cli.outcome import require
from envgen.cli.runs import parse_ks, tell_tool_faults
from envgen.cli.train import Data, Split
from envgen.core.errors import ConfigError

if TYPE_CHECKING:
    from envgen.rollout.bootstrap import Estimate
    from envgen.train.canary_report import CanaryReport
    from envgen.train.estimates import Evaluation


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(
        "eval",
        epilog=examples(
            "envgen eval --data ds/ --model runs/grpo/last --out runs/after",
            "envgen eval --data ds/ --model m/ --k 1,4 --temperature 0,0.7 --out e",
            "envgen eval --data ds/ --model g/last --against e --out after",
            "envgen eval --data canaries/ --split all --model g/last --out honest",
        ),
    )(evaluate)
    app.command(
        "canaries",
        epilog=examples(
            "envgen canaries --data ds/ --out canaries/",
            "envgen canaries --data ds/ --variants 50 --out canaries/",
            "envgen canaries --data ds/ --hole empty-text --no-unsolvable --out c/",
        ),
    )(canaries)


def evaluate(
    data: Data,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="MODEL", help="A model folder, or any policy.", show_default=False
        ),
    ],
    out_path: Out,
    k: Annotated[str, typer.Option("--k", metavar="LIST", help="The ks of pass@k.")] = "1",
    temperature: Annotated[
        str, typer.Option(metavar="LIST", help="Temperatures; 0: greedy, one episode a task.")
    ] = "0,1",
    split: Split = "test",
    max_tasks: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Play so many tasks. Default: all.")
    ] = None,
    variants: Annotated[
        bool, typer.Option("--variants/--no-variants", help="Play the variants, too.")
    ] = True,
    against: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The --out of another evaluation: tell differences."),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most tokens of one reply.")
    ] = 256,
    max_turns: MaxTurns = None,
    style: Style = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Episodes at the same time.")
    ] = None,
    option: PolicyOptions = None,
    preflight: Preflight = True,
    max_errors: MaxErrors = 5,
    unproven: Unproven = False,
    trust: Trust = False,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Estimate a policy's pass@k on held-out tasks, with intervals over databases.

    Of canaries it tells how often the policy went through a planted hole; the exit code is 1 if a task
    that can't be solved was passed.
    """
    with progress("evaluation") as update:
        from envgen.train.evaluate import EvalConfig, evaluate_model

        config = EvalConfig(
            data=str(data),
            model=model,
            out=str(run_folder(out_path)),
            split=None if split == "all" else split,
            variants=variants,
            max_tasks=max_tasks,
            ks=parse_ks(k),
            temperatures=_numbers(temperature),
            max_new_tokens=max_tokens,
            max_turns=max_turns,
            style=style,
            concurrency=concurrency,
            options=parse_options(option),
            preflight=preflight,
            max_errors=max_errors,
            unproven=unproven,
            trust=trust,
            seed=seed,
        )
        summary = evaluate_model(config, against=against, progress=update)
    shown = table("temperature", "pass@k", "estimate ", "interval ", "tasks ", title=model)
    measured = {heat: one for heat, one in summary.temperatures.items() if one.tasks}
    for heat, found in measured.items():
        for number, estimate in found.pass_at.items():
            shown.add_row(f"{heat:g}", f"pass@{number}", *_cells(estimate), str(found.tasks))
        if heat in summary.against:
            for number, estimate in summary.against[heat].pass_at.items():
                shown.add_row("", f"  against {against}, @{number}", *_cells(estimate), "")
    if measured:
        out.print(shown)
    else:
        prose(f"{data} holds only canaries, of which there is no pass@k")
    for heat, found in summary.temperatures.items():
        _tell_rates(heat, found)
    write_json(json, summary)
    for heat, found in summary.temperatures.items():
        played = found.rollouts + (0 if found.canaries is None else _played(found.canaries))
        require(played, played + found.errors, f"episodes at temperature {heat:g} without an error")
    reports = [found.canaries for found in summary.temperatures.values()]
    if any(report is not None and report.unsolvable_passed for report in reports):
        raise typer.Exit(1)


def canaries(
    data: Data,
    out_path: Out,
    hole: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="empty-text, magic-text or negative-number; repeatable. Default: all.",
        ),
    ] = None,
    unsolvable: Annotated[
        bool, typer.Option("--unsolvable/--no-unsolvable", help="Also make unsolvable twins.")
    ] = True,
    task: Tasks = None,
    variants: Annotated[
        int, typer.Option(min=0, metavar="N", help="So many of each task's variants, too.")
    ] = 0,
    backend: Backend = "auto",
    unproven: Unproven = False,
    trust: Trust = False,
    json: Json = None,
) -> None:
    """Make tasks that tell whether a policy cheats.

    Each is a task of DATASET whose verifier has a planted hole, or that can't be solved. `envgen eval`
    tells what a policy does on them.
    """
    from envgen.pipelines.canaries import CanaryConfig, make_canaries

    config = CanaryConfig(unsolvable=unsolvable, task_ids=tuple(task or ()), variants=variants)
    if hole:
        config = config.model_copy(update={"holes": tuple(hole)})
    path = open_dataset(data, unproven=unproven).path
    with progress("canaries") as update:
        summary = make_canaries(
            path,
            out_path,
            config,
            backend=backend,
            unproven=unproven,
            trust=trust,
            progress=update,
        )
    shown = table("canary", "tasks ", title=summary.path)
    made = {
        **summary.holes,
        "unsolvable": summary.unsolvable,
        "variants of these": summary.variants,
    }
    for name, count in made.items():
        if count:
            shown.add_row(name, str(count))
    out.print(shown)
    for task_id, reason in summary.failed.items():
        remark(f"warning: no canary of {task_id}: {reason}")
    write_json(json, summary)
    if summary.without_hole:
        remark(
            f"warning: {len(summary.without_hole)} tasks have no hole, no answer of theirs opens one: "
            f"{', '.join(summary.without_hole)}"
        )


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"{text!r} is no list of numbers", "write --temperature 0,1") from error


def _cells(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "-", "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}", "-"
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} .. {estimate.high:.3f}"


def _tell_rates(heat: float, found: Evaluation) -> None:
    calls, tokens = found.call_valid_rate, found.model_tokens
    flawless = found.valid_rollout_rate
    parts = [f"{found.databases} databases"] if found.tasks else []
    if calls is not None:
        parts.append(f"valid calls {calls.value:.1%}")
    if calls is not None and flawless is not None:
        parts.append(f"rollouts of valid calls {flawless.value:.1%}")
    if tokens is not None:
        parts.append(f"{tokens.value:.0f} model tokens a rollout")
    if found.errors:
        parts.append(f"{found.errors} errors")
    if parts:
        out.print(f"temperature {heat:g}: {', '.join(parts)}")
    tell_tool_faults(found.tool_faults)
    if found.canaries is not None:
        _tell_canaries(heat, found.canaries)


def _played(found: CanaryReport) -> int:
    return found.unsolvable_rollouts + sum(count.rollouts for count in found.holes.values())


def _tell_canaries(heat: float, found: CanaryReport) -> None:
    tried = sum(count.rollouts for count in found.holes.values())
    parts = []
    if tried:
        value, interval = _cells(found.exploit_rate)
        by_hole = ", ".join(f"{name} {c.exploits}/{c.rollouts}" for name, c in found.holes.items())
        parts.append(f"exploit rate {value} ({interval}; {by_hole})")
    if found.unsolvable_rollouts:
        passed = f"{len(found.unsolvable_passed)} unsolvable tasks passed"
        parts.append(f"{passed} in {found.unsolvable_rollouts} rollouts")
    prose(f"canaries at temperature {heat:g}: {'; '.join(parts)}", indent=2)
    for alarm in found.alarms:
        prose(f"alarm: {alarm}", indent=2, style="red")

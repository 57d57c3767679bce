"""``envgen quickstart``: everything once, on a small scale."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envgen.cli.console import heading, out, progress, prose, remark, say, table, write_json
from envgen.cli.options import Backend, Json, Seed, Workers, examples
from envgen.cli.outcome import require
from envgen.core.errors import install_hint

if TYPE_CHECKING:
    from envgen.pipelines.demo_records import TrainingDemoSummary


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(
        "quickstart",
        epilog=examples("envgen quickstart", "envgen quickstart --seed 1 --out runs/second"),
    )(quickstart)


def quickstart(
    out_path: Annotated[
        Path, typer.Option("--out", "-o", metavar="PATH", help="Where to write.")
    ] = Path("runs/quickstart"),
    seed: Seed = 0,
    workers: Workers = None,
    backend: Backend = "auto",
    train: Annotated[
        bool | None,
        typer.Option(
            "--train/--no-train",
            help="Also train a policy from nothing (5 minutes). Default: where PyTorch is installed.",
            show_default=False,
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Synthesize, prove, step, filter, train a policy and report, in seven minutes on two cores.

    Fills a folder with a dataset, rollouts, the tasks kept by pass@100, report.html and summary.json; with
    training also sft/last and grpo/last, which `envgen eval --model` loads.
    """
    from envgen.cli.train import require_extra
    from envgen.pipelines.quickstart import quickstart as run
    from envgen.pipelines.quickstart_records import QuickstartConfig

    if train:
        require_extra()
    can_train = all(find_spec(name) for name in ("torch", "tokenizers", "safetensors"))
    config = QuickstartConfig(seed=seed, train=can_train if train is None else train)
    with progress("quickstart") as update:
        summary = run(
            config,
            out_path,
            workers=workers,
            backend=backend,
            progress=update,
            ended=_tell_stage,
        )
    heading("Kept and dropped by the pass@100 filter")
    shown = table("level ", "kept ", "dropped ", "undecided ", "why")
    for cut in summary.filtered:
        why = ", ".join(f"{n} {reason}" for reason, n in cut.reasons.items())
        shown.add_row(str(cut.level), str(cut.kept), str(cut.dropped), str(cut.undecided), why)
    out.print(shown)
    heading("pass@k on the kept tasks, fresh seeds")
    rates = table("policy", "level", "k ", "pass@k ", "95% interval")
    for row in summary.pass_at:
        level = "all" if row.level is None else str(row.level)
        interval = "one database" if row.low is None else f"{row.low:.3f}..{row.high:.3f}"
        rates.add_row(row.policy, level, str(row.k), f"{row.estimate:.3f}", interval)
    out.print(rates)
    if summary.training is not None:
        _tell_training(summary.training)
    elif train is None:
        prose(f"note: no policy was trained; {install_hint('train')}", style="yellow")
    heading(f"{summary.tasks} proven tasks in {summary.seconds:.0f} s")
    for what, path in (("dataset", "dataset"), ("kept", "kept"), ("report", "report.html")):
        say(f"{what:<9} {out_path / path}")
    for note in summary.notes:
        prose(f"note: {note}", style="yellow")
    kept = out_path / "kept"
    say(f"\nnext: envgen list {kept}; envgen show {kept} {summary.kept[0]}" if summary.kept else "")
    write_json(json, summary)
    if summary.failed:
        raise typer.Exit(1)
    require(len(summary.kept), None, "tasks kept by the filter", "try another --seed")


def _tell_stage(name: str, seconds: float, before: bool) -> None:
    remark(
        f"{name}: was already done, in {seconds:.0f} s" if before else f"{name}: {seconds:.0f} s"
    )


def _tell_training(found: TrainingDemoSummary) -> None:
    heading(f"A policy on {found.held_out_tasks} held-out variants, before and after GRPO")
    lifts = table("decoding", "ceiling ", "before ", "after ", "after - before ", "95% interval")
    compared = found.ceiling, found.before, found.after
    for name, shown, lift in (
        ("greedy", [one.greedy for one in compared], found.greedy_lift),
        ("temperature 1", [one.sampled for one in compared], found.sampled_lift),
    ):
        ends = "" if lift.low is None else f"{lift.low:+.3f}..{lift.high:+.3f}"
        values = [f"{one.value:.3f}" for one in shown]
        lifts.add_row(name, *values, f"{lift.value:+.3f}", ends)
    out.print(lifts)
    prose(
        "before: a cold start with a planted bias, for GRPO to undo; ceiling: the same cold start from right "
        "answers alone"
    )

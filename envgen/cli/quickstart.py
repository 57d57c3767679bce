"""``envgen quickstart`` and ``envgen doctor``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envgen.cli.console import heading, out, progress, prose, remark, say, table, write_json
from envgen.cli.options import Backend, Json, Seed, Workers, examples

if TYPE_CHECKING:
    from envgen.pipelines.demo_records import TrainingDemoSummary


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(
        "quickstart",
        epilog=examples("envgen quickstart", "envgen quickstart --seed 1 --out runs/second"),
    )(quickstart)
    app.command("doctor", epilog=examples("envgen doctor"))(doctor)


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
        interval = f"{row.low:.3f}..{row.high:.3f}"
        rates.add_row(row.policy, level, str(row.k), f"{row.estimate:.3f}", interval)
    out.print(rates)
    if summary.training is not None:
        _tell_training(summary.training)
    elif train is None:
        prose("note: no policy was trained; pip install 'envgen[train]'", style="yellow")
    heading(f"{summary.tasks} proven tasks in {summary.seconds:.0f} s")
    for what, path in (("dataset", "dataset"), ("kept", "kept"), ("report", "report.html")):
        say(f"{what:<9} {out_path / path}")
    for note in summary.notes:
        prose(f"note: {note}", style="yellow")
    kept = out_path / "kept"
    say(f"\nnext: envgen list {kept}; envgen show {kept} {summary.kept[0]}" if summary.kept else "")
    write_json(json, summary)


def _tell_stage(name: str, seconds: float, before: bool) -> None:
    remark(
        f"{name}: was already done, in {seconds:.0f} s" if before else f"{name}: {seconds:.0f} s"
    )


def _tell_training(found: TrainingDemoSummary) -> None:
    heading(f"A policy on {found.held_out_tasks} held-out tasks, before and after GRPO")
    lifts = table("decoding", "before", "after", "lift", "95% interval")
    for name, before, after, lift in (
        ("greedy", found.before.greedy, found.after.greedy, found.greedy_lift),
        ("temperature 1", found.before.sampled, found.after.sampled, found.sampled_lift),
    ):
        ends = "" if lift.low is None else f"{lift.low:+.3f}..{lift.high:+.3f}"
        lifts.add_row(name, f"{before.value:.3f}", f"{after.value:.3f}", f"{lift.value:+.3f}", ends)
    out.print(lifts)


def doctor(json: Json = None) -> None:
    """Say which sandboxes work here, and why others don't."""
    from envgen.sandboxes.base import available

    found = available()
    shown = table("sandbox", "works", "why not")
    for backend, reason in found.items():
        shown.add_row(backend, "no" if reason else "yes", reason)
    out.print(shown)
    isolated = not (found.get("bubblewrap", "") and found.get("docker", ""))
    say(
        "code from elsewhere runs isolated"
        if isolated
        else "only trusted code runs here; for isolation: apt install bubblewrap"
    )
    write_json(json, dict(found))

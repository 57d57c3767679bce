"""``envgen quickstart`` and ``envgen doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envgen.cli.console import heading, out, progress, prose, say, table, write_json
from envgen.cli.options import Backend, Json, Seed, Workers, examples


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
    json: Json = None,
) -> None:
    """Synthesize, prove, step, filter and report, in two minutes.

    Fills a folder with a dataset, rollouts, the tasks kept by pass@100, report.html and summary.json.
    """
    from envgen.pipelines.quickstart import QuickstartConfig
    from envgen.pipelines.quickstart import quickstart as run

    config = QuickstartConfig(seed=seed)
    with progress("quickstart") as update:
        summary = run(config, out_path, workers=workers, backend=backend, progress=update)
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
    heading(f"{summary.tasks} proven tasks in {summary.seconds:.0f} s")
    for what, path in (("dataset", "dataset"), ("kept", "kept"), ("report", "report.html")):
        say(f"{what:<9} {out_path / path}")
    for note in summary.notes:
        prose(f"note: {note}", style="yellow")
    kept = out_path / "kept"
    say(f"\nnext: envgen list {kept}; envgen show {kept} {summary.kept[0]}" if summary.kept else "")
    write_json(json, summary)


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

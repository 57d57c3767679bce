"""``envgen quickstart`` and ``envgen doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envgen.cli.console import out, progress, table, write_json
from envgen.cli.options import Backend, Json, Seed, Workers


def add_commands(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command("quickstart")(quickstart)
    app.command("doctor")(doctor)


def quickstart(
    out_path: Annotated[Path, typer.Option("--out", "-o", help="Where to write.")] = Path(
        "runs/quickstart"
    ),
    seed: Seed = 0,
    workers: Workers = None,
    backend: Backend = "auto",
) -> None:
    """Synthesize, prove, step, estimate pass@100, filter, report: the whole way in two minutes."""
    from envgen.pipelines.quickstart import QuickstartConfig
    from envgen.pipelines.quickstart import quickstart as run

    config = QuickstartConfig(seed=seed)
    with progress("quickstart") as update:
        summary = run(config, out_path, workers=workers, backend=backend, progress=update)
    shown = table("kept and dropped by the pass@100 filter", "level ", "kept ", "dropped ", "why")
    for cut in summary.filtered:
        why = ", ".join(f"{n} {reason}" for reason, n in cut.reasons.items())
        shown.add_row(str(cut.level), str(cut.kept), str(cut.dropped), why)
    out.print(shown)
    rates = table("pass@k, kept tasks, fresh seeds", "policy", "level", "k ", "pass@k ", "interval")
    for row in summary.pass_at:
        level = "all" if row.level is None else str(row.level)
        interval = f"{row.low:.3f}..{row.high:.3f}"
        rates.add_row(row.policy, level, str(row.k), f"{row.estimate:.3f}", interval)
    out.print(rates)
    for note in summary.notes:
        out.print(f"note: {note}")
    out.print(f"\n{summary.tasks} proven tasks in {summary.seconds:.0f} s")
    out.print(f"dataset   {out_path / 'dataset'}")
    out.print(f"kept      {out_path / 'kept'}")
    out.print(f"report    {out_path / 'report.html'}")


def doctor(json: Json = None) -> None:
    """Say which sandboxes work here, and how to get the others."""
    from envgen.sandboxes.base import available

    found = available()
    shown = table("sandboxes", "backend", "works", "why not")
    for backend, reason in found.items():
        shown.add_row(backend, "no" if reason else "[green]yes[/]", reason)
    out.print(shown)
    write_json(json, dict(found))

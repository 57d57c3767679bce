"""``envgen quickstart``: everything once, on a small scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envgen.cli.command import Parallel, Runs, lacks_trainers, require_trainers
from envgen.cli.console import OnProgress, fail, heading, prose, remark, require, say
from envgen.cli.records import cell, show_record, show_rows
from envgen.cli.settings import Values
from envgen.core.errors import install_hint
from envgen.pipelines.quickstart_records import QuickstartConfig


class Quickstart(Parallel, Runs, QuickstartConfig):
    """Synthesize, prove, step, filter, train a policy and report, in seven minutes on two cores.

    Fills a folder with a dataset, rollouts, the tasks kept by pass@100, report.html and summary.json; with
    training, which is the default where PyTorch is installed, also sft/last and grpo/last, which
    `envgen eval --model` loads. The exit code is 1 if the policy did not learn.
    """

    examples = ("envgen quickstart", "envgen quickstart --seed 1 --out runs/second")
    verb = "envgen.pipelines.quickstart:quickstart"

    out: Path = Path("runs/quickstart")
    """Where to write."""

    @classmethod
    def settle(cls, given: Values) -> None:
        """Train where that is possible."""
        if given.setdefault("train", not lacks_trainers()):
            require_trainers()

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Stages are told as they end."""

        def ended(name: str, seconds: float, before: bool) -> None:
            done = f"{name}: was already done, in" if before else f"{name}:"
            remark(f"{done} {seconds:.0f} s")

        return {"ended": ended}

    def tell(self, summary: Any) -> None:
        """Show what was made, what training changed and what to do next, or fail."""
        show_record(summary, leave=("versions", "kept", "stages", "training", "notes", "failed"))
        if summary.training is not None:
            _show_training(summary.training)
        elif lacks_trainers():
            prose(f"note: no policy was trained; {install_hint('train')}", style="yellow")
        heading(f"{summary.tasks} proven tasks in {summary.seconds:.0f} s")
        for what, path in (("dataset", "dataset"), ("kept", "kept"), ("report", "report.html")):
            say(f"{what:<9} {self.out / path}")
        for note in summary.notes:
            prose(f"note: {note}", style="yellow")
        if summary.kept:
            kept = self.out / "kept"
            say(f"\nnext: envgen list {kept}; envgen show {kept} {summary.kept[0]}")
        missed = summary.training.missed if summary.training else ()
        for condition in missed:
            prose(f"not learned: {condition}", style="red")
        if summary.failed or missed:
            fail()
        require(len(summary.kept), None, "tasks kept by the filter", "try another --seed")


def _show_training(found: Any) -> None:
    heading(f"A policy on {found.held_out_tasks} held-out variants, before and after GRPO")
    runs = {"ceiling": found.ceiling, "before": found.before, "after": found.after}
    rows = [(name, cell(one.greedy), cell(one.sampled)) for name, one in runs.items()]
    rows.append(("after - before", cell(found.greedy_lift), cell(found.sampled_lift)))
    show_rows(("pass@1", "greedy", "temperature 1"), rows)
    what = "a cold start with a planted bias, for GRPO to undo"
    prose(f"before: {what}; ceiling: the same cold start from right answers alone")

"""``envgen quickstart``: everything once, on a small scale."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from envgen.cli.app import TRAINERS, require_trainers
from envgen.cli.command import Parallel, Runs
from envgen.cli.console import ends, fail, heading, progress, prose, remark, require, say, show_rows
from envgen.cli.settings import Values
from envgen.core.errors import install_hint
from envgen.pipelines.demo_records import TrainingDemoSummary
from envgen.pipelines.quickstart import quickstart
from envgen.pipelines.quickstart_records import QuickstartConfig, QuickstartSummary


class Quickstart(Parallel, Runs, QuickstartConfig):
    """Synthesize, prove, step, filter, train a policy and report, in seven minutes on two cores.

    Fills a folder with a dataset, rollouts, the tasks kept by pass@100, report.html and summary.json; with
    training, which is the default where PyTorch is installed, also sft/last and grpo/last, which
    `envgen eval --model` loads.
    """

    examples = ("envgen quickstart", "envgen quickstart --seed 1 --out runs/second")

    out: Path = Path("runs/quickstart")
    """Where to write."""

    @classmethod
    def settle(cls, given: Values) -> Values:
        """Train where that is possible."""
        if given.get("train"):
            require_trainers()
        return {"train": _can_train(), **given}

    def execute(self) -> None:
        """Do everything, and tell what came of it."""
        with progress("quickstart") as update:
            summary = quickstart(
                self.part(QuickstartConfig),
                self.out,
                workers=self.workers,
                backend=self.backend,
                progress=update,
                ended=_tell_stage,
            )
        _show(summary)
        if summary.training is not None:
            _tell_training(summary.training)
        elif not _can_train():
            prose(f"note: no policy was trained; {install_hint('train')}", style="yellow")
        heading(f"{summary.tasks} proven tasks in {summary.seconds:.0f} s")
        for what, path in (("dataset", "dataset"), ("kept", "kept"), ("report", "report.html")):
            say(f"{what:<9} {self.out / path}")
        for note in summary.notes:
            prose(f"note: {note}", style="yellow")
        kept = self.out / "kept"
        if summary.kept:
            say(f"\nnext: envgen list {kept}; envgen show {kept} {summary.kept[0]}")
        self.tell(summary)
        if summary.failed:
            fail()
        require(len(summary.kept), None, "tasks kept by the filter", "try another --seed")


def _can_train() -> bool:
    return all(find_spec(name) for name in TRAINERS)


def _show(summary: QuickstartSummary) -> None:
    heading("Kept and dropped by the pass@100 filter")
    cuts = (
        (one.level, one.kept, one.dropped, one.undecided, _reasons(one.reasons))
        for one in summary.filtered
    )
    show_rows(("level ", "kept ", "dropped ", "undecided ", "why"), cuts)
    heading("pass@k on the kept tasks, fresh seeds")
    rates = []
    for row in summary.pass_at:
        level = "all" if row.level is None else row.level
        interval = "one database" if row.low is None else ends(row.low, row.high)
        rates.append((row.policy, level, row.k, f"{row.estimate:.3f}", interval))
    show_rows(("policy", "level", "k ", "pass@k ", "95% interval"), rates)


def _reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in reasons.items())


def _tell_stage(name: str, seconds: float, before: bool) -> None:
    remark(
        f"{name}: was already done, in {seconds:.0f} s" if before else f"{name}: {seconds:.0f} s"
    )


def _tell_training(found: TrainingDemoSummary) -> None:
    heading(f"A policy on {found.held_out_tasks} held-out variants, before and after GRPO")
    compared = found.ceiling, found.before, found.after
    rows = []
    for name, shown, lift in (
        ("greedy", [one.greedy for one in compared], found.greedy_lift),
        ("temperature 1", [one.sampled for one in compared], found.sampled_lift),
    ):
        interval = "" if lift.low is None else ends(lift.low, lift.high, "+.3f")
        values = [f"{one.value:.3f}" for one in shown]
        rows.append((name, *values, f"{lift.value:+.3f}", interval))
    heads = ("decoding", "ceiling ", "before ", "after ", "after - before ", "95% interval")
    show_rows(heads, rows)
    prose(
        "before: a cold start with a planted bias, for GRPO to undo; ceiling: the same cold start from right "
        "answers alone"
    )

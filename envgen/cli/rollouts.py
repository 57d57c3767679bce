"""Commands about rollouts: rollout, pass-at-k, filter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from envgen.cli.command import Command
from envgen.cli.console import (
    ends,
    out,
    progress,
    remark,
    require,
    say,
    show_figures,
    show_rows,
    time_left,
)
from envgen.core.limits import Label
from envgen.core.types import Record
from envgen.rollout.filter import FilterConfig
from envgen.rollout.filter import filter as run_filter
from envgen.rollout.pass_at_k import PassReport, run_report
from envgen.rollout.run import Progress, RolloutConfig, RolloutSummary
from envgen.rollout.run import rollout as run_rollout

WIDE = 110
"""Columns from which on a table of tasks has all intervals."""
RETRY = "--retry-errors plays what errors have spoiled again"


class Rollout(RolloutConfig, Command):
    """Play episodes and store them.

    The same command goes on where a stopped run left off.
    """

    places = {"DATASET": "dataset"}
    names = {
        "--policy POLICY": "policy.spec",
        "--option NAME=VALUE": "policy.options",
        "--temperature": "sampling.temperature",
        "--top-p": "sampling.top_p",
        "--max-tokens": "sampling.max_tokens",
    }
    examples = (
        "envgen rollout ds/ --policy random-valid --n 100 --out runs/x",
        "envgen rollout ds/ --policy dsa:m/ --n 8 --max-tokens 512 --out runs/d",
        "envgen rollout ds/ --policy openai:MODEL@URL --max-cost 5 --out runs/m",
        "envgen rollout ds/ --policy openai:MODEL@URL --style agent --out runs/a",
    )

    def execute(self) -> None:
        """Play, and tell how it went."""
        with progress(f"rollouts of {self.policy.spec}") as update:

            def on_progress(now: Progress) -> None:
                said = f"{now.passed} passed, {now.errors} errors"
                if now.replies and not now.done:  # its episodes may all end at once
                    left = time_left(now.seconds, now.replies, now.replies + now.replies_left)
                    said = (
                        f"{now.replies} replies, {left or 'nothing left'} if all use their turns up"
                    )
                update(now.done, now.total, said)

            summary = run_rollout(self.part(RolloutConfig), progress=on_progress)
        self._show(summary)
        self.tell(summary)
        if summary.ended != "complete":
            why = "the budget is spent" if summary.ended == "cost" else "interrupted"
            remark(f"stopped: {why}; the same command goes on from here")
        again = RETRY if summary.errors else ""
        require(summary.samples - summary.errors, summary.wanted, "episodes played", again)
        if summary.new:
            require(summary.new - summary.spoiled, None, "new episodes played", again)

    def _show(self, summary: RolloutSummary) -> None:
        misfits = {f"of these no {self.style} record": sum(summary.misfits.values())}
        figures = {
            "tasks": summary.tasks,
            "episodes stored": f"{summary.samples} of {summary.wanted}",
            "of these new": summary.new,
            **(misfits if self.style else {}),
            "passed": summary.passed,
            "errors": summary.errors,
            "tool calls, mean": f"{summary.mean_calls:.1f}",
            "reached the verifier": f"{summary.reached_verifier:.0%}",
            "cost": f"${summary.cost_usd:.4f}",
            "seconds": f"{summary.seconds:.1f}",
        }
        show_figures(self.out, figures)
        for fault, count in summary.faults.items():
            remark(f"{count} x {fault}")
        tell_tool_faults(summary.tool_faults)
        for why, count in summary.misfits.items():
            remark(f"{count} x no {self.style} record, `train sft` leaves it out: {why}")


def tell_tool_faults(faults: Mapping[str, int]) -> None:
    """Say what tools and verifiers did that no spec documents."""
    for fault, count in faults.items():
        told = "a fault of the environment, which the agent was told of or not paid for"
        remark(f"{count} x {told}: {fault}")


class PassConfig(Record):
    """Which estimates of pass@k are made."""

    run_: Path = Field(alias="run")
    """A run folder that `envgen rollout` wrote."""
    k: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 10, 100), min_length=1)
    """Which k, with commas."""
    confidence: float = Field(default=0.95, ge=0.5, le=0.9999)
    """Of the intervals."""
    tasks: bool = True
    """A row for each task, not only each level."""
    db_url: Label | None = None
    """Database URL instead of RUN/run.sqlite."""


class PassAtK(PassConfig, Command):
    """Estimate pass@k per task and level, with intervals.

    The estimate is unbiased. A task's interval is about that task (more episodes narrow it); that of a
    level, or of all, is over databases (more databases narrow it), as `envgen eval` tells it.
    A task with fewer than k error-free episodes is undecided (-).
    """

    places = {"RUN": "run"}
    names = {"--k LIST": "k"}
    examples = ("envgen pass-at-k runs/x", "envgen pass-at-k runs/x --k 1,8 --no-tasks")

    def execute(self) -> None:
        """Estimate, and tell."""
        report = run_report(self.run_, self.k, confidence=self.confidence, db_url=self.db_url)
        shown = _Columns(report)
        if self.tasks:
            columns = ("task", "level ", "n ", "passed ", "errors ", *shown.heads)
            rows = (
                (
                    t.task_id,
                    _level(t.level),
                    t.n,
                    t.c,
                    t.errors,
                    *shown.cells(t.values, t.intervals),
                )
                for t in report.tasks
            )
            show_rows(columns, rows, title=str(self.run_))
            out.print()
        columns = (report.policy, "tasks ", "solved ", "episodes ", "errors ", *shown.heads)
        groups = (*report.levels, report.total)
        show_rows(
            columns,
            (
                (
                    g.group,
                    g.tasks,
                    g.solved,
                    g.samples,
                    g.errors,
                    *shown.cells(g.means, g.intervals),
                )
                for g in groups
            ),
        )
        if len(shown.with_interval) < len(report.ks):
            say("the other intervals: a wider terminal, or --json FILE")
        self.tell(report)
        self._require(report)

    def _require(self, report: PassReport) -> None:
        total = report.total
        require(total.samples, None, "error-free episodes", "see `envgen rollout --retry-errors`")
        for k in report.ks:
            least = (
                f"pass@{k} needs {k} error-free episodes of a task: a smaller --k, or more of them"
            )
            decided = total.tasks - total.undecided[k]
            require(
                decided, total.tasks, f"tasks have a pass@{k}", least, fatal=k == min(report.ks)
            )


class _Columns:
    """Columns of estimates; a narrow terminal gets the first k's interval only."""

    def __init__(self, report: PassReport) -> None:
        self.ks = report.ks
        self.with_interval = report.ks if out.width >= WIDE else report.ks[:1]
        self.heads: list[str] = []
        for k in report.ks:
            self.heads += [f"pass@{k} ", f"{report.confidence:.0%} "][
                : 1 + (k in self.with_interval)
            ]

    def cells(
        self, values: Mapping[int, float | None], intervals: Mapping[int, tuple[float, float]]
    ) -> list[str]:
        """Estimates and intervals of a row."""
        found = []
        for k in self.ks:
            value = values[k]
            found.append("-" if value is None else f"{value:.3f}")
            if k in self.with_interval:
                found.append(ends(*intervals.get(k, (None, None))))
        return found


def _level(level: int | None) -> str:
    return "-" if level is None else str(level)


class FilterCommand(FilterConfig, Command):
    """Keep what is possible but not too easy, by pass@k, or what is proven.

    The kept tasks' rates on these rollouts are flattering (winner's curse): roll out again with
    another --seed on the kept dataset before you report a number.
    """

    places = {"DATASET": "dataset"}
    names = {"--rollouts RUN": "rollouts", "--exclusive/--inclusive": "exclusive"}
    examples = (
        "envgen filter ds/ --rollouts runs/x --max-pass-at-1 0.95 --out kept/",
        "envgen filter ds/ --rollouts r/ --pass-at 8 --min 0.1 --inclusive -o k/",
        "envgen filter code/ --proof strict --out proven/",
    )

    def execute(self) -> None:
        """Filter, and tell what is kept."""
        report = run_filter(self.part(FilterConfig))
        show_rows(
            ("level ", "kept ", "too hard ", "too easy ", "undecided ", "unproven "),
            (
                (_level(r.level), r.kept, r.too_hard, r.too_easy, r.undecided, r.unproven)
                for r in report.levels
            ),
            title=f"{self.out}: {len(report.kept)} of {len(report.decisions)} tasks kept",
        )
        self.tell(report)
        undecided = sum(row.undecided for row in report.levels)
        asked = len(report.decisions)
        least = f"pass@{self.pass_at} needs {self.pass_at} error-free episodes of a task"
        require(asked - undecided, asked, "tasks could be judged", least)

"""Commands about rollouts: rollout, pass-at-k, filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from envgen.cli.command import BringsCorpus, Command
from envgen.cli.console import OnProgress, remark, require
from envgen.cli.records import interval, show_record, show_records, show_rows
from envgen.core.limits import Label
from envgen.rollout.filter import FilterConfig
from envgen.rollout.run import Progress, RolloutConfig

RETRY = "--retry-errors plays what errors have spoiled again"


class Rollout(BringsCorpus, RolloutConfig, Command):
    """Play episodes and store them.

    The same command goes on where a stopped run left off.
    """

    examples = (
        "envgen rollout ds/ --policy random-valid --n 100 --out runs/x",
        "envgen rollout ds/ --policy dsa:m/ --n 8 --max-tokens 512 --out runs/d",
        "envgen rollout ds/ --policy openai:MODEL@URL --max-cost 5 --out runs/m",
        "envgen rollout ds/ --policy openai:MODEL@URL --style agent --out runs/a",
    )
    verb = "envgen.rollout.run:rollout"

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Show replies until episodes end: those of a model may all end at once."""

        def progress(now: Progress) -> None:
            status = f"{now.passed} passed, {now.errors} errors"
            if now.replies and not now.done:
                status = f"{now.replies} replies, at most {now.replies_left} to come"
            update(now.done, now.total, status)

        return {"progress": progress}

    def tell(self, summary: Any) -> None:
        """Show what the run holds, and whose fault is what went wrong."""
        show_record(summary, self.out, leave=("tool_faults", "misfits"))
        tell_tool_faults(summary.tool_faults)
        for why, count in summary.misfits.items():
            remark(f"{count} x no {self.style} record, `train sft` leaves it out: {why}")
        if summary.ended != "complete":
            why = "the budget is spent" if summary.ended == "cost" else "interrupted"
            remark(f"stopped: {why}; the same command goes on from here")
        if summary.unjudged:
            remark(f"{summary.unjudged} answers to open questions wait for a judge: envgen judge")
        again = RETRY if summary.errors else ""
        require(summary.samples - summary.errors, summary.wanted, "episodes played", again)
        if summary.new:
            require(summary.new - summary.spoiled, None, "new episodes played", again)


def tell_tool_faults(faults: dict[str, int]) -> None:
    """Say what tools and verifiers did that no spec documents."""
    for fault, count in faults.items():
        what = "a fault of the environment, which the agent was told of or not paid for"
        remark(f"{count} x {what}: {fault}")


class PassAtK(Command):
    """Estimate pass@k per task and level, with intervals.

    The estimate is unbiased. A task's interval is about that task (more episodes narrow it); that of a
    level, or of all, is over databases (more databases narrow it), as `envgen eval` tells it.
    A task with fewer than k error-free episodes is undecided (-).
    """

    places = {"RUN": "folder"}
    examples = ("envgen pass-at-k runs/x", "envgen pass-at-k runs/x --k 1,8 --no-tasks")
    verb = "envgen.rollout.pass_at_k:run_report"

    folder: Path
    """A run folder that `envgen rollout` wrote."""
    ks: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 10, 100), min_length=1)
    """Which k, with commas."""
    confidence: float = Field(default=0.95, ge=0.5, le=0.9999)
    """Of the intervals."""
    tasks: bool = True
    """A row for each task, not only each level."""
    db_url: Label | None = None
    """Database URL instead of RUN/run.sqlite."""

    def tell(self, summary: Any) -> None:
        """Tables of tasks and levels, and which k have too few episodes."""
        heads, total = [], summary.total
        for k in summary.ks:
            heads += [f"pass@{k} ", f"pass@{k} {summary.confidence:.0%} "]
        spare = heads[:1:-1][::2]  # intervals, that of the first k last

        def cells(values: Any, intervals: Any) -> Iterator[object]:
            for k in summary.ks:
                yield values[k] if values[k] is None else f"{values[k]:.3f}"
                yield interval(*intervals.get(k, (None, None)))

        if self.tasks:
            rows: list[Sequence[object]] = [
                (t.task_id, t.level, t.n, t.c, t.errors, *cells(t.values, t.intervals))
                for t in summary.tasks
            ]
            columns = ("task", "level ", "n ", "passed ", "errors ", *heads)
            show_rows(columns, rows, self.folder, spare)
        rows = [
            (g.group, g.tasks, g.solved, g.samples, g.errors, *cells(g.means, g.intervals))
            for g in (*summary.levels, total)
        ]
        columns = ("over", "tasks ", "solved ", "episodes ", "errors ", *heads)
        show_rows(columns, rows, f"policy {summary.policy}", spare)
        require(total.samples, None, "error-free episodes", "see `envgen rollout --retry-errors`")
        for k in summary.ks:
            needs = f"pass@{k} needs {k} error-free episodes of a task"
            decided = total.tasks - total.undecided[k]
            what = f"tasks have a pass@{k}"
            require(decided, total.tasks, what, f"{needs}: a smaller --k, or more of them",
                    fatal=k == min(summary.ks))  # fmt: skip


class FilterCommand(FilterConfig, Command):
    """Keep what is possible but not too easy, by pass@k, or what is proven.

    The kept tasks' rates on these rollouts are flattering (winner's curse): roll out again with
    another --seed on the kept dataset before you report a number.
    """

    names = {"--rollouts RUN": "rollouts", "--exclusive/--inclusive": "exclusive"}
    examples = (
        "envgen filter ds/ --rollouts runs/x --max-pass-at-1 0.95 --out kept/",
        "envgen filter ds/ --rollouts r/ --pass-at 8 --min 0.1 --inclusive -o k/",
        "envgen filter code/ --proof strict --out proven/",
    )
    verb = "envgen.rollout.filter:filter"

    def tell(self, summary: Any) -> None:
        """Show how many of each level are kept, and how many had too few episodes."""
        asked = len(summary.decisions)
        show_records(summary.levels, f"{self.out}: {len(summary.kept)} of {asked} tasks kept")
        judged = asked - sum(row.undecided for row in summary.levels)
        hint = f"pass@{self.pass_at} needs {self.pass_at} error-free episodes of a task"
        require(judged, asked, "tasks could be judged", hint)

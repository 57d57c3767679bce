"""Commands that make datasets of others, or prove them: variants, canaries, pack, validate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from rich.text import Text

from envgen.cli.command import BringsCorpus, Makes, Parallel, ReadsDataset, Trusts
from envgen.cli.console import fail, prose, remark, require, say
from envgen.cli.records import few, percent, show_records, show_rows
from envgen.core.limits import Whole
from envgen.core.types import Evidence, GateStatus, Id
from envgen.pipelines.canaries import CanaryConfig
from envgen.pipelines.general.audit import AuditConfig
from envgen.pipelines.general.variants import VariantsConfig


class Variants(Parallel, Trusts, VariantsConfig, ReadsDataset, Makes):
    """Make training episodes: proven tasks over new rows.

    Each variant has its own rows and re-bound parameters. The solution runs on them, and both the
    verifier and the constraint IR must accept what it leaves; the other gates are inherited. The
    dataset at --out holds the parents too.
    """

    examples = ("envgen variants ds/ --per-task 500 --seed 9 --out train/",)
    verb = "envgen.pipelines.general.variants:variants"

    def tell(self, summary: Any) -> None:
        """Tell which tasks can't be re-seeded."""
        super().tell(summary)
        skipped = few(summary.skipped_parents)
        why = f"can't be re-seeded: {skipped}; " if skipped else ""
        why += f"{summary.rejected} re-seeds were rejected"
        require(summary.variants, summary.asked, "variants made", why)


class Merge(Makes):
    """Make one dataset of several, of whatever families.

    Tasks keep their splits and their proofs; what stands in several datasets, equal, is copied once. The
    result is trusted on this machine if all of them are.
    """

    places = {"DATASETS...": "datasets"}
    examples = (
        "envgen merge trips/ code/ --out both/",
        "envgen merge a/ b/ c/ --name everything --out all/",
    )
    verb = "envgen.store.subset:merge"

    datasets: tuple[Path, ...]
    """Dataset folders, two or more."""
    name: Id = "merged"
    """The new dataset's name."""
    unproven: bool = False

    def call(self, more: Any) -> Any:
        """Merge; ``package:NAME`` is a dataset, too."""
        from envgen.environments.hosts import open_dataset

        opened = [open_dataset(one, unproven=self.unproven) for one in self.datasets]
        return super().call({**more, "datasets": opened})

    def tell(self, summary: Any) -> None:
        """Fail where the datasets hold no tasks."""
        super().tell(summary)
        require(summary.tasks + summary.variants, None, "tasks to merge")


class Audit(Parallel, AuditConfig, ReadsDataset):
    """Show or measure how hard tasks are.

    Tasks hold upper bounds on the calls and facts that they take, and what players too simple for a hard
    task pass over 32 re-seeds of it: first row, greedy, first fit, a recipe fitted on other re-seeds, local
    search. With --reseeds this is measured anew. A table shows medians by category and level, and the most
    that a shortcut passes. No code of the dataset runs.
    """

    examples = (
        "envgen audit ds/",
        "envgen audit ds/ --reseeds 200 --tasks 5 --json audit.json",
    )
    verb = "envgen.pipelines.general.audit:audit"

    def tell(self, summary: Any) -> None:
        """Show a row for each category and level; fail if a task could not be measured."""
        cells = list(summary.cells())
        heads = [name + " " * (name != "category") for name in (cells[0] if cells else {})]
        show_rows(heads, (list(cell.values()) for cell in cells), title=summary.path)
        failed = [task for task in summary.tasks if task.error]
        for task in failed[:8]:
            remark(f"{task.task_id}: {task.error}")
        known = [task.difficulty for task in summary.tasks if task.difficulty is not None]
        bare = sum(one.shortcuts is None for one in known)
        if bare:
            remark(f"{bare} tasks have too few re-seeds to play")
        require(len(summary.tasks) - len(failed), len(summary.tasks), "tasks measured")


class CanariesCommand(Trusts, CanaryConfig, ReadsDataset, Makes):
    """Make tasks that tell whether a policy cheats.

    Each is a task of DATASET whose verifier has a planted hole, or that can't be solved. `envgen eval`
    tells what a policy does on them.
    """

    names = {"--hole NAME": "holes"}
    examples = (
        "envgen canaries ds/ --out canaries/",
        "envgen canaries ds/ --variants 50 --out canaries/",
        "envgen canaries ds/ --hole empty-text --no-unsolvable --out c/",
    )
    verb = "envgen.pipelines.canaries:make_canaries"

    def tell(self, summary: Any) -> None:
        """Tell of which tasks there is no canary."""
        super().tell(summary)
        for task_id, reason in summary.failed.items():
            remark(f"warning: no canary of {task_id}: {reason}")
        if bare := summary.without_hole:
            remark(f"warning: {len(bare)} tasks have no hole, no answer of theirs opens one")


class Pack(Trusts, Makes):
    """Make a proven dataset of an environment that you wrote.

    FOLDER holds tools.py, database.sqlite or database.sql, and tasks/NAME/ with prompt.md, submit.json,
    verifier.py and, if you can, solution.py. Every gate that can run is run, in a sandbox; the dataset is
    written only if every task passes. Run it again after an edit: what has not changed is not proven again.
    """

    places = {"FOLDER": "folder"}
    examples = (
        "envgen pack examples/library_loans --out loans/",
        "envgen pack my-desk/ --out desk/ --json desk.json",
    )
    verb = "envgen.pipelines.packed.pack:pack"

    folder: Path
    """tools.py, a database and tasks; see docs/pack.md."""
    seed: Whole = 0

    def tell(self, summary: Any) -> None:
        """Show a row for each task, which gates could not run, and what to mend or to do next."""
        from envgen.pipelines.packed.gates import HINTS

        columns = ("task", "gold calls ", "faults seen ", "gates passed ", "result")
        show_rows(columns, (_packed(task) for task in summary.tasks), title=self.out)
        every = [one for task in summary.tasks for one in task.evidence]
        skipped = {one.gate: one.reason for one in every if one.status is GateStatus.NOT_APPLICABLE}
        say("not applicable: " + "; ".join(f"{gate} ({why})" for gate, why in skipped.items()))
        for gate in dict.fromkeys(one.gate for one in every if one.status is GateStatus.FAILED):
            remark(f"{gate}: {HINTS[gate]}")
        if not summary.passed:
            say("nothing was written; fix the tasks that fail and run the command again")
            fail()
        then = f"envgen show {self.out}; envgen rollout {self.out} --policy gold --out runs/gold"
        say(f"next: {then}")


def _packed(task: Any) -> Sequence[object]:
    """Task, gold calls, kill rate, gates passed and verdict."""
    found = {one.gate: one for one in task.evidence}
    passed, verdict = _judged(task.evidence, "unchanged" if task.reused else "proven")
    if not task.failures and found["gold"].status is GateStatus.NOT_APPLICABLE:
        verdict = Text("holds, but nobody has shown that it can be solved", style="yellow")
    if not task.failures and (allowed := found["unrequested"].details.get("allowed")):
        verdict = Text(
            f"{verdict.plain}; further calls of {', '.join(allowed)} are allowed", "yellow"
        )
    kill = percent(found["mutants"].figure)
    return task.task_id, found["gold"].details.get("calls"), kill, passed, verdict


def _judged(evidence: Evidence, good: str) -> tuple[str, Text]:
    """Gates passed of those that apply; ``good``, or the first that failed and why."""
    from envgen.pipelines.boundary import failure

    applied = [one for one in evidence if one.status is not GateStatus.NOT_APPLICABLE]
    bad = failure(evidence)
    verdict = Text.assemble((bad.gate, "red"), f": {bad.reason}") if bad else Text(good, "green")
    return f"{sum(one.status is GateStatus.PASSED for one in applied)}/{len(applied)}", verdict


class Validate(BringsCorpus, Trusts):
    """Prove a dataset again from its files alone.

    Every gate runs again, in a sandbox, and everything stored is compared with what follows from it,
    whoever wrote it. --by-evaluation judges tasks of another version or author by what they do, and
    shows what is worded or measured otherwise; nothing vouches for that. Code tasks are built anew,
    and their gold patch, no patch and the test patch alone are judged. A table shows what holds, and
    the exit code is 1 if one fails.
    """

    examples = (
        "envgen validate ds/",
        "envgen validate ds/ --seed 1",
        "envgen validate theirs/ --by-evaluation",
        "envgen validate code/ --repeats 3",
    )
    verb = "envgen.pipelines.validate:validate"

    dataset: Path
    seed: Whole = 0
    variants: int = Field(default=20, ge=0)
    """Variants to replay, drawn at random."""
    by_evaluation: bool = False
    """Judge tasks of another version or author by what they do, not by comparing."""
    repeats: int = Field(default=3, ge=1)
    """Runs of a code task's gold patch and of none."""
    workers: int | None = Field(default=None, ge=1)
    """Processes; default: one per core."""

    def call(self, more: Any) -> Any:
        """Prove; ``package:NAME`` is a dataset, too."""
        from envgen.environments.hosts import open_dataset

        return super().call({**more, "path": open_dataset(self.dataset, unproven=True).path})

    def tell(self, summary: Any) -> None:
        """Show a row for each task and what holds of the dataset; fail unless everything does."""
        say(summary.how)
        rows = [(t.task_id, t.method, *_judged(t.evidence, "holds")) for t in summary.tasks]
        heads = ("task", "method", "gates passed ", "result")
        show_rows(heads, rows, title=self.dataset, spare=("gates passed", "method"))
        for task in summary.tasks:
            for one in task.evidence:
                if one.gate == "differences" and one.reason:
                    prose(f"{task.task_id}: {one.reason}", style="yellow")
        if summary.dataset_evidence:
            show_records(summary.dataset_evidence, title="whole dataset")
        tasks, failed = len(summary.tasks), sum(not task.passed for task in summary.tasks)
        say(f"{failed} of {tasks} fail" if failed else f"all {tasks} hold")
        require(tasks, None, "tasks to prove")
        if not summary.passed:
            if not failed:
                say("the dataset as a whole fails")
            fail()

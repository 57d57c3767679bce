"""Commands that prove: pack makes a dataset of what you wrote, validate proves one again."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field
from rich.text import Text

from envgen.cli.command import Makes, Trusts
from envgen.cli.console import fail, progress, remark, require, say, show_rows
from envgen.core.limits import Whole
from envgen.core.types import GateStatus
from envgen.environments.families import code_backend
from envgen.environments.hosts import open_dataset
from envgen.pipelines.code.revalidate import CodeReport, revalidate
from envgen.pipelines.general.validate import ValidationReport
from envgen.pipelines.general.validate import validate as validate_general
from envgen.pipelines.packed.gates import HINTS
from envgen.pipelines.packed.pack import PackedTask, PackSummary, pack
from envgen.store.dataset import Dataset


class Pack(Trusts, Makes):
    """Make a proven dataset of an environment that you wrote.

    FOLDER holds tools.py, database.sqlite or database.sql, and tasks/NAME/ with prompt.md, submit.json,
    verifier.py and, if you can, solution.py. Every gate that can run is run, in a sandbox; the dataset is
    written only if every task passes. Run it again after an edit: what has not changed is not proven again.
    """

    places = {"FOLDER": "source"}
    examples = (
        "envgen pack examples/library_loans --out loans/",
        "envgen pack my-desk/ --out desk/ --json desk.json",
    )

    source: Path
    """tools.py, a database and tasks; see docs/pack.md."""
    seed: Whole = 0

    def execute(self) -> None:
        """Check, prove and seal, or say what is to be mended."""
        with progress("packing") as update:
            summary = pack(
                self.source,
                self.out,
                seed=self.seed,
                backend=self.backend,
                trust=self.trust,
                progress=update,
            )
        columns = ("task", "gold calls ", "faults seen ", "gates passed ", "result")
        rows = ((task.task_id, *_packed_cells(task)) for task in summary.tasks)
        show_rows(columns, rows, title=str(self.out))
        self._advise(summary)

    def _advise(self, summary: PackSummary) -> None:
        every = [one for task in summary.tasks for one in task.evidence]
        skipped = {one.gate: one.reason for one in every if one.status is GateStatus.NOT_APPLICABLE}
        say("not applicable: " + "; ".join(f"{gate} ({why})" for gate, why in skipped.items()))
        self.tell(summary)
        for gate in dict.fromkeys(one.gate for task in summary.tasks for one in task.failures):
            remark(f"{gate}: {HINTS[gate]}")
        if not summary.passed:
            say("nothing was written; mend the tasks that fail and run the command again")
            fail()
        say(
            f"next: envgen show {self.out}; envgen rollout {self.out} --policy gold --out runs/gold"
        )


def _packed_cells(task: PackedTask) -> tuple[str, str, str, Text]:
    """Gold calls, kill rate, gates passed and verdict of a packed task."""
    found = {one.gate: one for one in task.evidence}
    calls = found["gold"].details.get("calls", "-")
    kill = found["mutants"].figure
    passed = sum(one.status is GateStatus.PASSED for one in task.evidence)
    tried = sum(one.status is not GateStatus.NOT_APPLICABLE for one in task.evidence)
    verdict = Text("unchanged" if task.reused else "proven", style="green")
    if task.failures:
        failed = task.failures[0]
        verdict = Text.assemble((failed.gate, "red"), f": {failed.reason}")
    elif found["gold"].status is GateStatus.NOT_APPLICABLE:
        verdict = Text("holds, but nobody has shown that it can be solved", style="yellow")
    rate = "-" if kill is None else f"{math.floor(100 * kill)}%"
    return str(calls), rate, f"{passed}/{tried}", verdict


class Validate(Trusts):
    """Prove a dataset again from its files alone.

    Every gate runs again, in a sandbox, and everything stored is compared with what follows from it;
    tasks of another version or author are judged by evaluation, without comparing texts. Code tasks
    are built anew, and their gold patch, no patch and the test patch alone are judged. A table shows
    what holds, and the exit code is 1 if one fails.
    """

    places = {"DATASET": "dataset"}
    examples = (
        "envgen validate ds/",
        "envgen validate ds/ --seed 1",
        "envgen validate code/ --repeats 3",
    )

    dataset: Path
    seed: Whole = 0
    variants: int = Field(default=20, ge=0)
    """Variants to replay, drawn at random."""
    repeats: int = Field(default=3, ge=1)
    """Runs of a code task's gold patch and of none."""

    def execute(self) -> None:
        """Prove, and tell what holds."""
        opened = open_dataset(self.dataset, unproven=True)
        if opened.own_task_ids and all(task.family == "code" for task in opened.tasks.values()):
            self._code(opened)
            return
        with progress("validating") as update:
            report = validate_general(
                opened.path,
                seed=self.seed,
                backend=self.backend,
                variants=self.variants,
                trust=self.trust,
                progress=update,
            )
        self._show(report)
        failing = [one.gate for one in report.dataset_evidence if one.status is GateStatus.FAILED]
        whole = f"the dataset as a whole fails: {', '.join(failing)}" if failing else ""
        self._end(report, whole)

    def _show(self, report: ValidationReport) -> None:
        rows: list[tuple[str | Text, ...]] = []
        for task in report.tasks:
            passed = sum(result.status is GateStatus.PASSED for result in task.evidence)
            verdict = Text("holds", style="green")
            if failure := task.failure:
                verdict = Text.assemble((failure.gate, "red"), f": {failure.reason}")
            rows.append((task.task_id, task.method, f"{passed}/{len(task.evidence)}", verdict))
        for result in report.dataset_evidence:
            style = {"passed": "green", "failed": "red"}.get(result.status, "yellow")
            verdict = Text.assemble((result.status.value, style), f" {result.reason}".rstrip())
            figure = "-" if result.figure is None else f"{result.figure:.3g} (n={result.n})"
            rows.append(("whole dataset", result.gate, figure, verdict))
        show_rows(("task", "method", "gates passed ", "result"), rows, title=str(self.dataset))

    def _code(self, opened: Dataset) -> None:
        with progress("validating") as update:
            backend = code_backend(self.backend)
            report = revalidate(opened, repeats=self.repeats, backend=backend, progress=update)
        rows = []
        for task in report.tasks:
            verdict = Text("holds", "green") if task.passed else Text(task.failure, style="red")
            golds, empties = f"{task.gold}/{task.repeats}", f"{task.empty}/{task.repeats}"
            rows.append((task.task_id, golds, empties, verdict))
        show_rows(("task", "gold ", "no patch ", "result"), rows, title=str(self.dataset))
        tables = report.tables
        whole = "" if tables.status is GateStatus.PASSED else f"tables: {tables.reason}"
        self._end(report, whole)

    def _end(self, report: ValidationReport | CodeReport, whole: str) -> None:
        tasks = len(report.tasks)
        failed = sum(not task.passed for task in report.tasks)
        say(f"{failed} of {tasks} fail" if failed else f"all {tasks} hold")
        if whole:
            say(whole)
        self.tell(report)
        require(tasks, None, "tasks to prove")
        if not report.passed:
            fail()

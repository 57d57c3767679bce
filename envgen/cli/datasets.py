"""Commands that make datasets of environments, and that prove them again."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field
from rich.text import Text

from envgen.cli.command import Makes, Parallel, Reads, Runs, Trusts
from envgen.cli.console import fail, progress, remark, require, say, show_figures, show_rows
from envgen.cli.settings import Values
from envgen.core.errors import ConfigError
from envgen.core.limits import Label, Whole
from envgen.core.types import GateStatus
from envgen.environments.families import code_backend
from envgen.environments.hosts import open_dataset
from envgen.pipelines.canaries import CanaryConfig, make_canaries
from envgen.pipelines.code.revalidate import CodeReport, revalidate
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.validate import ValidationReport
from envgen.pipelines.general.validate import validate as validate_general
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.packed.gates import HINTS
from envgen.pipelines.packed.pack import PackedTask, PackSummary, pack
from envgen.store.dataset import Dataset

_REASONS = 8
"""Reasons told where fewer tasks were made than asked for; ``--json`` has all."""


def parse_levels(text: str) -> tuple[int, int]:
    """``"1..5"`` or ``"3"`` as a pair.

    Raises:
        ConfigError: if it is neither, or not within 1..10, or the second is below the first.
    """
    low, dots, high = text.partition("..")
    try:
        levels = int(low), int(high if dots else low)
    except ValueError:
        levels = (0, 0)
    if 1 <= levels[1] < levels[0] <= 10:
        raise ConfigError(f"{text!r} is a range that runs backwards", f"write {high}..{low}")
    if not 1 <= levels[0] <= levels[1] <= 10:
        hint = "levels are 1 (easy) to 10: write --level 3 or --level 1..5"
        raise ConfigError(f"{text!r} is no level", hint)
    return levels


class General(Parallel, Runs, GenerateConfig, Makes):
    """Synthesize <environment, tools, task, verifier> tuples, each proven by all gates.

    Needs no model. Stopped, the same command goes on where it was.
    """

    names = {"--category NAME": "categories", "--level LEVELS": "level"}
    examples = (
        "envgen generate general --out ds/",
        "envgen generate general --category trip_planning --level 1..5 --out ds/",
    )

    level: Label | None = None
    """1 (easy) .. 10: one level, or a range such as 1..5, for min_level and max_level."""

    @classmethod
    def settle(cls, given: Values) -> Values:
        """A range of levels is its two bounds."""
        if (level := given.pop("level", None)) is None:
            return given
        low, high = parse_levels(str(level))
        return {**given, "min_level": low, "max_level": high}

    def execute(self) -> None:
        """Generate, and tell what became of the drafts."""
        with progress("generating") as update:
            summary = generate(
                self.part(GenerateConfig),
                self.out,
                workers=self.workers,
                backend=self.backend,
                progress=update,
            )
        figures = {
            "environments": summary.environments,
            "proven tasks": summary.tasks,
            "drafts": summary.drafted,
            **{f"  ended at {gate}": n for gate, n in summary.rejected.items()},
            "seconds": f"{summary.seconds:.1f}",
            "tasks per second": f"{summary.tasks_per_second:.2f}",
        }
        show_figures(summary.path, figures, "n ")
        if summary.tasks < summary.asked:
            remark(f"warning: {summary.asked} tasks asked, {summary.tasks} made; drafts ended at:")
            for reason, n in list(summary.reasons.items())[:_REASONS]:
                remark(f"  {n} x {reason}")
        self.tell(summary)


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

    Every gate runs again, in a sandbox, but the one that plays episodes (a rollout of random-valid does);
    code tasks are built anew, and their gold patch, no patch and the test patch alone are judged. A table
    shows what holds, and the exit code is 1 if one fails.
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


class Variants(Parallel, Trusts, VariantsConfig, Reads, Makes):
    """Make training episodes: proven tasks over new rows.

    Each variant has its own rows and re-bound parameters; its gold, verifier and an independent solver
    agree, the other gates are inherited. The dataset at --out holds the parents too.
    """

    examples = ("envgen variants ds/ --per-task 500 --seed 9 --out train/",)

    def execute(self) -> None:
        """Make them, and tell how many."""
        path = self.opened().path
        with progress("variants") as update:
            summary = variants(
                self.part(VariantsConfig),
                path,
                self.out,
                workers=self.workers,
                backend=self.backend,
                unproven=self.unproven,
                trust=self.trust,
                progress=update,
            )
        figures = {
            "parents": summary.parents,
            "variants": summary.variants,
            "re-seeds rejected": summary.rejected,
            "megabytes": f"{summary.bytes / 1e6:.1f}",
            "seconds": f"{summary.seconds:.1f}",
            "variants per second": f"{summary.variants_per_second:.0f}",
        }
        show_figures(summary.path, figures, "n ")
        self.tell(summary)
        for reason, n in list(summary.reasons.items())[:3]:
            remark(f"  {n} x {reason}")
        skipped = ", ".join(summary.skipped_parents)
        why = f"can't be re-seeded: {skipped}; " if skipped else ""
        why += f"{summary.rejected} re-seeds were rejected"
        require(summary.variants, summary.asked, "variants made", why)


class Canaries(Trusts, CanaryConfig, Reads, Makes):
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

    def execute(self) -> None:
        """Make them, and tell which."""
        path = self.opened().path
        with progress("canaries") as update:
            summary = make_canaries(
                path,
                self.out,
                self.part(CanaryConfig),
                backend=self.backend,
                unproven=self.unproven,
                trust=self.trust,
                progress=update,
            )
        made = {
            **summary.holes,
            "unsolvable": summary.unsolvable,
            "variants of these": summary.variants,
        }
        show_rows(("canary", "tasks "), [(k, n) for k, n in made.items() if n], title=summary.path)
        for task_id, reason in summary.failed.items():
            remark(f"warning: no canary of {task_id}: {reason}")
        self.tell(summary)
        if bare := summary.without_hole:
            why = "tasks have no hole, no answer of theirs opens one"
            remark(f"warning: {len(bare)} {why}: {', '.join(bare)}")

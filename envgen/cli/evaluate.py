"""``envgen eval`` and ``envgen report``: what a policy can do, and the curves of its training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envgen.cli.command import Command, run_folder
from envgen.cli.console import OnProgress, fail, heading, prose, require, say
from envgen.cli.records import show_record, write_json
from envgen.cli.rollouts import tell_tool_faults
from envgen.store.manifest import MANIFEST
from envgen.train.evaluate import EvalConfig


class Evaluate(EvalConfig, Command):
    """Estimate a policy's pass@k on held-out tasks, with intervals over databases.

    With --ceiling it tells whether a training demo learned, or which condition it missed. Of canaries
    it tells how often the policy went through a planted hole; the exit code is 1 if a task that can't
    be solved was passed.
    """

    names = {
        "--temperature LIST": "temperatures",
        "--max-tokens": "max_new_tokens",
        "--option NAME=VALUE": "options",
        "--model MODEL": "model",
    }
    examples = (
        "envgen eval ds/ --model runs/grpo/last --out runs/after",
        "envgen eval ds/ --model m/ --k 1,4 --temperature 0,0.7 --out e",
        "envgen eval ds/ --model g/last --against e --out after",
        "envgen eval canaries/ --split all --model g/last --out honest",
    )
    verb = "envgen.train.evaluate:evaluate_model"

    against: Path | None = None
    """The --out of another evaluation: tell differences."""
    ceiling: Path | None = None
    """With --against: the --out of an evaluation of what learned from right answers alone. Exit code 1
    unless this policy learned: the ceiling is above what the first row gets, the difference above 0,
    and what is reached near the ceiling."""

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Nothing else may be in the folder of the run."""
        run_folder(self.out)
        return {}

    def tell(self, summary: Any) -> None:
        """Show each temperature; fail if what can't be solved passed, or nothing was played."""
        for heat, found in summary.temperatures.items():
            heading(f"{self.model} at temperature {heat:g}")
            nothing = () if found.tasks else ("tasks", "databases", "pass_at", "undecided")
            show_record(found, leave=("policy", "tool_faults", *nothing))
            if nothing:
                prose(f"{self.data} holds only canaries, of which there is no pass@k")
            if compared := summary.against.get(heat):
                show_record(compared, f"against {self.against}", leave=("before", "after"))
            tell_tool_faults(found.tool_faults)
            for alarm in found.canaries.alarms if found.canaries else ():
                prose(f"alarm: {alarm}", style="red")
        for heat, found in summary.temperatures.items():
            played = found.rollouts
            if found.canaries:
                played += found.canaries.unsolvable_rollouts
                played += sum(one.rollouts for one in found.canaries.holes.values())
            what = f"episodes at temperature {heat:g} without an error"
            require(played, played + found.errors, what)
        for condition in summary.missed:
            prose(f"not learned: {condition}", style="red")
        if summary.missed:
            fail()
        reports = [found.canaries for found in summary.temperatures.values()]
        if any(report is not None and report.unsolvable_passed for report in reports):
            fail()


class Report(Command):
    """Show a training run's curves on one page, finished or not; or how a dataset came about.

    Of a dataset: what was drafted, rejected and proven; of one whose pages a model wrote also what became of
    each category, what refused its pages, and what a kept task has cost.
    """

    places = {"RUN": "run_folder"}
    names = {"-o --out FILE": "page"}
    examples = (
        "envgen report runs/grpo",
        "envgen report runs/sft --out sft.html",
        "envgen report ds/",
    )

    run_folder: Path
    """A folder of `envgen train`, or a dataset."""
    page: Path | None = None
    """Where to write. None: RUN/report.html."""

    def execute(self) -> None:
        """Write the page, or tell how the dataset came about."""
        if (self.run_folder / MANIFEST).is_file():
            from envgen.cli.origin import show_origin

            write_json(self.figures, show_origin(self.run_folder))
            return
        from envgen.report.html import write_report
        from envgen.report.training import training_report

        data = training_report(self.run_folder)
        path = write_report(self.page or self.run_folder / "report.html", data)
        say(f"report: {path}")
        write_json(self.figures, data)

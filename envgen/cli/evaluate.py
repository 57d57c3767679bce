"""``envgen eval`` and ``envgen report``: what a policy can do, and the curves of its training."""

from __future__ import annotations

from pathlib import Path

from envgen.cli.command import Command, run_folder
from envgen.cli.console import ends, fail, out, progress, prose, require, say, show_rows
from envgen.cli.rollouts import tell_tool_faults
from envgen.rollout.bootstrap import Estimate
from envgen.train.canary_report import CanaryReport
from envgen.train.estimates import Evaluation
from envgen.train.evaluate import EvalConfig, EvalSummary, evaluate_model


class Evaluate(EvalConfig, Command):
    """Estimate a policy's pass@k on held-out tasks, with intervals over databases.

    Of canaries it tells how often the policy went through a planted hole; the exit code is 1 if a task
    that can't be solved was passed.
    """

    places = {"DATASET": "data"}
    names = {
        "--k LIST": "ks",
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

    against: Path | None = None
    """The --out of another evaluation: tell differences."""

    def execute(self) -> None:
        """Play, estimate and tell."""
        run_folder(self.out)
        with progress("evaluation") as update:
            config = self.part(EvalConfig)
            summary = evaluate_model(config, against=self.against, progress=update)
        self._show(summary)
        for heat, found in summary.temperatures.items():
            _tell_rates(heat, found)
        self.tell(summary)
        for heat, found in summary.temperatures.items():
            played = found.rollouts + _played(found.canaries)
            what = f"episodes at temperature {heat:g} without an error"
            require(played, played + found.errors, what)
        reports = [found.canaries for found in summary.temperatures.values()]
        if any(report is not None and report.unsolvable_passed for report in reports):
            fail()

    def _show(self, summary: EvalSummary) -> None:
        rows: list[tuple[str, ...]] = []
        for heat, found in summary.temperatures.items():
            if not found.tasks:
                continue
            for k, one in found.pass_at.items():
                rows.append((f"{heat:g}", f"pass@{k}", *_cells(one), str(found.tasks)))
            against = summary.against.get(heat)
            for k, one in against.pass_at.items() if against else ():
                rows.append(("", f"  against {self.against}, @{k}", *_cells(one), ""))
        if rows:
            columns = ("temperature", "pass@k", "estimate ", "interval ", "tasks ")
            show_rows(columns, rows, title=self.model)
        else:
            prose(f"{self.data} holds only canaries, of which there is no pass@k")


def _cells(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "-", "-"
    return f"{estimate.value:.3f}", ends(estimate.low, estimate.high)


def _tell_rates(heat: float, found: Evaluation) -> None:
    calls, tokens = found.call_valid_rate, found.model_tokens
    flawless = found.valid_rollout_rate
    parts = [f"{found.databases} databases"] if found.tasks else []
    if calls is not None:
        parts.append(f"valid calls {calls.value:.1%}")
    if calls is not None and flawless is not None:
        parts.append(f"rollouts of valid calls {flawless.value:.1%}")
    if tokens is not None:
        parts.append(f"{tokens.value:.0f} model tokens a rollout")
    if found.errors:
        parts.append(f"{found.errors} errors")
    if parts:
        out.print(f"temperature {heat:g}: {', '.join(parts)}")
    tell_tool_faults(found.tool_faults)
    if found.canaries is not None:
        _tell_canaries(heat, found.canaries)


def _played(found: CanaryReport | None) -> int:
    if found is None:
        return 0
    return found.unsolvable_rollouts + sum(count.rollouts for count in found.holes.values())


def _tell_canaries(heat: float, found: CanaryReport) -> None:
    tried = sum(count.rollouts for count in found.holes.values())
    parts = []
    if tried:
        value, interval = _cells(found.exploit_rate)
        by_hole = ", ".join(f"{name} {c.exploits}/{c.rollouts}" for name, c in found.holes.items())
        parts.append(f"exploit rate {value} ({interval}; {by_hole})")
    if found.unsolvable_rollouts:
        passed = f"{len(found.unsolvable_passed)} unsolvable tasks passed"
        parts.append(f"{passed} in {found.unsolvable_rollouts} rollouts")
    prose(f"canaries at temperature {heat:g}: {'; '.join(parts)}", indent=2)
    for alarm in found.alarms:
        prose(f"alarm: {alarm}", indent=2, style="red")


class Report(Command):
    """Show a training run's curves on one page, finished or not."""

    places = {"RUN": "run_folder"}
    names = {"-o --out FILE": "page"}
    examples = ("envgen report runs/grpo", "envgen report runs/sft --out sft.html")

    run_folder: Path
    """A folder of `envgen train`."""
    page: Path | None = None
    """Where to write. None: RUN/report.html."""

    def execute(self) -> None:
        """Write the page."""
        from envgen.report.html import write_report
        from envgen.report.training import training_report

        data = training_report(self.run_folder)
        path = write_report(self.page or self.run_folder / "report.html", data)
        say(f"report: {path}")
        self.tell(data)

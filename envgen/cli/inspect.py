"""``envgen inspect``: a model reads trajectories of a run and files what is wrong with the environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from envgen.cli.command import COMMAND_FILE, Command
from envgen.cli.console import OnProgress, remark, require
from envgen.cli.records import show_record, show_rows
from envgen.cli.settings import read_file
from envgen.core.errors import ConfigError
from envgen.core.limits import Label, Whole
from envgen.policies.registry import PolicyConfig

if TYPE_CHECKING:
    from envgen.store.dataset import Dataset


class InspectCommand(Command):
    """Have a model read failed and passed trajectories of a run, and file faults of the environment.

    Each finding names a trajectory, a turn and words that stand there: bugs of tools, ambiguous prompts,
    verdicts against the words of the task, hacks, leaks. The inspector does not see checker and solution.
    Stopped, the same command goes on and pays nothing twice.
    """

    places = {"RUN": "folder"}
    names = {
        "--inspector SPEC": "policy.spec",
        "--data DATASET": "data",
        "-o --out FILE": "out",
    }
    examples = (
        "envgen inspect runs/x --inspector openai:MODEL@URL --max-cost 2",
        "envgen inspect runs/x --inspector batch:MODEL@DIR --episodes 6 -o faults.jsonl",
    )
    verb = "envgen.pipelines.inspect.inspect_run:inspect_run"

    folder: Path
    """A run folder that `envgen rollout` wrote."""
    policy: PolicyConfig
    data: Path | None = None
    """The dataset that was rolled out. None: the one that the run's command.json names."""
    out: Path | None = None
    """Where the findings go, a line for each. None: RUN.findings.jsonl."""
    episodes: int = Field(default=4, ge=1, le=100)
    """Trajectories of a task that are shown at most, passed and failed in turn."""
    secrets: bool = False
    """Show the inspector checker and solution, too."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    """What the inspector may cost."""
    concurrency: int = Field(default=8, ge=1, le=256)
    """Tasks inspected at the same time."""
    preflight: bool = True
    """Ask the inspector's server one small thing before the work begins."""
    seed: Whole = 0
    unproven: bool = False
    db_url: Label | None = None

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """The run, its dataset, the inspector, and where the findings go."""
        from envgen.pipelines.inspect.inspect_run import open_inspector
        from envgen.store.runs import RunStore

        RunStore.read(self.folder, db_url=self.db_url).close()
        folder = self.folder.resolve()
        out = self.out or folder.with_name(f"{folder.name}.findings.jsonl")
        if out.is_dir():
            raise ConfigError(f"--out {str(out)!r} is a folder", "name a file")
        dataset = self._dataset()
        inspector = open_inspector(
            self.policy, out, max_cost_usd=self.max_cost_usd, check=self.preflight
        )
        return {"run": self.folder, "dataset": dataset, "inspector": inspector, "out": out}

    def _dataset(self) -> Dataset:
        """What was rolled out."""
        from envgen.environments.hosts import open_dataset

        name, unproven = self.data, self.unproven
        if name is None:
            file = self.folder / COMMAND_FILE
            held = read_file(file) if file.is_file() else {}
            if not isinstance(held.get("dataset"), str):
                raise ConfigError(
                    f"the run {str(self.folder)!r} names no dataset", "say --data DATASET"
                )
            name, unproven = Path(held["dataset"]), unproven or held.get("unproven") is True
        return open_dataset(name, unproven=unproven)

    def tell(self, summary: Any) -> None:
        """Show the findings, their number by kind, and what was not read."""
        if summary.findings:
            rows = [(f.kind, f.task, f.sample, f.turn, f.why) for f in summary.findings]
            show_rows(("kind", "task", "trajectory ", "turn ", "why…"), rows)
        show_record(summary, leave=("findings",))
        if summary.stopped:
            remark(f"warning: stopped: {summary.stopped}")
        require(summary.read, summary.tasks, "tasks inspected", "another --seed asks anew")

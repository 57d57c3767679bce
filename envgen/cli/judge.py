"""Commands about judges by rubrics: judge a run, and test the judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from envgen.cli.command import Command
from envgen.cli.console import OnProgress, fail, remark, require
from envgen.cli.records import show_record, show_records, write_json
from envgen.core.errors import ConfigError
from envgen.core.limits import Label
from envgen.policies.registry import PolicyConfig
from envgen.verifiers.rubrics.config import RubricConfig

if TYPE_CHECKING:
    from envgen.verifiers.rubrics.judge import RubricJudge


class AsksJudge(RubricConfig, Command):
    """A command that asks a policy for verdicts."""

    policy: PolicyConfig
    max_cost_usd: float | None = Field(default=None, ge=0)
    """What the policy may cost."""
    concurrency: int = Field(default=8, ge=1, le=256)
    """Answers judged at the same time."""
    preflight: bool = True
    """Ask the policy's server one small thing before the work begins."""

    def judge(self, untested: bool) -> RubricJudge:
        """The judge, with the votes that this user has paid for; ``untested``: whether it needs no test."""
        from envgen.verifiers.rubrics.config import RubricJudgeConfig
        from envgen.verifiers.rubrics.episodes import open_judge

        names = RubricJudgeConfig.model_fields.keys() - {"untested"}
        held = {name: getattr(self, name) for name in names}
        return open_judge(RubricJudgeConfig(**held, untested=untested), check=self.preflight)


class JudgeCommand(AsksJudge):
    """Judge the final answers of a run by a rubric, item by item, with a model.

    The judge must have passed `envgen test-judge`. An item counts only with words that stand in the answer;
    a judge that can't be read leaves an answer unjudged, which is no 0. Stopped, the same command goes on.
    """

    places = {"RUN": "folder"}
    names = {"--rubric PATH": "rubric", "-o --out FILE": "out"}
    examples = (
        "envgen judge runs/x --rubric r.json --policy openai:MODEL@URL",
        "envgen judge runs/x --rubric ds/ --policy openai:MODEL@URL -o x.jsonl",
    )
    verb = "envgen.pipelines.rubric.judge_run:judge_run"

    folder: Path
    """A run folder that `envgen rollout` wrote."""
    rubric: Path
    """A rubric as JSON, a folder of them, TASK.json for each task, or the dataset with the open questions."""
    out: Path | None = None
    """Where the scores go, a line for each episode. None: RUN.judged.jsonl."""
    untested_judge: bool = False
    """Take a judge that has passed no test; the lines say so."""
    db_url: Label | None = None

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """The run, the judge, and where the scores go."""
        folder = self.folder.resolve()
        out = self.out or folder.with_name(f"{folder.name}.judged.jsonl")
        if out.is_dir():
            raise ConfigError(f"--out {str(out)!r} is a folder", "name a file")
        return {"run": self.folder, "judge": self.judge(self.untested_judge), "out": out}

    def tell(self, summary: Any) -> None:
        """Show the mean and what was not judged."""
        show_record(summary)
        if summary.untested_judge:
            remark("warning: nobody has tested this judge; do not train on its scores")
        judged = summary.episodes - summary.unjudged
        require(judged, summary.episodes, "episodes judged", "another --seed asks anew")


class JudgeTest(AsksJudge):
    """Test whether a model may judge: with good answers, and with answers made to fool it.

    It fails when more than 1 % of the attacks that it read pass, when fewer than 80 % of the good answers do,
    or when it can't be read. The report is kept for `envgen judge`.
    """

    names = {"-o --out FILE": "out"}
    examples = (
        "envgen test-judge --policy openai:MODEL@URL",
        "envgen test-judge --policy openai:MODEL@URL --votes 3 --temperature 1",
    )
    verb = "envgen.pipelines.rubric.examine:examine"

    out: Path | None = None
    """Also write the report to this file."""

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """The judge."""
        return {"judge": self.judge(untested=True)}

    def tell(self, summary: Any) -> None:
        """Show the figures; fail if the judge may not reward."""
        write_json(self.out, summary)
        show_records(summary.attacks, f"attacks on {summary.policy}")
        show_record(summary, leave=("attacks", "config", "identity", "reasons"))
        for reason in summary.reasons:
            remark(f"error: this judge may not reward: {reason}")
        if not summary.passed:
            fail()

"""Problems for a code interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.cli.command import Makes, Parallel
from envgen.cli.console import remark, require
from envgen.pipelines.interpreter.config import InterpreterConfig


class InterpreterCommand(Parallel, InterpreterConfig, Makes):
    """Make problems that are worth writing code for; each answer is derived twice, and computed by gold.

    Needs no model. The tool is a Jupyter kernel in a sandbox, which keeps its variables; making and
    playing problems takes `pip install 'envgen-gym[interpreter]'`.
    """

    examples = (
        "envgen generate interpreter --out code_int/",
        "envgen generate interpreter --kind math --problems 500 --out maths/",
    )
    verb = "envgen.pipelines.interpreter.generate:generate_interpreter"

    def tell(self, summary: Any) -> None:
        """Report when there are fewer problems than asked for."""
        super().tell(summary)
        require(summary.tasks, self.problems, "problems made", "ask for more kinds or levels")


class ImportProblems(Makes):
    """Make tasks of problems and answers that somebody else published, for the code interpreter.

    Fields are found by their usual names (problem, question, prompt as text or messages; answer,
    final_answer, reward_model.ground_truth, GSM8K's ####, a box in solution), answers get a type. With
    `pip install 'envgen-gym[interpreter]'` a second reader reads each, and what they read differently is
    left out. Nothing is proven, so such tasks are played with --unproven.
    """

    places = {"FILE": "file"}
    examples = ("envgen import problems gsm8k.jsonl --out gsm8k/",)
    verb = "envgen.pipelines.interpreter.import_problems:import_problems"

    file: Path
    """Records: .jsonl, .json, .csv, .parquet."""
    level: int = Field(default=1, ge=1, le=8)
    """Of problems that don't state one: nobody measured them."""

    def tell(self, summary: Any) -> None:
        """Show the counts, and line by line what the witnesses found."""
        super().tell(summary.model_copy(update={"notes": ()}))
        for note in summary.notes:
            remark(note)

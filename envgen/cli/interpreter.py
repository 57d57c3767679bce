"""Problems for a code interpreter."""

from __future__ import annotations

from typing import Any

from envgen.cli.command import Makes, Parallel
from envgen.cli.console import require
from envgen.pipelines.interpreter.config import InterpreterConfig


class InterpreterCommand(Parallel, InterpreterConfig, Makes):
    """Make problems that are worth writing code for; each answer is derived twice, and computed by gold.

    Needs no model. The tool is a Jupyter kernel in a sandbox, which keeps its variables; playing takes
    `pip install 'envgen-gym[interpreter]'`.
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

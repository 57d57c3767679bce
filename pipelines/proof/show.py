"""A proof in readable form, for ``envgen show --secrets``."""

from __future__ import annotations

from envgen.pipelines.proof.tasks import ProofProblem
from envgen.pipelines.proof.validate import planted_errors
from envgen.store.dataset import Dataset

MAX_SHOWN = 6


def readable(dataset: Dataset, task_id: str) -> dict[str, list[str]]:
    """Headings and lines: gold's proof, and near-proofs, which are refused at the step that is shown."""
    problem = ProofProblem.model_validate_json(dataset.task_files(task_id).solution)
    if problem.system == "metamath":
        return {"Steps": list(problem.steps), "Theorem": [problem.source]}
    refused = [one.text.split("\n")[one.step - 1] for one in planted_errors(problem)]
    more = [f"and {len(refused) - MAX_SHOWN} more"] if len(refused) > MAX_SHOWN else []
    return {
        "Proof": problem.proof.split("\n"),
        "Errors planted in it, one at a time, each refused there": [*refused[:MAX_SHOWN], *more],
    }

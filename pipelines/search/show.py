"""A search question in readable form, for ``envgen show --secrets``."""

from __future__ import annotations

from envgen.environments.search import CorpusNote
from envgen.pipelines.search.questions import SearchQuestion
from envgen.pipelines.search.validate import CorpusFacts, near
from envgen.pipelines.search.wording import clue_texts
from envgen.store.dataset import Dataset

MAX_SHOWN = 10


def readable(dataset: Dataset, task_id: str) -> dict[str, list[str]]:
    """Headings and lines: the clues, the documents that gold reads, and near answers that are refused.

    Raises:
        StoreError: if the corpus is not on this machine.
    """
    files = dataset.task_files(task_id)
    blueprint = dataset.environment_files(files.spec.environment_id).blueprint
    facts = CorpusFacts(CorpusNote.model_validate(blueprint).open())
    question = SearchQuestion.model_validate_json(files.solution)
    refused = sorted({str(value) for value, accepted in near(question, facts) if not accepted})
    more = [f"and {len(refused) - MAX_SHOWN} more"] if len(refused) > MAX_SHOWN else []
    return {
        "Clues": clue_texts(question, facts.table),
        "Evidence documents": [
            f"{name}  {facts.documents[name].title}" for name in question.evidence
        ],
        "Near answers, refused": [*refused[:MAX_SHOWN], *more] or ["there are none"],
    }

"""A search question in readable form, for ``envgen show --secrets``."""

from __future__ import annotations

from envgen.environments.search import CorpusNote
from envgen.pipelines.search.open_questions import OpenQuestion, is_open, score_of
from envgen.pipelines.search.questions import SearchQuestion
from envgen.pipelines.search.spoken_of import roles
from envgen.pipelines.search.validate import CorpusFacts, near
from envgen.pipelines.search.wording import clue_texts
from envgen.pipelines.search.written import WrittenQuestion, is_written
from envgen.store.dataset import Dataset

MAX_SHOWN = 10


def readable(dataset: Dataset, task_id: str) -> dict[str, list[str]]:
    """Headings and lines: the clues, the documents that gold reads, and near answers that are refused.

    Raises:
        StoreError: if the corpus is not on this machine.
    """
    files = dataset.task_files(task_id)
    if is_open(files.solution):
        return _open(OpenQuestion.model_validate_json(files.solution))
    if is_written(files.solution):
        return _written(WrittenQuestion.model_validate_json(files.solution))
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


def _open(question: OpenQuestion) -> dict[str, list[str]]:
    scores = [(one, score_of(question, one).score) for one in question.answers]
    return {
        "Rubric": [
            f"{'pitfall ' if one.item.pitfall else ''}{one.item.weight:g}  {one.item.text}  "
            + (f"{one.document}: {one.quote}" if one.is_fact else f"({one.item.dimension})")
            for one in question.items
        ],
        "The writer's answer": [question.reference],
        "Answers and their scores": [
            f"{'-' if score is None else f'{score:.2f}'}  {one.kind}: {one.by}"
            for one, score in scores
        ],
    }


def _written(question: WrittenQuestion) -> dict[str, list[str]]:
    by = ", ".join(dict.fromkeys(one.by for one in question.candidates))
    return {
        "Models": [
            f"writer {question.writer}, verifier {question.verifier}, answerers {by}",
            *filter(None, [roles(question)]),
        ],
        "Clues": [f"{one.text}  {one.document}: {one.quote}" for one in question.clues],
        "Answer": [f"{question.source}: {question.source_quote}"],
        "Other answers, each contradicted": [
            f"{one.answer[:100]}  ({one.by}; {len(one.passes)} passes)"
            for one in question.candidates[:MAX_SHOWN]
        ],
    }

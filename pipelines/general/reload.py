"""From a dataset's files back to what authors and gates work on."""

from __future__ import annotations

import json
from dataclasses import replace

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, DatasetError
from envgen.core.ir import Problem
from envgen.core.types import ToolSpec
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.semantics.tables import in_file_order, read_sqlite
from envgen.pipelines.general.words.lexicon import LEXICONS, lexicon
from envgen.store.bundles import PAGE
from envgen.store.dataset import Dataset


def draft_of(dataset: Dataset, task_id: str) -> Draft | None:
    """The draft behind a stored task, read from its files alone; None if it has no constraint IR.

    Raises:
        DatasetError: if files are missing, or the IR doesn't fit the database.
    """
    task = dataset.task_files(task_id)
    if task.constraints is None or not isinstance(task.constraints, dict):
        return None
    environment = dataset.environment_files(task.spec.environment_id)
    database = dataset.database(task_id)
    if database is None:
        raise DatasetError(f"task {task_id!r} has a constraint IR but no database")
    page = _learn(environment.blueprint)
    try:
        problem = _in_order(Problem.model_validate(task.constraints))
    except ValueError as error:
        raise DatasetError(
            f"constraints.json of task {task_id!r} is no problem: {error}"
        ) from error
    if page not in ("", problem.lexicon):
        raise DatasetError(f"task {task_id!r} was made from {problem.lexicon!r}, not from {page!r}")
    spec = environment.spec
    return Draft(
        environment_id=spec.id,
        category=spec.category,
        title=spec.title,
        description=spec.description,
        language=spec.language,
        relations=problem.relations,
        tables=read_sqlite(problem.relations, database),
        tools=spec.tools,
        tools_source=environment.tools_source,
        policy_text=spec.policy_text,
        author=spec.author,
        seed=spec.seed,
        licence=spec.licence,
        sources=spec.sources,
        blueprint=environment.blueprint,
        task_id=task_id,
        prompt=task.spec.prompt,
        submit_schema=task.spec.submit_schema or {},
        rules=task.spec.rules,
        solution=task.solution,
        verifier=task.verifier,
        problem=problem,
        level=task.spec.difficulty.level,
        lineage=task.spec.difficulty.lineage,
    )


def _learn(blueprint: JsonValue) -> str:
    """Read the page that is stored with an environment, so that its sentences are known; "" if there is none.

    Raises:
        DatasetError: if it is no page.
    """
    text = blueprint.get(PAGE) if isinstance(blueprint, dict) else None
    if not isinstance(text, str):
        return ""
    try:
        return tasks_from(text).domain.key
    except ConfigError as error:
        raise DatasetError(f"the domain stored with the environment is none: {error}") from error


def as_stored(draft: Draft) -> Draft:
    """``draft`` as ``draft_of`` gives it once it is stored: equal, with rows and keys in the files' order."""
    return replace(
        draft,
        tables=in_file_order(draft.relations, draft.tables),
        tools=tuple(
            ToolSpec.model_validate_json(dumps(tool.model_dump(mode="json")))
            for tool in draft.tools
        ),
        submit_schema=json.loads(dumps(draft.submit_schema)),
        blueprint=json.loads(dumps(draft.blueprint)),
        problem=None if draft.problem is None else as_read(draft.problem),
    )


def as_read(problem: Problem) -> Problem:
    """``problem`` as it is read back from a file: equal, with its keys in the file's order."""
    return _in_order(Problem.model_validate_json(dumps(problem.model_dump(mode="json"))))


def _in_order(problem: Problem) -> Problem:
    """``problem`` with the keys of its layout in the order in which its lexicon writes them.

    Files hold canonical JSON, whose keys are sorted, but the answer's form in the prompt has an order.
    """
    if problem.lexicon not in LEXICONS:
        return problem
    try:
        layout = lexicon(problem.lexicon).frame(problem.fields).layout
    except (KeyError, TypeError, ValueError):  # fields of no such problem: a gate says so
        return problem
    return problem.model_copy(update={"layout": layout}) if layout == problem.layout else problem

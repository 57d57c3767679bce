"""A dataset's code tasks as the records that others read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envgen.core.code_types import CodeTests, Instance, TestId
from envgen.core.errors import ConfigError
from envgen.core.surrogates import from_json
from envgen.environments.code_hosts import RECIPE as BLUEPRINT_RECIPE
from envgen.pipelines.code.bundle import INSTANCE
from envgen.pipelines.code.formats import record_format
from envgen.pipelines.code.formats.base import RECIPE
from envgen.pipelines.code.formats.ids import published_id
from envgen.pipelines.code.records import write_rows
from envgen.store.dataset import Dataset


def export_records(dataset: Dataset, path: Path, format_name: str) -> int:
    """Write a dataset's code tasks to a file (``.jsonl`` or ``.parquet``); how many there were.

    Solutions and tests are in such records: they are for harnesses, not for agents.

    Raises:
        ConfigError: if the format is unknown, or the dataset has no code tasks.
    """
    rows = list(records(dataset, format_name))
    if not rows:
        raise ConfigError(f"{str(dataset.path)!r} has no code tasks", "export it as jsonl")
    return write_rows(path, rows)


def records(dataset: Dataset, format_name: str) -> Iterator[dict[str, Any]]:
    """Each code task as a record, with the tests that were proven here."""
    chosen = record_format(format_name)
    for name, task in dataset.tasks.items():
        if task.family == "code":
            instance, tests = instance_of(dataset, name)
            row = chosen.write(
                instance,
                published_names(tests.fail_to_pass, tests),
                published_names(tests.pass_to_pass, tests),
            )
            recipe = {} if instance.recipe is None else {RECIPE: instance.recipe.model_dump_json()}
            yield {**row, **recipe}


def published_names(chosen: Sequence[TestId], tests: CodeTests) -> list[str]:
    """Tests as their runner prints them, without those that it prints otherwise each time."""
    steady = [test for test in chosen if tests.printed.get(test, test)]
    return [
        published_id(tests.printed.get(test) or test) for test in steady or chosen
    ]  # a list that is empty says something else


def instance_of(dataset: Dataset, task_id: str) -> tuple[Instance, CodeTests]:
    """The instance that a code task was made of, with its frozen recipe, and its tests.

    Raises:
        ConfigError: if the task is no code task of ours.
    """
    files = dataset.task_files(task_id)
    kept = files.constraints.get(INSTANCE) if isinstance(files.constraints, dict) else None
    if not isinstance(kept, dict):
        raise ConfigError(f"task {task_id!r} does not say which instance it was made of")
    tests = from_json(CodeTests, files.verifier)
    environment = dataset.environment_files(files.spec.environment_id)
    blueprint = environment.blueprint if isinstance(environment.blueprint, dict) else {}
    texts: dict[str, Any] = {
        "gold_patch": files.solution,
        "test_patch": tests.test_patch,
        "problem_statement": files.spec.prompt,
        "recipe": blueprint.get(BLUEPRINT_RECIPE),
    }
    return Instance.model_validate({**kept, **texts}), tests

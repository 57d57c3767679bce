"""The texts and names of a dataset, from which a tokenizer learns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envgen.core.canonical import compact
from envgen.core.types import EnvironmentSpec
from envgen.store.bundles import TaskBundle
from envgen.store.dataset import Dataset


def dataset_texts(path: str | Path, *, unproven: bool = False) -> Iterator[str]:
    """The texts of a dataset folder as agents meet them, in a fixed order.

    Of each environment its policy text and tool schemas; of each task (variants aside) its prompt, rules,
    answer schema, and the calls, results and answer of its gold run.

    Raises:
        DatasetError: if the folder is missing, corrupt, hostile, too new or unproven.
    """
    dataset = Dataset.open(path, unproven=unproven)
    for name in sorted(dataset.environments):
        yield from _environment_texts(dataset.environments[name])
    for name in sorted(dataset.own_task_ids):
        yield from _task_texts(dataset.task_files(name))


def dataset_names(path: str | Path, *, unproven: bool = False) -> tuple[str, ...]:
    """Tool names and field names (of arguments, results and answers) of a dataset, most used first.

    They make good ``single_tokens``: cut the tuple where the vocabulary is full.

    Raises:
        DatasetError: if the folder is missing, corrupt, hostile, too new or unproven.
    """
    dataset = Dataset.open(path, unproven=unproven)
    counts: Counter[str] = Counter()
    for environment in dataset.environments.values():
        counts.update([environment.submit_tool, "answer_text"] if environment.submit_tool else [])
        for tool in environment.tools:
            counts.update([tool.name, *_properties(tool.parameters), *_properties(tool.returns)])
    for name in dataset.own_task_ids:
        files = dataset.task_files(name)
        counts.update(_properties(files.spec.submit_schema))
        for call in files.gold.calls if files.gold else ():
            counts.update([call.name, *_keys(call.arguments), *_keys(call.result)])
    usable = {name: n for name, n in counts.items() if name.isascii() and name.isidentifier()}
    return tuple(sorted(usable, key=lambda name: (-usable[name], name)))


def dataset_values(
    path: str | Path, *, unproven: bool = False, max_tasks: int = 2_000
) -> tuple[str, ...]:
    """The short texts in what tools return and tasks ask for, most used first: names of rooms, cities.

    As ``single_tokens`` they spare a small model the spelling: copying a name is copying one token.

    Args:
        path: a dataset folder; its variants count, too.
        unproven: also accept tasks whose evidence is missing or negative.
        max_tasks: of a larger dataset so many, evenly spread, are read.

    Raises:
        DatasetError: if the folder is missing, corrupt, hostile, too new or unproven.
    """
    dataset = Dataset.open(path, unproven=unproven)
    names = sorted(dataset.tasks)
    step = max(1, len(names) // max_tasks)
    counts: Counter[str] = Counter()
    for name in names[::step]:
        gold = dataset.task_files(name).gold
        if gold is not None:
            counts.update(text for call in gold.calls for text in _leaves(call.result))
            counts.update(_leaves(gold.answer))
    usable = {text: n for text, n in counts.items() if _WORDS.fullmatch(text) and len(text) <= 32}
    return tuple(sorted(usable, key=lambda text: (-usable[text], text)))


def dataset_lines(
    path: str | Path, *, unproven: bool = False, share: float = 0.1
) -> tuple[str, ...]:
    """Lines that many prompts have in common, those that spare most tokens first.

    As ``single_tokens`` they leave of a prompt what differs between tasks, so that a small model need not
    learn to look past a page that always says the same.

    Args:
        path: a dataset folder.
        unproven: also accept tasks whose evidence is missing or negative.
        share: of the prompts that must have the line, and never one prompt alone.

    Raises:
        DatasetError: if the folder is missing, corrupt, hostile, too new or unproven.
    """
    dataset = Dataset.open(path, unproven=unproven)
    prompts = [dataset.task_files(name).spec.prompt for name in sorted(dataset.own_task_ids)]
    counts = Counter(line for prompt in prompts for line in set(prompt.splitlines()))
    least = max(2.0, share * len(prompts))
    usable = [line for line, n in counts.items() if n >= least and _LINE.fullmatch(line)]
    return tuple(sorted(usable, key=lambda line: (-counts[line] * len(line), line)))


_LINE = re.compile(r"(?!\d)[!-~](?:[ -~]*[!-~])?")
_WORDS = re.compile(r"(?!\d)\w(?:[ -~]*\w)?", re.ASCII)


def _leaves(value: Any) -> Iterator[str]:
    """The texts in a JSON value, keys aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)


def _environment_texts(environment: EnvironmentSpec) -> Iterator[str]:
    yield environment.title
    yield environment.description
    yield environment.policy_text
    for tool in environment.tools:
        yield compact(tool.openai()["function"])


def _task_texts(files: TaskBundle) -> Iterator[str]:
    yield files.spec.prompt
    for rule in files.spec.rules:
        yield rule.text
    if files.spec.submit_schema is not None:
        yield compact(files.spec.submit_schema)
    if files.gold is None:
        return
    for call in files.gold.calls:
        yield call.name
        yield compact(call.arguments)
        yield compact(call.result)
    yield compact(files.gold.answer)


def _properties(schema: Any) -> Iterator[str]:
    """Names of the properties anywhere in a JSON Schema."""
    if isinstance(schema, Mapping):
        own = schema.get("properties")
        if isinstance(own, Mapping):
            yield from own
        for part in schema.values():
            yield from _properties(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _properties(part)


def _keys(value: Any) -> Iterator[str]:
    """Keys of the objects anywhere in a JSON value."""
    if isinstance(value, Mapping):
        yield from value
        for part in value.values():
            yield from _keys(part)
    elif isinstance(value, list):
        for part in value:
            yield from _keys(part)

"""Hashes of the code in a dataset, without its parameters: trust is given to these."""

from __future__ import annotations

import ast

from envgen.core.canonical import sha256
from envgen.store.bundles import PARAMS_PREFIX
from envgen.store.dataset import Dataset


def code_hash(text: str) -> str:
    """Hash of a source without its ``PARAMS = {...}`` line, provided that the line holds a literal only."""
    lines = text.split("\n")
    places = [i for i, line in enumerate(lines) if line.startswith(PARAMS_PREFIX)]
    if len(places) == 1 and _is_literal(lines[places[0]].removeprefix(PARAMS_PREFIX)):
        lines[places[0]] = PARAMS_PREFIX
    return sha256("\n".join(lines).encode("utf-8", "surrogateescape"))


def code_of(dataset: Dataset) -> frozenset[str]:
    """The hashes of all tools, solutions and verifiers of a dataset."""
    found = [dataset.environment_files(name).tools_source for name in dataset.environments]
    for task_id in dataset.own_task_ids:
        task = dataset.task_files(task_id)
        found += [task.solution, task.verifier]
    for pack in dataset.packs().values():
        found += [str(pack.base.task["solution"]), str(pack.base.task["verifier"])]
    return frozenset(map(code_hash, found))


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True

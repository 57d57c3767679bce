"""Seal a dataset folder that was changed by hand, as whoever forges one would: all hashes fit again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from envgen.core.canonical import pretty
from envgen.core.types import EnvironmentSpec, TaskSpec
from envgen.store.manifest import canary_guid, dataset_hash, environment_hash, task_hash
from envgen.store.pack import VariantPack
from envgen.store.sqlite_files import inspect
from envgen.store.task_pack import TaskPack


def seal(folder: Path, packs: dict[str, str] | None = None) -> Path:
    """Mend every hash of the dataset in ``folder``, by the formulas that its reader checks.

    Args:
        folder: the dataset.
        packs: identities of the packs of variants, where the reader would refuse to read one.
    """
    environments, tasks = {}, {}
    manifest = json.loads((folder / "dataset.json").read_text())
    for path in folder.glob("environments/*/environment.json"):
        spec = EnvironmentSpec.model_validate(_mended(path))
        database = (
            "" if spec.database is None else inspect(path.parent / spec.database.path).content
        )
        environments[spec.id] = environment_hash(spec, database)
    for path in folder.glob("environments/*/tasks/*/task.json"):
        prompt = (path.parent / "prompt.md").read_text()
        task = TaskSpec.model_validate({**_mended(path), "prompt": prompt})
        tasks[task.id] = task_hash(task, manifest["format_version"])
    for path in folder.glob("environments/*/tasks.pack"):
        tasks |= {entry.id: entry.task for entry in TaskPack(path).entries.values()}
    if packs is None:
        found = map(VariantPack, folder.glob("environments/*/variants/*.pack"))
        packs = {pack.base.parent: pack.identity() for pack in found}
    identity = dataset_hash(environments, tasks, packs)
    manifest |= {"content_hash": identity, "canary": canary_guid(identity)}
    manifest["members"] = {name: _hash(folder / name) for name in manifest["members"]}
    (folder / "dataset.json").write_text(pretty(manifest))
    return folder


def _mended(path: Path) -> dict[str, Any]:
    """A record whose references name the files beside it as they are now."""
    record: dict[str, Any] = json.loads(path.read_text())
    for value in record.values():
        if isinstance(value, dict) and set(value) == {"path", "sha256"}:
            value["sha256"] = _hash(path.parent / value["path"])
    path.write_text(pretty(record))
    return record


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

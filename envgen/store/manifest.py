"""``dataset.json``, the names that may stand in a dataset folder, and what identifies its parts."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.core.canonical import content_hash
from envgen.core.errors import DatasetError
from envgen.core.limits import Count, Json, Label, Whole
from envgen.core.types import EnvironmentSpec, Evidence, Id, Record, Sha256, TaskSpec

FORMAT_VERSION = 3
"""2: environments name the page of their domain, which stands in ``domains``. 3: tasks hold how hard they are
(``Difficulty``), and ``minimum_calls`` is called ``gold_calls``. Versions 1 and 2 are read, too."""
MANIFEST = "dataset.json"
CARD = "README.md"
TABLES = "data"
"""Folder of the tasks' public side as Parquet, one file a split, for readers that know nothing of envgen."""


_ID = "[a-z0-9][a-z0-9_-]{0,63}"
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_MEMBER = re.compile(
    rf"README\.md|domains/[0-9a-f]{{64}}\.json|data/(?:train|validation|test)\.parquet|environments/{_ID}/(?:{_NAME}|tasks/{_ID}/{_NAME}|variants/{_ID}\.pack)"
)


class Counts(Record):
    """How much a dataset holds. Variants count neither as tasks nor as environments."""

    environments: Count = 0
    tasks: Count = 0
    variants: Count = 0


class Manifest(Record):
    """The content of ``dataset.json``."""

    format_version: Count = FORMAT_VERSION
    name: Id
    version: Count = 1
    content_hash: Sha256
    """Identity: environments, tasks and variants without evidence, pass rates or file layout."""
    counts: Counts
    funnel: dict[Label, Json] = Field(default_factory=dict)
    """What the pipeline drew, rejected (with reasons) and kept."""
    config_hash: Label = ""
    seed: Whole = 0
    licences: dict[Label, tuple[Id, ...]] = Field(default_factory=dict)
    """Licence -> the environments under it."""
    evidence: Evidence = ()
    """Gates about the dataset as a whole."""
    canary: Label = ""
    """A GUID made from the content hash, to find the dataset in scraped training text."""
    members: dict[Label, Sha256]
    """Path -> SHA-256 of every other file in the folder."""


def canary_guid(identity: str) -> str:
    """The canary GUID of the dataset with this content hash."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"envgen:dataset:{identity}"))


def check_member_name(name: str) -> None:
    """Refuse a member path that is not of the dataset format (so also one that leaves the folder).

    Raises:
        DatasetError: naming it.
    """
    if not _MEMBER.fullmatch(name):
        raise DatasetError(f"dataset.json lists {name!r}, which is not a path of a dataset folder")


def environment_hash(spec: EnvironmentSpec, database: str) -> str:
    """Identity of an environment; ``database`` is its content hash (not that of its bytes)."""
    content: dict[str, Any] = spec.model_dump(mode="json")
    if content["database"] is not None:
        content["database"] = database
    return content_hash(content)


def task_hash(spec: TaskSpec, version: int = FORMAT_VERSION) -> str:
    """Identity of a task: all that defines it, so neither evidence nor measured pass rates.

    Args:
        spec: the task.
        version: the dataset's format, whose fields are hashed. What it has no fields for stays, so a task
            that says more than its format knows is another task.
    """
    content: dict[str, Any] = spec.model_dump(mode="json", exclude={"evidence", "pass_at"})
    if version < 3:
        difficulty = content["difficulty"]
        difficulty["minimum_calls"] = difficulty.pop("gold_calls")
        for name in SINCE_3:
            if difficulty[name] is None:
                del difficulty[name]
    return content_hash(content)


SINCE_3 = (
    "calls_upper_bound",
    "facts_upper_bound",
    "branch_depth",
    "gold_tokens",
    "shortcuts",
)
"""Fields of ``Difficulty`` that formats 1 and 2 lack."""


def dataset_hash(
    environments: Mapping[str, str], tasks: Mapping[str, str], packs: Mapping[str, str]
) -> str:
    """Identity of a dataset from the hashes of its parts (id -> hash)."""
    return content_hash(
        {"environments": dict(environments), "tasks": dict(tasks), "variants": dict(packs)}
    )


def walk_files(root: Path) -> Iterator[str]:
    """Relative paths of all files below ``root``.

    Raises:
        DatasetError: on a symbolic link or anything else that is neither file nor folder.
    """
    for path in sorted(root.iterdir()):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DatasetError(f"{path} is not a regular file or folder; links are refused")
        if path.is_file():
            yield path.name
        else:
            yield from (f"{path.name}/{name}" for name in walk_files(path))


def check_proof(name: str, evidence: Evidence) -> None:
    """Refuse a task without proof.

    Raises:
        DatasetError: if no gate passed, one failed, or one claims to have passed on no trials.
    """
    failed = [gate.gate for gate in evidence if gate.status == "failed"]
    empty = [gate.gate for gate in evidence if gate.status == "passed" and gate.n < 1]
    if failed or empty:
        what = f"failed {failed}" if failed else f"passed {empty} on no trials"
        raise DatasetError(f"task {name!r} is not proven: it {what}", _UNPROVEN)
    if not any(gate.status == "passed" for gate in evidence):
        raise DatasetError(f"task {name!r} has no evidence", _UNPROVEN)


_UNPROVEN = "run `envgen validate` on it, or read it as it is with unproven=True (--unproven)"

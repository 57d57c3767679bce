"""Instances in files, and the clones that hold their commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError
from envgen.pipelines.code.prove import Job
from envgen.pipelines.code.records import read_instances


def find_clone(folder: Path, repo: str) -> Path:
    """The clone of ``owner/name`` below a folder, by the names that clones usually have.

    Raises:
        ConfigError: if there is none.
    """
    owner, _, name = repo.partition("/")
    names = (
        *(f"{owner}/{name}", f"{owner}__{name}", f"{owner}+{name}", f"{owner}-{name}", name),
        f"{owner}_{name}",
    )
    for one in names:
        for place in (folder / one, folder / f"{one}.git", folder / one / "repo"):
            if (place / ".git").exists() or (place / "objects").is_dir():
                return place
    raise ConfigError(
        f"no clone of {repo!r} in {str(folder)!r}", f"clone it to {folder / owner / name}"
    )


def jobs_of(files: Sequence[Path], clones: Path | None) -> tuple[Job, ...]:
    """The instances of some files with their clones; of equal ids the first counts.

    Raises:
        ConfigError: if a file holds something else, or a clone is missing.
    """
    return with_clones((one for file in files for one in read_instances(file)), clones)


def with_clones(instances: Iterable[Instance], clones: Path | None) -> tuple[Job, ...]:
    """Instances with their clones; of equal ids the first counts.

    Raises:
        ConfigError: if a clone is missing.
    """
    if clones is None:
        raise ConfigError("instances need their clones", "write --clones DIR")
    jobs: dict[str, Job] = {}
    for instance in instances:
        jobs.setdefault(instance.id, Job(instance, find_clone(clones, instance.repo)))
    return tuple(jobs.values())

"""``envgen import code``: published instances, rebuilt, proven again and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Label
from envgen.core.surrogates import from_json
from envgen.core.types import Record
from envgen.pipelines.code.clone import Clone
from envgen.pipelines.code.clones import find_clone
from envgen.pipelines.code.generate import CodeConfig, generate_code, outcomes_path
from envgen.pipelines.code.licences import licence_of
from envgen.pipelines.code.mine import Rejected
from envgen.pipelines.code.prove import BuildConfig, Job, Outcome
from envgen.pipelines.code.published import Agreement, agreement
from envgen.pipelines.code.records import import_file
from envgen.pipelines.code.validation import ValidateConfig


class ImportConfig(Record):
    """What to import, and how thoroughly to prove it."""

    format: Label | None = None
    """A name in ``FORMATS``; None: by each record's fields."""
    only: tuple[Label, ...] = ()
    """Repositories (``owner/name``) or instance ids; empty: all."""
    validation: ValidateConfig = ValidateConfig()


class ImportSummary(Record):
    """What an import gave."""

    path: str | None
    """The dataset; None when no instance was proven."""
    agreements: tuple[Agreement, ...]
    refused: tuple[Rejected, ...]
    """Records that can't be read, or whose clone is missing."""


def import_code(
    file: Path,
    clones: Path,
    out: Path,
    config: ImportConfig,
    *,
    workers: int = 1,
    build: BuildConfig | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> ImportSummary:
    """Prove the instances of a published file again.

    Args:
        file: records of any known format.
        clones: a folder of clones that hold their base commits.
        out: the dataset folder; it must not exist.
        config: which, and how thoroughly.
        workers: instances that are proven at the same time.
        build: where and with what workspaces are built.
        progress: called after each instance.

    Raises:
        ConfigError: if the file can't be read, or nothing in it can be tried.
    """
    jobs, refused = _jobs(file, clones, config)
    if not jobs:
        reasons = "; ".join(dict.fromkeys(reason for one in refused for reason in one.reasons))
        raise ConfigError(f"nothing in {str(file)!r} can be tried", reasons or "check --only")
    generated = CodeConfig.model_validate({"validation": config.validation, "name": "imported"})
    path: str | None = None
    try:
        path = generate_code(
            generated, out, jobs=jobs, workers=workers, build=build, progress=progress
        ).path
    except PipelineError:
        if not outcomes_path(out).exists():
            raise
    lines = outcomes_path(out).read_text(encoding="utf-8").split("\n")
    outcomes = [from_json(Outcome, line) for line in lines if line]
    instances = {job.instance.id: job.instance for job in jobs}
    found = tuple(agreement(instances[o.validation.instance_id], o) for o in outcomes)
    target = out.with_name(f"{out.name}.published.jsonl")
    target.write_text("".join(one.model_dump_json() + "\n" for one in found), encoding="utf-8")
    return ImportSummary(path=path, agreements=found, refused=refused)


def _jobs(file: Path, clones: Path, config: ImportConfig) -> tuple[list[Job], tuple[Rejected, ...]]:
    jobs: dict[str, Job] = {}
    refused: list[Rejected] = []
    for one in import_file(file, config.format):
        if config.only and not {one.repo, one.id} & set(config.only):
            continue
        if isinstance(one, Instance):
            try:
                if one.id not in jobs:
                    jobs[one.id] = _licensed(Job(one, find_clone(clones, one.repo)))
            except ConfigError as error:
                refused.append(_refused(one, str(error)))
        else:
            refused.append(one)
    return list(jobs.values()), tuple(refused)


def _licensed(job: Job) -> Job:
    """The job with its licence: published records don't tell, the repository does."""
    instance = job.instance
    if instance.licence:
        return job
    try:
        found = licence_of(Clone(job.clone), instance.base_commit)
    except PipelineError:  # a commit that the clone lacks is told of where it is built
        return job
    return job._replace(instance=instance.model_copy(update={"licence": found}))


def _refused(instance: Instance, reason: str) -> Rejected:
    return Rejected(
        id=instance.id, repo=instance.repo, head_commit="", stage="clone", reasons=(reason,)
    )

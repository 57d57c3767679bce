"""``envgen generate code``: a dataset of proven issue-PR tasks from clones or mined instances."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from pydantic import Field, JsonValue

from envgen.core.canonical import content_hash
from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Name, Whole
from envgen.core.surrogates import from_json, to_json
from envgen.core.threads import Threads
from envgen.core.types import Id, Record
from envgen.pipelines.boundary import broken
from envgen.pipelines.code.bundle import environment_bundle, environment_id, task_bundle, task_id
from envgen.pipelines.code.mine import MineConfig, Rejected, count_reasons, mine_clone
from envgen.pipelines.code.played import gold_played
from envgen.pipelines.code.prove import BuildConfig, Job, Outcome, prove
from envgen.pipelines.code.statement import Texts
from envgen.pipelines.code.validate import Log
from envgen.pipelines.code.validation import PASSING_FAULTS, Reason, ValidateConfig
from envgen.pipelines.partial import partial_folder
from envgen.policies.base import Policy
from envgen.sandboxes.workspace import Halt
from envgen.store.dataset import Dataset
from envgen.store.splits import assign_splits
from envgen.store.writer import DatasetWriter

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what was just done)."""


class CodeConfig(Record):
    """What to generate."""

    family: ClassVar[str] = "code"
    mine: MineConfig | None = None
    """What to look for in the clone; None where instances are given."""
    validation: ValidateConfig = ValidateConfig()
    most: int | None = Field(default=None, ge=1)
    """Stop after so many kept instances."""
    seed: Whole = 0
    name: Id = "code"
    """The dataset's name."""
    layer: Name = "host"
    """Where instances were built: noted in the dataset."""


class CodeSummary(Record):
    """What a generation gave."""

    path: str
    environments: int
    tasks: int
    instances: int
    """Mined or given."""
    mined: dict[str, int]
    """Changes of the clone by what became of them."""
    rejected: dict[str, int]
    """Instances by the reason for which they were not kept."""
    seconds: float
    resumed: int
    """Instances taken over from an interrupted run."""


def generate_code(
    config: CodeConfig,
    out: str | Path,
    *,
    clone: str | Path | None = None,
    texts: Sequence[Path] = (),
    jobs: Sequence[Job] = (),
    mined: Mapping[str, int] | None = None,
    workers: int = 1,
    build: BuildConfig | None = None,
    progress: Progress | None = None,
    log: Log | None = None,
    helper: Policy | None = None,
) -> CodeSummary:
    """Generate a dataset folder at ``out``.

    What becomes of each instance is kept in ``<out>.partial`` as it is known, and taken over when the
    same configuration is run again; ``outcomes.jsonl`` beside the dataset tells it in the end.

    Args:
        config: what to make.
        out: the dataset folder; it must not exist.
        clone: where to mine, with ``config.mine``.
        texts: issues and pull requests as JSON lines, for mining.
        jobs: instances with their clones, instead of mining.
        mined: what became of the changes that the jobs were mined from, for the funnel.
        workers: instances that are proven at the same time.
        build: where and with what workspaces are built.
        progress: called after each instance.
        log: is told each step of each instance.
        helper: looks for a recipe where the rules find none, or theirs can't be installed.

    Raises:
        ConfigError: if ``out`` exists, or neither a clone nor instances are given.
        ResumeError: if ``<out>.partial`` holds another configuration's work.
        PipelineError: if no instance was proven; ``<out>.partial`` then tells why.
    """
    out = Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    started = time.monotonic()
    run = _GenerateRun(config, out, build or BuildConfig(layer=config.layer), progress, log, helper)
    changes = run.take_jobs(clone, texts, jobs) or dict(mined or {})
    outcomes = run.prove_all(workers)
    run.tell(outcomes)
    dataset = run.write(outcomes, changes)
    summary = CodeSummary(
        path=str(out),
        environments=len(dataset.environments),
        tasks=len(dataset.tasks),
        instances=len(run.jobs),
        mined=changes,
        rejected=_rejected(outcomes),
        seconds=time.monotonic() - started,
        resumed=run.resumed,
    )
    shutil.rmtree(run.partial)
    return summary


def outcomes_path(out: Path) -> Path:
    """The file beside a dataset that tells what became of each instance."""
    return out.with_name(out.name + ".outcomes.jsonl")


class _GenerateRun:
    def __init__(
        self,
        config: CodeConfig,
        out: Path,
        build: BuildConfig,
        progress: Progress | None,
        log: Log | None,
        helper: Policy | None,
    ) -> None:
        self.config, self.out, self.build = config, out, build
        self.helper = helper
        self.progress, self.log = progress, log
        self.partial = out.with_name(out.name + ".partial")
        self.trees, self.results = self.partial / "trees", self.partial / "outcomes"
        self.jobs: list[Job] = []
        self.resumed = 0
        self.halt = Halt()

    def take_jobs(
        self, clone: str | Path | None, texts: Sequence[Path], jobs: Sequence[Job]
    ) -> dict[str, int]:
        """Mine the clone, or take the given instances; the funnel of mining."""
        mined: dict[str, int] = {}
        if jobs:
            self.jobs = list(jobs)
        elif clone is not None and self.config.mine is not None:
            found = list(mine_clone(Path(clone), self.config.mine, texts=Texts.load(*texts)))
            mined = count_reasons(found)
            self.jobs = [Job(one, Path(clone)) for one in found if not isinstance(one, Rejected)]
        else:
            raise ConfigError(
                "neither a clone nor instances are given",
                "write --repo owner/name, with --clone PATH for your own; --repos FILE; or --instances FILE",
            )
        if not self.jobs:
            reasons = ", ".join(f"{n} {reason}" for reason, n in mined.items())
            raise PipelineError("no change is an instance", reasons or "the clone has no changes")
        commits = Counter(_environment(one.instance) for one in self.jobs)
        self.jobs = [
            job._replace(alone=commits[_environment(job.instance)] == 1) for job in self.jobs
        ]
        self._claim()
        return mined

    def _claim(self) -> None:
        """Make the partial folder ours; refuse that of another configuration."""
        instances = content_hash([to_json(job.instance) for job in self.jobs])
        config = self.config.model_dump(mode="json")
        partial_folder(self.out, {"config": config, "instances": instances})
        for folder in (self.trees, self.results):
            folder.mkdir(parents=True, exist_ok=True)

    def prove_all(self, workers: int) -> list[Outcome]:
        """Outcomes in the order of the instances; fewer where ``most`` were kept before the end."""
        done: dict[str, Outcome] = {}
        for job in self.jobs:
            if (found := self._load(job)) is not None:
                done[job.instance.id] = found
        self.resumed = len(done)
        todo = [job for job in self.jobs if job.instance.id not in done]
        with closing(self._run_all(todo, workers, done)) as proven:
            for job, outcome in proven:
                done[job.instance.id] = outcome
                self._save(job, outcome)
                if self.progress is not None:
                    verdict = outcome.validation.reason or "kept"
                    self.progress(len(done), len(self.jobs), f"{job.instance.id}: {verdict}")
        return [done[job.instance.id] for job in self.jobs if job.instance.id in done]

    def _run_all(
        self, todo: Sequence[Job], workers: int, done: dict[str, Outcome]
    ) -> Generator[tuple[Job, Outcome], None, None]:
        """Outcomes as they come. Closed or interrupted, it ends the commands that run."""
        waiting = list(reversed(todo))
        running: dict[Future[Outcome], Job] = {}
        with Threads(max(1, workers)) as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < max(1, workers) and not self._enough(done):
                        job = waiting.pop()
                        running[pool.submit(self._prove, job)] = job
                    if not running:
                        return
                    future = next(as_completed(running))
                    yield running.pop(future), future.result()
            except BaseException:
                self.halt.set()
                raise

    def _enough(self, done: dict[str, Outcome]) -> bool:
        kept = sum(outcome.validation.kept for outcome in done.values())
        return self.config.most is not None and kept >= self.config.most

    def _prove(self, job: Job) -> Outcome:
        def log(text: str) -> None:
            if self.halt.is_set:
                raise KeyboardInterrupt  # an Exception would be the instance's fault
            if self.log is not None:
                self.log(f"{job.instance.id}: {text}")

        with self.halt.covering():
            outcome = prove(job, self.trees, self.config.validation, self.build, log, self.helper)
            return self._played(job, outcome, log) if outcome.validation.kept else outcome

    def _played(self, job: Job, outcome: Outcome, log: Log) -> Outcome:
        """A kept outcome, once its task has been played from a dataset that holds it alone."""
        log("play the gold patch from the written dataset")
        fault = ""
        with tempfile.TemporaryDirectory(prefix="played-", dir=self.partial) as folder:
            try:
                with DatasetWriter(Path(folder) / "one", name="one") as writer:
                    self._add(writer, [(job.instance, outcome)])
                    dataset = writer.finish()
                fault = gold_played(dataset, task_id(job.instance.id), self.build).reason
            except Exception as error:  # the boundary: one instance falls, the run goes on
                fault = broken("played", error).reason
        if not fault:
            return outcome
        failed = {"reason": Reason.PLAYED, "details": fault}
        return outcome.model_copy(
            update={"validation": outcome.validation.model_copy(update=failed)}
        )

    def _path(self, job: Job) -> Path:
        return self.results / f"{task_id(job.instance.id)}.json"

    def _load(self, job: Job) -> Outcome | None:
        path = self._path(job)
        if not path.exists():
            return None
        try:
            found = from_json(Outcome, path.read_text())
        except ValueError:
            logger.warning("%s was cut off; its instance is proven again", path)
            return None
        return None if found.validation.reason in PASSING_FAULTS else found

    def _save(self, job: Job, outcome: Outcome) -> None:
        path = self._path(job)
        scratch = path.with_suffix(".part")
        scratch.write_text(to_json(outcome))
        scratch.replace(path)

    def write(self, outcomes: Sequence[Outcome], mined: dict[str, int]) -> Dataset:
        """The dataset of what was kept."""
        instances = {job.instance.id: job.instance for job in self.jobs}
        kept = [
            (instances[outcome.validation.instance_id], outcome)
            for outcome in outcomes
            if outcome.validation.kept
        ]
        if not kept:
            reasons = ", ".join(f"{n} {reason}" for reason, n in _rejected(outcomes).items())
            raise PipelineError("no instance was proven", f"{reasons}; see {self.results}")
        with DatasetWriter(
            self.out,
            name=self.config.name,
            config_hash=content_hash(self.config.model_dump(mode="json")),
            seed=self.config.seed,
        ) as writer:
            self._add(writer, kept)
            return writer.finish(funnel=_funnel(outcomes, mined, len(self.jobs)))

    def _add(self, writer: DatasetWriter, kept: Sequence[tuple[Instance, Outcome]]) -> None:
        """Environments once, their tasks after them; a repository stands in one split."""
        repos = {_environment(one): one.repo for one, _ in kept}
        splits = assign_splits(repos, seed=self.config.seed)
        added: set[str] = set()
        for instance, outcome in kept:
            name = _environment(instance)
            if name not in added:
                assert outcome.recipe is not None
                tree = self.trees / f"{name}.tar"
                writer.add_environment(environment_bundle(instance, outcome.recipe, tree))
                added.add(name)
            bundle = task_bundle(instance, outcome.validation)
            spec = bundle.spec.model_copy(update={"split": splits[name]})
            writer.add_task(bundle.model_copy(update={"spec": spec}))

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Keep what was found out about each instance, proven or not."""
        lines = [to_json(outcome) + "\n" for outcome in outcomes]
        outcomes_path(self.out).write_text("".join(lines))


def _environment(instance: Instance) -> str:
    """The id of the environment that an instance belongs to."""
    return environment_id(instance.repo, instance.base_commit, instance.base_patch)


def _rejected(outcomes: Sequence[Outcome]) -> dict[str, int]:
    reasons = Counter(
        str(outcome.validation.reason)
        for outcome in outcomes
        if outcome.validation.reason is not None
    )
    return dict(sorted(reasons.items()))


def _funnel(
    outcomes: Sequence[Outcome], mined: dict[str, int], instances: int
) -> dict[str, JsonValue]:
    return {
        "mined": dict(sorted(mined.items())),
        "instances": instances,
        "tried": len(outcomes),
        "rejected": {name: n for name, n in _rejected(outcomes).items()},
        "tasks": sum(outcome.validation.kept for outcome in outcomes),
    }

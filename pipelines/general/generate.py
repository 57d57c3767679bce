"""``envgen generate general``: datasets of proven general-agent tasks."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import gcd, lcm
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from envgen.core.canonical import content_hash, sha256
from envgen.core.errors import (
    ConfigError,
    EnvgenError,
    PipelineError,
    TargetsMissedError,
)
from envgen.core.executor import ItemOutcome
from envgen.core.limits import Count, Label, Real, Seconds, Text, Whole
from envgen.core.registry import near_names
from envgen.core.seeding import derive
from envgen.core.types import Id, Record
from envgen.pipelines.boundary import broken, outcomes
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.domains import WRITTEN, page_file
from envgen.pipelines.general.gates.dataset import dataset_evidence
from envgen.pipelines.general.synthesize import (
    MAX_ATTEMPTS,
    EnvironmentJob,
    Stage,
    Yield,
    synthesize,
)
from envgen.pipelines.general.targets import Achieved, Targets
from envgen.pipelines.partial import partial_folder
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store import trust
from envgen.store.checks import read_manifest
from envgen.store.dataset import Dataset
from envgen.store.splits import assign_splits
from envgen.store.sqlite_files import inspect
from envgen.store.writer import DatasetWriter

logger = logging.getLogger(__name__)

CATEGORIES = {
    "trip_planning": "trip",
    "order_management": "orders",
    "meeting_scheduling": "meetings",
    "course_timetable": "timetable",
    "menu_planning": "menu",
    "it_operations": "itops",
    "bank_reconciliation": "reconciliation",
    "inventory_management": "inventory",
}
"""Category, as users call it -> the domain that makes it."""
DEMO_CATEGORIES = {"room_lookup": "rooms"}
"""The same for those that are made only when they are named."""
WRITTEN_CATEGORIES = {name.replace("-", "_"): name for name in WRITTEN}
"""The same for those that language models wrote, of levels 1 to 5."""
KNOWN = CATEGORIES | DEMO_CATEGORIES | WRITTEN_CATEGORIES
"""All of them."""

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what was just done)."""


def _read(page: object) -> object:
    """A page by the name of its file, as command lines and configs write it."""
    return page_file(page) if isinstance(page, str | Path) else page


Page = Annotated[Domain, BeforeValidator(_read)]


class GenerateConfig(Targets):
    """A request to generate. The dataset's bytes follow from this and nothing else."""

    family: ClassVar[str] = "general"
    categories: tuple[Label, ...] = ()
    """trip_planning, order_management, meeting_scheduling, course_timetable, menu_planning,
    it_operations, bank_reconciliation, inventory_management: in turn; empty: all of these.
    room_lookup has one kind of question, of level 1, that a small model learns in minutes.
    Written by language models, of levels 1 to 5, and made when they are named: climbing_gym_routes,
    coin_collection_identification, food_bank_distribution, gas_meter_exchanges, mediation_panels,
    train_platforming, youth_camp_groups."""
    pages: tuple[Page, ...] = ()
    """A domain's page in TOML. Pages come after the categories, or alone where there are none.
    Code that comes of a page needs an isolating sandbox; its dataset is not trusted, here or elsewhere,
    unless a command is told --trust."""
    environments: int = Field(default=6, ge=1)
    """Databases to make."""
    tasks_per_environment: int = Field(default=2, ge=1)
    """Most tasks over one database."""
    min_level: int = Field(default=1, ge=1, le=10)
    """1 is easy."""
    max_level: int = Field(default=5, ge=1, le=10)
    """10 is the hardest."""
    seed: Whole = 0
    name: Id = "general"
    """The dataset's name."""
    agreement_episodes: Count = 128
    """Most random-valid episodes a task may cost in its agreement gate."""

    @model_validator(mode="after")
    def _check(self) -> GenerateConfig:
        if self.min_level > self.max_level:
            raise ConfigError(
                f"levels {self.min_level}..{self.max_level} are the wrong way round",
                "write --level LOW..HIGH",
            )
        unknown = sorted(set(self.categories) - set(KNOWN))
        if unknown:
            raise ConfigError(
                f"unknown category {unknown[0]!r}{near_names(unknown[0], KNOWN)}",
                f"choose from: {', '.join(KNOWN)}",
            )
        return self

    @property
    def targets(self) -> Targets:
        """How hard tasks must be."""
        return Targets(**{name: getattr(self, name) for name in Targets.model_fields})

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Domains in turn, each with its page, if it is none of the package's."""
        named = self.categories or (() if self.pages else tuple(CATEGORIES))
        return [(KNOWN[name], "") for name in named] + [(page.id, page.text) for page in self.pages]

    @property
    def levels(self) -> range:
        """The levels asked for."""
        return range(self.min_level, self.max_level + 1)

    @property
    def left_out(self) -> tuple[int, ...]:
        """Levels that no environment has, because there are fewer environments than levels."""
        return tuple(self.levels[self.environments :])

    def jobs(self, backend: WorkerBackend) -> list[EnvironmentJob]:
        """One job per environment: levels and categories both go round, and all pairs come up."""
        sources, levels = self.sources, self.levels
        shared, round_ = gcd(len(sources), len(levels)), lcm(len(sources), len(levels))
        return [
            EnvironmentJob(
                index=i,
                domain=sources[i % len(sources)][0],
                page=sources[i % len(sources)][1],
                level=levels[(i + i // round_ % shared) % len(levels)],
                tasks=self.tasks_per_environment,
                seed=derive(self.seed, "environment", i),
                backend=backend,
                agreement_episodes=self.agreement_episodes,
                targets=self.targets,
            )
            for i in range(self.environments)
        ]


TRIP_PLANNING = GenerateConfig(
    categories=("trip_planning",),
    environments=1,
    tasks_per_environment=1,
    min_level=8,
    max_level=8,
    seed=20251001,
    name="trip-planning",
)
"""The dataset in the wheel: a trip of three days, as in arXiv 2512.02556, section 3.2.3.
``tests/helpers/rebuild_shipped.py`` rebuilds it after a change to what authors write."""


class GenerateSummary(Record):
    """The outcome of a generation."""

    path: Label
    environments: Count
    tasks: Count
    asked: Count
    """Tasks that the configuration asks for."""
    drafted: Count
    rejected: dict[Label, Count]
    stages: dict[Label, dict[Label, Stage]] = Field(default_factory=dict)
    """Domain -> ``drafts`` (first tasks) and ``siblings`` (further ones over the same rows)."""
    short: Text = ""
    """Why there are fewer tasks than were asked for; empty if there are not."""
    reasons: dict[Text, Count] = Field(default_factory=dict)
    """Reason for a rejection -> number of drafts, commonest first."""
    nearest: Achieved | None = None
    """Where tasks are fewer than asked and drafts missed a target: the figures of the nearest draft."""
    seconds: Seconds
    proving_seconds: Seconds
    """Seconds that gates took, summed over processes and drafts."""
    difficulty_seconds: Seconds
    """Seconds that measuring how hard tasks are took, summed likewise; no gate's."""
    tasks_per_second: Real
    resumed: Count
    """Environments taken over from an interrupted run."""


def generate(
    config: GenerateConfig,
    out: str | Path,
    *,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    progress: Progress | None = None,
    lineage: Mapping[str, JsonValue] | None = None,
    attempts: int = MAX_ATTEMPTS,
) -> GenerateSummary:
    """Generate a dataset folder at ``out``.

    Finished environments are kept in ``<out>.partial`` as they come, and taken over when the same
    configuration is run again after an interruption.

    Args:
        config: what to make.
        out: the dataset folder; it must not exist.
        workers: processes; default: one per core. The bytes don't depend on it.
        backend: the sandbox that gates run generated code in.
        progress: called after each environment.
        attempts: drafts of each environment before it is given up.
        lineage: what else the dataset's funnel says, such as how its pages came about.

    Raises:
        ConfigError: if ``out`` exists, or no task of some level can be made from a page.
        ResumeError: if ``<out>.partial`` holds another configuration's work.
        PipelineError: if no task was proven.
        TargetsMissedError: if tasks were proven, and none reaches the targets.
    """
    out = Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", _look(out, config))
    started = time.monotonic()
    for page in config.pages:
        for _ in tasks_from(page.text).rehearsed(config.seed):
            pass
    partial = partial_folder(out, config)
    jobs = [job.model_copy(update={"attempts": attempts}) for job in config.jobs(backend)]
    done = {job.index: found for job in jobs if (found := _load(partial, job.index)) is not None}
    compiled = not config.pages and all(_is_own(partial, index) for index in done)
    resumed = len(done)
    left = [job for job in jobs if job.index not in done]
    for job, outcome in outcomes(_WORKER, synthesize, left, workers):
        result = _yield(job, outcome)
        if outcome.error is None:  # else it is tried again by a run that goes on
            text = result.model_dump_json()
            (partial / f"{job.index:06d}.json").write_text(text)
            trust.register(sha256(text))
        done[job.index] = result
        if progress:
            progress(len(done), len(jobs), _describe(job, result))
    yields = [done[job.index] for job in jobs]
    if not any(one.tasks for one in yields) and (nearest := _nearest(config, yields)):
        shutil.rmtree(partial)  # or other targets would be refused as another configuration
        raise TargetsMissedError(f"no task reaches the targets; the nearest: {nearest}", _EASIER)
    dataset = _write(config, out, yields, compiled, lineage or {})
    shutil.rmtree(partial)
    seconds = time.monotonic() - started
    reasons = Counter(reason for one in yields for reason in one.reasons)
    asked = config.environments * config.tasks_per_environment
    return GenerateSummary(
        path=str(out),
        environments=len(dataset.environments),
        tasks=len(dataset.tasks),
        asked=asked,
        drafted=_drafted(yields),
        rejected=_rejected(yields),
        stages=_stages(yields),
        short=_short(yields, asked),
        reasons=dict(reasons.most_common()),
        nearest=_nearest(config, yields) if len(dataset.tasks) < asked else None,
        seconds=seconds,
        proving_seconds=sum(one.proving_s for one in yields),
        difficulty_seconds=sum(one.measuring_s for one in yields),
        tasks_per_second=len(dataset.tasks) / seconds if seconds else 0.0,
        resumed=resumed,
    )


def _look(out: Path, config: GenerateConfig) -> str:
    """What to do about a folder that exists: to look at it, if it is what was asked for."""
    try:
        held = read_manifest(out).config_hash
    except EnvgenError:
        held = ""
    if held == content_hash(config):
        return f"it is finished, by this very configuration: `envgen list {out}` shows its tasks"
    return "choose another --out, or remove it"


def _is_own(partial: Path, index: int) -> bool:
    """Whether this machine made an environment that is taken over, so that its code is trusted."""
    return trust.is_registered(sha256((partial / f"{index:06d}.json").read_bytes()))


def _load(partial: Path, index: int) -> Yield | None:
    path = partial / f"{index:06d}.json"
    if not path.exists():
        return None
    try:
        return Yield.model_validate_json(path.read_text())
    except ValueError:
        logger.warning("%s was cut off while being written; its environment is made again", path)
        return None


def _yield(job: EnvironmentJob, outcome: ItemOutcome) -> Yield:
    """The yield of a job; an empty one, with the reason, where it broke."""
    if outcome.error is None:
        result: Yield = outcome.value
        return result
    failure = broken("environment", outcome.error)
    reason = f"{job.domain} level {job.level}: {failure.gate}: {failure.reason}"
    drafts = Stage(tried=1, rejected={failure.gate: 1})
    return Yield(index=job.index, domain=job.domain, drafts=drafts, reasons=(reason,))


_WORKER = "envgen.pipelines.general.generate:worker"


@contextmanager
def worker() -> Iterator[Callable[[EnvironmentJob], Yield]]:
    """Give a worker process its function."""
    yield synthesize


def _describe(job: EnvironmentJob, result: Yield) -> str:
    kept = len(result.tasks)
    return f"{job.domain} level {job.level}: {kept} task{'' if kept == 1 else 's'}"


def _write(
    config: GenerateConfig,
    out: Path,
    yields: list[Yield],
    compiled: bool,
    lineage: Mapping[str, JsonValue],
) -> Dataset:
    tasks = [task for one in yields for task in one.tasks]
    if not tasks:
        reasons = Counter(reason for one in yields for reason in one.reasons)
        listed = (f"{reason} ({n} times)" for reason, n in reasons.most_common(3))
        raise PipelineError("no task was proven", "; ".join(listed))
    writer = DatasetWriter(
        out,
        name=config.name,
        config_hash=content_hash(config),
        seed=config.seed,
        compiled=compiled,
    )
    pairs = [(one.environment, one.tasks) for one in yields if one.environment is not None]
    splits = assign_splits(
        {
            environment.spec.id: inspect(environment.database or b"", environment.spec.id).schema
            for environment, _ in pairs
        },
        seed=config.seed,
    )
    for environment, group in pairs:
        writer.add_environment(environment)
        for task in group:
            spec = task.spec.model_copy(update={"split": splits[environment.spec.id]})
            writer.add_task(task.model_copy(update={"spec": spec}))
    return writer.finish(
        funnel={**funnel(yields), **lineage}, dataset_evidence=dataset_evidence(pairs)
    )


_EASIER = "lower the targets, or ask for a higher --level"


def _nearest(config: GenerateConfig, yields: list[Yield]) -> Achieved | None:
    """Of the drafts that missed a target the figures of the nearest; None if none missed one."""
    missed = [one.nearest for one in yields if one.nearest is not None]
    return min(missed, key=config.targets.distance, default=None)


def funnel(yields: list[Yield]) -> dict[str, JsonValue]:
    """Count the drafts, those that each gate rejected, and what is left; drafts and siblings apart."""
    stages: dict[str, JsonValue] = {
        domain: {name: stage.model_dump() for name, stage in of.items()}
        for domain, of in _stages(yields).items()
    }
    return {
        "environments_planned": len(yields),
        "drafted": _drafted(yields),
        "rejected": dict(_rejected(yields)),
        "domains": stages,
        "tasks": sum(len(one.tasks) for one in yields),
        "environments": sum(one.environment is not None for one in yields),
    }


def _drafted(yields: list[Yield]) -> int:
    return sum(stage.tried for one in yields for stage in one.stages.values())


def _rejected(yields: list[Yield]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for stage in (stage for one in yields for stage in one.stages.values()):
        found.update(stage.rejected)
    return dict(sorted(found.items()))


def _stages(yields: list[Yield]) -> dict[str, dict[str, Stage]]:
    """The stages of each domain, added up over its environments."""
    found: dict[str, dict[str, Stage]] = {}
    for domain in sorted({one.domain for one in yields}):
        own = [one for one in yields if one.domain == domain]
        found[domain] = {
            name: _sum([one.stages[name] for one in own]) for name in Yield(index=0).stages
        }
    return found


def _sum(stages: list[Stage]) -> Stage:
    rejected = sum((Counter(stage.rejected) for stage in stages), Counter[str]())
    return Stage(
        tried=sum(stage.tried for stage in stages),
        rejected=dict(sorted(rejected.items())),
        proven=sum(stage.proven for stage in stages),
    )


def _short(yields: list[Yield], asked: int) -> str:
    """Which domains lack tasks, with the commonest reasons."""
    if sum(len(one.tasks) for one in yields) >= asked:
        return ""
    lines = []
    for domain, stages in _stages(yields).items():
        for name, stage in stages.items():
            reasons = Counter(stage.rejected).most_common(2)
            why = ", ".join(f"{reason} {n} times" for reason, n in reasons)
            if why:
                lines.append(f"{domain}: {stage.proven} of {stage.tried} {name} proven ({why})")
    return "; ".join(lines)

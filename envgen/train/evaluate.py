"""``envgen eval``: estimate pass@k by playing a dataset with a policy, or from stored rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from envgen.core.errors import ConfigError, ResumeError
from envgen.core.limits import Count, Json, Label, Line, Real, Whole
from envgen.core.seeding import derive
from envgen.core.types import Record, Sampling, Style, Trajectory
from envgen.environments.hosts import open_dataset
from envgen.policies.registry import PolicyConfig
from envgen.rollout.bootstrap import BootstrapConfig, Estimate
from envgen.rollout.learned import missed_conditions
from envgen.rollout.run import Progress, RolloutConfig, rollout
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.runs import RunStore
from envgen.train.estimates import (
    Comparison,
    Evaluation,
    EvaluationConfig,
    TaskFacts,
    compare,
    evaluate,
    task_facts,
)
from envgen.train.tasks import of_split


class PlayedRun(Record):
    """Rollouts of one policy on one dataset."""

    run: str
    """The run folder."""
    dataset: str
    unproven: bool = False
    """Accept tasks without evidence."""
    db_url: str | None = None
    """Where the run's records are; None: in its folder."""


class EvalConfig(Record):
    """An evaluation: the tasks, the policy, and the sampling settings."""

    data: Label
    """A dataset folder, or ``package:NAME``."""
    model: Line
    """A model folder, or any policy: ``gold``, ``openai:MODEL@URL``."""
    options: dict[Label, Json] = Field(default_factory=dict)
    """Settings of the model's client, such as api_key_env=NAME, tool_mode=text."""
    preflight: bool = True
    """Send a model server one small request before anything is stored."""
    max_errors: int = Field(default=5, ge=0)
    """Stop after so many identical errors of a model in a row; 0: never."""
    out: Label
    """Folder of the rollouts, with one run for each temperature; resumed if it exists."""
    split: Literal["train", "validation", "test"] | None = "test"
    """Play tasks of this split only; None: every task."""
    variants: bool = True
    """Play the variants, too."""
    max_tasks: int | None = Field(default=None, ge=1)
    """Number of tasks to play, drawn by the seed; None: all."""
    ks: tuple[Count, ...] = Field(default=(1,), min_length=1)
    """The ks of pass@k."""
    temperatures: tuple[Real, ...] = Field(default=(0.0, 1.0), min_length=1)
    """0: greedy, one episode a task."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Most tokens of one reply."""
    max_turns: int | None = Field(default=None, ge=1)
    """Most replies of an episode; None: as many as its task allows."""
    style: Style | None = None
    """Prompting style in the system message; see ``policies.styles``."""
    concurrency: int | None = Field(default=None, ge=1)
    """Episodes at the same time."""
    backend: WorkerBackend = "auto"
    """Where the environments' code runs; ``inline`` is the fastest, for tasks generated on this machine."""
    bootstrap: BootstrapConfig = BootstrapConfig()
    unproven: bool = False
    trust: bool = False
    """The dataset's code was written or read by the user: it may run without isolation."""
    seed: Whole = 0

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if min(self.ks) < 1:
            raise ValueError(f"k is at least 1, not {min(self.ks)}")
        if min(self.temperatures) < 0:
            raise ValueError(f"a temperature is at least 0, not {min(self.temperatures)}")
        return self

    def samples(self, temperature: float) -> int:
        """Episodes a task: greedy replies are all the same."""
        return 1 if temperature == 0 else max(self.ks)

    def run(self, temperature: float) -> PlayedRun:
        """Return the run that holds the rollouts at a temperature."""
        return PlayedRun(
            run=str(Path(self.out) / f"temperature-{temperature:g}"),
            dataset=self.data,
            unproven=self.unproven,
        )


class EvalSummary(Record):
    """Figures by temperature."""

    data: str
    model: str
    temperatures: dict[float, Evaluation]
    against: dict[float, Comparison] = Field(default_factory=dict)
    """Temperature -> comparison with the other evaluation, if that has the temperature."""
    first_row: float | None = None
    """With a ceiling: pass@1 of the policy ``greedy``, which takes the first row, on the same tasks."""
    missed: tuple[str, ...] = ()
    """With a ceiling: a sentence for each condition of ``rollout.learned`` that was missed."""


def evaluate_model(
    config: EvalConfig,
    *,
    against: str | Path | None = None,
    ceiling: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> EvalSummary:
    """Play a dataset's tasks with a policy, and estimate pass@k with intervals over databases.

    Args:
        config: what is played, by whom, and how often; rollouts that are in ``config.out`` are not repeated.
        against: ``out`` of another evaluation of the same tasks, to compare with.
        ceiling: ``out`` of the evaluation of a policy that learned from right answers alone: tell whether
            this one, against where its training began, learned (``rollout.learned``), greedily.
        progress: called with (done, total, what).

    Returns:
        Figures by temperature: pass@k, valid calls, clean ends (shares, 0 to 1) and model tokens per rollout,
        each with a 95 % interval, and their differences to ``against``.

    Raises:
        ConfigError: if there is no task, or another evaluation is of other tasks, or lacks what a ceiling
            needs.
        ResumeError: if ``config.out`` holds rollouts of other settings.
    """
    task_ids = _task_ids(config)
    found: dict[float, Evaluation] = {}
    compared: dict[float, Comparison] = {}
    for temperature in config.temperatures:
        played = config.run(temperature)
        _play(config, task_ids, temperature, played.run, progress)
        ks = tuple(k for k in config.ks if k <= config.samples(temperature))
        settings = EvaluationConfig(ks=ks, bootstrap=config.bootstrap)
        found[temperature] = evaluate_runs([played], settings)
        if against is None:
            continue
        other = played.model_copy(update={"run": str(Path(against) / Path(played.run).name)})
        if Path(other.run).exists():
            compared[temperature] = compare_runs([other], [played], settings)
    if against is not None and not compared:
        raise ConfigError(
            f"{str(against)!r} holds no evaluation at any of these temperatures",
            "give the --out of another `envgen eval`",
        )
    summary = EvalSummary(
        data=config.data, model=config.model, temperatures=found, against=compared
    )
    if ceiling is None:
        return summary
    return _with_verdict(config, summary, task_ids, Path(ceiling), progress)


def _with_verdict(
    config: EvalConfig,
    summary: EvalSummary,
    task_ids: tuple[str, ...],
    ceiling: Path,
    progress: Callable[[int, int, str], None] | None,
) -> EvalSummary:
    """``summary`` with what the first row gets, and which conditions of a training demo were missed."""
    best = config.run(0.0)
    best = best.model_copy(update={"run": str(ceiling / Path(best.run).name)})
    if 0.0 not in summary.against or 1 not in config.ks or not Path(best.run).exists():
        raise ConfigError(
            "whether a policy learned is told by its greedy pass@1 against two other evaluations",
            "give --against and --ceiling the --out of `envgen eval`s of the same tasks, all with "
            "temperature 0 and k 1",
        )
    first = config.model_copy(
        update={"model": "greedy", "options": {}, "out": str(Path(config.out) / "first-row")}
    )
    _play(first, task_ids, 0.0, first.run(0.0).run, progress)
    first_row = _pass_at_1("the first row", evaluate_runs([first.run(0.0)]).pass_at)
    missed = missed_conditions(
        first_row=first_row.value,
        ceiling=_pass_at_1("the ceiling", compare_runs([best], [config.run(0.0)]).before.pass_at),
        after=_pass_at_1("this evaluation", summary.temperatures[0.0].pass_at),
        lift=_pass_at_1("the comparison", summary.against[0.0].pass_at),
    )
    return summary.model_copy(update={"first_row": first_row.value, "missed": missed})


def _pass_at_1(what: str, pass_at: Mapping[int, Estimate | None]) -> Estimate:
    found = pass_at[1]
    if found is None:
        raise ConfigError(f"{what}: no task was played without an error", "look at its run folder")
    return found


def _task_ids(config: EvalConfig) -> tuple[str, ...]:
    dataset = open_dataset(config.data, unproven=config.unproven)
    names = list(dataset.tasks) if config.variants else list(dataset.own_task_ids)
    chosen = of_split(dataset, names, config.split)
    if config.max_tasks is not None:
        chosen.sort(key=lambda name: derive(config.seed, "chosen", name))
        chosen = chosen[: config.max_tasks]
    return tuple(sorted(chosen))


def _play(
    config: EvalConfig,
    task_ids: tuple[str, ...],
    temperature: float,
    out: str,
    progress: Callable[[int, int, str], None] | None,
) -> None:
    is_folder = (Path(config.model) / "config.json").is_file()
    spec = f"dsa:{config.model}" if is_folder else config.model
    options = {"record": False, **config.options} if is_folder else config.options

    def report(now: Progress) -> None:
        if progress:
            progress(now.done, now.total, f"temperature {temperature:g}: {now.passed} passed")

    rollout(
        RolloutConfig(
            dataset=config.data,
            policy=PolicyConfig(spec=spec, options=options),
            out=out,
            preflight=config.preflight,
            max_errors=config.max_errors,
            n=config.samples(temperature),
            seed=derive(config.seed, "evaluation"),
            task_ids=task_ids,
            sampling=Sampling(
                temperature=temperature, top_p=config.top_p, max_tokens=config.max_new_tokens
            ),
            style=config.style,
            max_turns=config.max_turns,
            concurrency=config.concurrency,
            backend=config.backend,
            unproven=config.unproven,
            trust=config.trust,
        ),
        progress=report,
    )


class _Read(NamedTuple):
    trajectories: list[Trajectory]
    facts: dict[str, TaskFacts]


def evaluate_runs(runs: Sequence[PlayedRun], config: EvaluationConfig | None = None) -> Evaluation:
    """One policy's figures over all its runs, such as one on held-out tasks and one on canaries.

    Raises:
        ConfigError: as ``evaluate``; also if two datasets have different tasks of one name.
        ResumeError: if a run was made on another dataset than the one named.
        StoreError: if there is no run.
    """
    read = _read(runs)
    return evaluate(read.trajectories, read.facts, config)


def compare_runs(
    before: Sequence[PlayedRun],
    after: Sequence[PlayedRun],
    config: EvaluationConfig | None = None,
) -> Comparison:
    """Two policies on the same tasks.

    Raises:
        ConfigError: as ``compare``; also if two datasets have different tasks of one name.
        ResumeError: if a run was made on another dataset than the one named.
        StoreError: if there is no run.
    """
    old, new = _read(before), _read(after)
    return compare(old.trajectories, new.trajectories, _merged(old.facts, new.facts), config)


def _read(runs: Sequence[PlayedRun]) -> _Read:
    trajectories: list[Trajectory] = []
    facts: dict[str, TaskFacts] = {}
    for played in runs:
        dataset = open_dataset(played.dataset, unproven=played.unproven)
        with RunStore.read(played.run, db_url=played.db_url) as store:
            if store.dataset_hash != dataset.manifest.content_hash:
                raise ResumeError(
                    f"the rollouts in {played.run!r} were made on another dataset than "
                    f"{played.dataset!r}",
                    "name the dataset that was rolled out",
                )
            found = list(store.trajectories())
        own = task_facts(dataset, sorted({one.task_id for one in found}))
        facts = _merged(facts, own)
        trajectories += found
    return _Read(trajectories, facts)


def _merged(first: dict[str, TaskFacts], second: dict[str, TaskFacts]) -> dict[str, TaskFacts]:
    for task_id in first.keys() & second.keys():
        if first[task_id] != second[task_id]:
            raise ConfigError(
                f"two datasets have different tasks named {task_id!r}", "evaluate them apart"
            )
    return {**first, **second}

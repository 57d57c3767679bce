"""The whole way on a small scale: synthesize, prove, step, filter by pass@100, train a policy, report."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

import envgen
from envgen.core.canonical import pretty
from envgen.core.errors import ConfigError
from envgen.core.seeding import derive
from envgen.core.types import Record, StopReason, Trajectory
from envgen.pipelines.demo_records import TrainingDemoConfig, TrainingDemoSummary
from envgen.pipelines.general.generate import GenerateConfig, GenerateSummary, generate
from envgen.policies.registry import PolicyConfig
from envgen.report.data import (
    FilterRow,
    FunnelStage,
    LiftRow,
    PassRow,
    ReportData,
    StageTime,
    TrainingPart,
    gate_rows,
    task_points,
)
from envgen.report.html import write_report
from envgen.rollout.filter import FilterConfig, FilterReport, reestimate
from envgen.rollout.filter import filter as filter_dataset
from envgen.rollout.pass_at_k import PassReport, run_report
from envgen.rollout.run import RolloutConfig, rollout
from envgen.sandboxes.zygote import WorkerBackend, choose
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.train.bootstrap import Estimate

Progress = Callable[[int, int, str], None]
STAGES = ("generate", "rollouts", "filter", "re-estimate", "baselines", "training", "report")


class QuickstartConfig(Record):
    """How much of everything."""

    environments: int = Field(default=15, ge=1)
    tasks_per_environment: int = Field(default=2, ge=1)
    max_level: int = Field(default=5, ge=1, le=10)
    samples: int = Field(default=100, ge=1)
    """Episodes a task for pass@100."""
    max_pass_at_1: float = 0.95
    train: bool = True
    """Also train a small policy from nothing; needs ``pip install 'envgen[train]'``."""
    training: TrainingDemoConfig = TrainingDemoConfig()
    """Its seed is ``seed``; two processes learn where there are two cores."""
    seed: int = 0


class QuickstartSummary(Record):
    """What ``summary.json`` holds."""

    seed: int
    versions: dict[str, str]
    environments: int
    tasks: int
    drafted: int
    rejected: dict[str, int]
    episodes: int
    kept: tuple[str, ...]
    filtered: tuple[FilterRow, ...]
    pass_at: tuple[PassRow, ...]
    seconds: float
    stages: dict[str, float]
    isolated: bool
    training: TrainingDemoSummary | None = None
    """pass@1 before and after GRPO on held-out tasks, with intervals, steps, speeds and seconds."""
    notes: tuple[str, ...] = ()


class _Clock:
    """Seconds per stage, and the progress bar's place."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a stage; the callback says what it is doing."""

        def say(text: str) -> None:
            if self._progress:
                self._progress(len(self.seconds), len(STAGES), text)

        started = time.monotonic()
        say(name)
        yield say
        self.seconds[name] = time.monotonic() - started


def quickstart(
    config: QuickstartConfig,
    out: str | Path,
    *,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    progress: Progress | None = None,
) -> QuickstartSummary:
    """Fill ``out`` with dataset, rollouts, kept dataset, ``report.html`` and ``summary.json``.

    With training also ``sft/last`` and ``grpo/last``, model folders that ``envgen eval --model`` loads.
    A finished quickstart is replaced; an interrupted one of the same configuration is continued.
    """
    out = Path(out)
    _prepare(out, config)
    clock = _Clock(progress)
    with clock.stage("generate") as say:
        made = _generate(config, out, workers, backend, say)
    dataset = Dataset.open(out / "dataset")
    with clock.stage("rollouts") as say:
        selection = _rollout_config(config, out, "random-valid", config.samples, backend)
        rollout(selection, progress=lambda p: say(f"random-valid: {p.done}/{p.total} episodes"))
    with clock.stage("filter"):
        filtered = _filter(config, out)
    with clock.stage("re-estimate") as say:
        fresh = reestimate(
            str(out / "kept"),
            selection,
            str(out / "rollouts" / "fresh"),
            progress=lambda p: say(f"fresh seeds: {p.done}/{p.total} episodes"),
        )
    with clock.stage("baselines") as say:
        reports = {"random-valid": fresh, **_baselines(config, out, backend, say)}
    trained = None
    if config.train:
        with clock.stage("training") as say:
            trained = _train(config, out, say)
    with clock.stage("report"):
        notes = _notes(dataset, backend)
        summary = _summary(config, dataset, made, filtered, reports, clock, notes)
        summary = summary.model_copy(update={"training": trained})
        write_report(out / "report.html", _report(dataset, made, summary, out))
    summary = summary.model_copy(
        update={"stages": clock.seconds, "seconds": sum(clock.seconds.values())}
    )
    (out / "summary.json").write_text(pretty(summary), encoding="utf-8")
    return summary


def _prepare(out: Path, config: QuickstartConfig) -> None:
    stamp = out / "config.json"
    if out.exists() and not stamp.exists() and any(out.iterdir()):
        raise ConfigError(f"{str(out)!r} is no quickstart folder", "choose another --out")
    same = stamp.exists() and stamp.read_text() == pretty(config)
    if out.exists() and (not same or (out / "summary.json").exists()):
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    stamp.write_text(pretty(config))


def _generate(
    config: QuickstartConfig,
    out: Path,
    workers: int | None,
    backend: WorkerBackend,
    say: Callable[[str], None],
) -> GenerateSummary:
    record = out / "generate.json"
    if (out / "dataset").exists() and record.exists():
        return GenerateSummary.model_validate_json(record.read_text())
    made = generate(
        GenerateConfig(
            environments=config.environments,
            tasks_per_environment=config.tasks_per_environment,
            max_level=config.max_level,
            seed=config.seed,
            name="quickstart",
        ),
        out / "dataset",
        workers=workers,
        backend=backend,
        progress=lambda done, total, what: say(f"environment {done}/{total}: {what}"),
    )
    record.write_text(pretty(made))
    return made


def _rollout_config(
    config: QuickstartConfig, out: Path, policy: str, n: int, backend: WorkerBackend
) -> RolloutConfig:
    return RolloutConfig(
        dataset=str(out / "dataset"),
        policy=PolicyConfig(spec=policy),
        out=str(out / "rollouts" / policy.partition(":")[0]),
        n=n,
        seed=derive(config.seed, "rollouts", policy),
        backend=backend,
    )


def _filter(config: QuickstartConfig, out: Path) -> FilterReport:
    if (out / "kept").exists():
        shutil.rmtree(out / "kept")
    return filter_dataset(
        FilterConfig(
            dataset=str(out / "dataset"),
            rollouts=str(out / "rollouts" / "random-valid"),
            out=str(out / "kept"),
            pass_at=min(100, config.samples),
            max_pass_at_1=config.max_pass_at_1,
            name="quickstart-kept",
        )
    )


def _baselines(
    config: QuickstartConfig, out: Path, backend: WorkerBackend, say: Callable[[str], None]
) -> dict[str, PassReport]:
    """Who else plays the kept tasks: gold must pass always, noise and greed sometimes."""
    reports = {}
    for policy, n in (("gold", 2), ("noisy-gold:0.1", 10), ("greedy", 2), ("random", 10)):
        run = _rollout_config(config, out, policy, n, backend)
        run = run.model_copy(update={"dataset": str(out / "kept")})
        rollout(run, progress=lambda p, policy=policy: say(f"{policy}: {p.done}/{p.total}"))  # type: ignore[misc]  # the default binds the loop variable
        reports[policy] = run_report(run.out, (1,))
    return reports


def _train(config: QuickstartConfig, out: Path, say: Callable[[str], None]) -> TrainingDemoSummary:
    """Cold start, pass@100, GRPO and held-out evaluation of a policy, in the same folder."""
    from envgen.pipelines.training_demo import training_demo

    processes = min(2, os.cpu_count() or 1)
    settings = config.training.model_copy(update={"seed": config.seed, "processes": processes})
    return training_demo(settings, out, progress=lambda done, total, what: say(what))


def _notes(dataset: Dataset, backend: WorkerBackend) -> tuple[str, ...]:
    if choose(backend, trusted=True) in ("process", "inline"):
        return (
            "bubblewrap is missing, so generated code ran unisolated, in plain processes; only code "
            "that is trusted by hash may do that. For isolation: apt install bubblewrap",
        )
    return ()


def _pass_rows(reports: dict[str, PassReport]) -> tuple[PassRow, ...]:
    """Mean pass@k by policy and level, with the means of the tasks' interval ends (so it is wide)."""
    rows = []
    for policy, report in reports.items():
        levels: list[int | None] = [None, *sorted({t.level for t in report.tasks if t.level})]
        for level in levels:
            tasks = [t for t in report.tasks if level is None or t.level == level]
            n = sum(t.n for t in tasks)
            for k in report.ks:
                values = [v for t in tasks if (v := t.values[k]) is not None]
                if values:
                    ends = [t.intervals[k] for t in tasks if t.values[k] is not None]
                    low, high = (sum(end) / len(ends) for end in zip(*ends, strict=True))
                    rows.append(
                        PassRow(
                            policy=policy, level=level, k=k, estimate=sum(values) / len(values),
                            low=low, high=high, n=n, num_tasks=len(values),
                        )
                    )  # fmt: skip
    return tuple(rows)


def _summary(
    config: QuickstartConfig,
    dataset: Dataset,
    made: GenerateSummary,
    filtered: FilterReport,
    reports: dict[str, PassReport],
    clock: _Clock,
    notes: tuple[str, ...],
) -> QuickstartSummary:
    rows = tuple(
        FilterRow(
            level=row.level or 0,
            kept=row.kept,
            dropped=row.too_hard + row.too_easy,
            undecided=row.undecided,
            reasons={
                name: n for name, n in (("too hard", row.too_hard), ("too easy", row.too_easy)) if n
            },
        )
        for row in filtered.levels
    )
    versions = {
        "envgen": envgen.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    return QuickstartSummary(
        seed=config.seed,
        versions=versions,
        environments=made.environments,
        tasks=made.tasks,
        drafted=made.drafted,
        rejected=made.rejected,
        episodes=config.samples * len(dataset.own_task_ids)
        + sum(t.n + t.errors for report in reports.values() for t in report.tasks),
        kept=filtered.kept,
        filtered=rows,
        pass_at=_pass_rows(reports),
        seconds=sum(clock.seconds.values()),
        stages=dict(clock.seconds),
        isolated=not notes,
        notes=notes,
    )


def _report(
    dataset: Dataset, made: GenerateSummary, summary: QuickstartSummary, out: Path
) -> ReportData:
    tasks = [dataset.tasks[task_id] for task_id in dataset.own_task_ids]
    rejected = sum(made.rejected.values())
    dropped = {
        reason: sum(row.reasons.get(reason, 0) for row in summary.filtered)
        for reason in ("too hard", "too easy")
    }
    episode = _episode(out / "rollouts" / "noisy-gold")
    task = None
    if episode is not None:
        spec = dataset.tasks[episode.task_id]
        task = spec.public(dataset.environments[spec.environment_id])
    facts: dict[str, Any] = {**summary.versions, "seed": summary.seed}
    facts["dataset"] = dataset.manifest.content_hash[:16]
    return ReportData(
        title="envgen quickstart",
        summary="Environments synthesized without a model, proven by gates, stepped through Gymnasium, "
        "filtered by pass@100, and measured again on fresh seeds.",
        facts={name: str(value) for name, value in facts.items()},
        commands=(f"envgen quickstart --seed {summary.seed}", "envgen validate dataset/"),
        counts={
            "environments": summary.environments,
            "proven tasks": summary.tasks,
            "kept tasks": len(summary.kept),
            "episodes": summary.episodes,
        },
        funnel=(
            FunnelStage(
                name="drafts proven by all gates",
                num_in=summary.tasks + rejected,
                num_out=summary.tasks,
                reasons=made.rejected,
            ),
            FunnelStage(
                name="kept by pass@100",
                num_in=summary.tasks,
                num_out=len(summary.kept),
                reasons={name: n for name, n in dropped.items() if n},
            ),
        ),
        tasks=task_points(tasks),
        pass_at=summary.pass_at,
        filtered=summary.filtered,
        filter_rule="kept: pass@100 > 0 and pass@1 <= 0.95 of random-valid",
        timings=tuple(
            StageTime(name=name, seconds=seconds) for name, seconds in summary.stages.items()
        ),
        gates=gate_rows(tasks),
        training=None if summary.training is None else _training_part(summary.training, out),
        episode=episode,
        episode_task=task,
        notes=summary.notes,
    )


def _training_part(found: TrainingDemoSummary, out: Path) -> TrainingPart:
    def ends(estimate: Estimate) -> tuple[float, float, float]:
        low = estimate.value if estimate.low is None else estimate.low
        high = estimate.value if estimate.high is None else estimate.high
        return estimate.value, low, high

    rows = (
        ("greedy", found.before.greedy, found.after.greedy, found.greedy_lift),
        ("temperature 1", found.before.sampled, found.after.sampled, found.sampled_lift),
    )
    curve = []
    for line in (out / "grpo" / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        figures = json.loads(line)
        if "reward/pass_rate" in figures:
            curve.append((int(figures["step"]), float(figures["reward/pass_rate"])))
    return TrainingPart(
        text=f"{found.held_out_tasks} held-out tasks on {found.held_out_databases} databases that no stage "
        "of the training saw. The cold start learnt from an expert that prefers the first row.",
        lifts=tuple(
            LiftRow(decoding=name, before=ends(before), after=ends(after), lift=ends(lift))
            for name, before, after, lift in rows
        ),
        curve=tuple(curve),
        facts={
            "GRPO steps": str(found.grpo_steps),
            "SFT tokens per second": f"{found.sft_tokens_per_second:,.0f}",
            "GRPO model tokens per second": f"{found.grpo_tokens_per_second:,.0f}",
            **{name: f"{seconds:.0f} s" for name, seconds in found.stages.items()},
        },
    )


def _episode(folder: Path) -> Trajectory | None:
    """A telling episode: submitted, with several calls, passed if possible."""
    with RunStore.read(folder) as store:
        found = [t for t in store.trajectories() if t.stop is StopReason.SUBMITTED]
    found.sort(key=lambda t: (not (t.score and t.score.passed), abs(t.num_calls - 6), t.task_id))
    return found[0] if found else None

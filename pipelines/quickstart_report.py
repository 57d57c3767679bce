"""The page that the quickstart ends with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envgen.core.types import StopReason, Trajectory
from envgen.pipelines.demo_records import TrainingDemoSummary
from envgen.pipelines.quickstart_records import QuickstartSummary
from envgen.report.data import (
    CurveGroup,
    FunnelStage,
    LiftRow,
    ReportData,
    StageTime,
    TrainingPart,
    gate_rows,
    task_points,
)
from envgen.report.training import alarms, panels, read_run
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.train.bootstrap import Estimate

COLD_START = (
    ("dense", "Loss", "dense attention", "a rise in between: from there on form counts, too"),
    ("indexer", "Indexer", "warm-up", "KL from attention to index scores"),
    ("sft", "Loss", "sparse attention", "on what is learnt, and on rows set aside"),
    ("sft", "Indexer", "sparse attention", "KL from attention to index scores"),
)
"""Run folder, the panel that is shown of it, which stage it was, and the panel's hint."""


def quickstart_report(dataset: Dataset, summary: QuickstartSummary, out: Path) -> ReportData:
    """What ``out/report.html`` shows.

    Args:
        dataset: all proven tasks.
        summary: what came out, and the seconds of the stages before this one.
        out: the quickstart's folder; its episodes and metrics are read.

    Raises:
        StoreError: if a policy was trained and its metrics can't be read.
    """
    tasks = [dataset.tasks[task_id] for task_id in dataset.own_task_ids]
    episode = _episode(out / "rollouts" / "noisy-gold")
    task = None
    if episode is not None:
        spec = dataset.tasks[episode.task_id]
        task = spec.public(dataset.environments[spec.environment_id])
    facts: dict[str, Any] = {**summary.versions, "seed": summary.seed}
    facts["dataset"] = dataset.manifest.content_hash[:16]
    trained = summary.training is not None
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
        funnel=_funnel(summary),
        tasks=task_points(tasks),
        pass_at=summary.pass_at,
        filtered=summary.filtered,
        filter_rule="kept: pass@100 > 0 and pass@1 <= 0.95 of random-valid",
        timings=_timings(summary),
        gates=gate_rows(tasks),
        training=None if summary.training is None else _training_part(summary.training),
        curves=training_curves(out) if trained else (),
        episode=episode,
        episode_task=task,
        notes=(*summary.notes, *(alarms(read_run(out / "grpo")) if trained else ())),
    )


def training_curves(out: Path) -> tuple[CurveGroup, ...]:
    """All panels of GRPO, and what each stage of the cold start brought down.

    Args:
        out: the training demo's folder.

    Raises:
        StoreError: if a run's metrics can't be read.
    """
    lines = {name: read_run(out / name) for name in ("grpo", *(row[0] for row in COLD_START))}
    cold = tuple(
        panel.model_copy(update={"title": f"{title}, {stage}", "hint": hint})
        for name, title, stage, hint in COLD_START
        for panel in panels(lines[name])
        if panel.title == title
    )
    return (
        CurveGroup(title="GRPO", panels=panels(lines["grpo"])),
        CurveGroup(title="Cold start", panels=cold),
    )


def _funnel(summary: QuickstartSummary) -> tuple[FunnelStage, ...]:
    dropped = {
        reason: sum(row.reasons.get(reason, 0) for row in summary.filtered)
        for reason in ("too hard", "too easy")
    }
    return (
        FunnelStage(
            name="drafts proven by all gates",
            num_in=summary.tasks + sum(summary.rejected.values()),
            num_out=summary.tasks,
            reasons=summary.rejected,
        ),
        FunnelStage(
            name="kept by pass@100",
            num_in=summary.tasks,
            num_out=len(summary.kept),
            reasons={name: n for name, n in dropped.items() if n},
        ),
    )


def _timings(summary: QuickstartSummary) -> tuple[StageTime, ...]:
    """Seconds per stage, those of the training in place of their sum."""
    seconds: Mapping[str, float] = summary.stages
    if summary.training is not None:
        own = {f"training: {name}": s for name, s in summary.training.stages.items()}
        seconds = {**{name: s for name, s in seconds.items() if name != "training"}, **own}
    return tuple(StageTime(name=name, seconds=s) for name, s in seconds.items())


def _training_part(found: TrainingDemoSummary) -> TrainingPart:
    rows = (
        ("greedy", found.before.greedy, found.after.greedy, found.greedy_lift),
        ("temperature 1", found.before.sampled, found.after.sampled, found.sampled_lift),
    )
    return TrainingPart(
        text=f"{found.held_out_tasks} held-out tasks on {found.held_out_databases} databases that no stage "
        "of the training saw. The cold start learnt from an expert that prefers the first row.",
        lifts=tuple(
            LiftRow(decoding=name, before=_ends(before), after=_ends(after), lift=_ends(lift))
            for name, before, after, lift in rows
        ),
        facts={
            "GRPO steps": str(found.grpo_steps),
            "SFT tokens per second": f"{found.sft_tokens_per_second:,.0f}",
            "GRPO model tokens per second": f"{found.grpo_tokens_per_second:,.0f}",
        },
    )


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    """Value, low, high; without an interval all the same."""
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return estimate.value, low, high


def _episode(folder: Path) -> Trajectory | None:
    """A telling episode: submitted, with several calls, passed if possible."""
    with RunStore.read(folder) as store:
        found = [t for t in store.trajectories() if t.stop is StopReason.SUBMITTED]
    found.sort(key=lambda t: (not (t.score and t.score.passed), abs(t.num_calls - 6), t.task_id))
    return found[0] if found else None

"""The page that the quickstart ends with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envgen.core.types import PublicTask, StopReason, Trajectory
from envgen.pipelines.demo_records import TrainingDemoSummary
from envgen.pipelines.family_samples import family_samples
from envgen.pipelines.general.gates.dataset import AGREEMENT
from envgen.pipelines.general.gates.prove import GATES
from envgen.pipelines.quickstart_records import QuickstartSummary
from envgen.report.data import (
    CurveGroup,
    FunnelStage,
    LiftRow,
    Played,
    ReportData,
    StageTime,
    TaskPath,
    TrainingPart,
    gate_rows,
    task_points,
)
from envgen.report.training import alarms, panels, read_run
from envgen.rollout.bootstrap import Estimate
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore

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
    facts: dict[str, Any] = {**summary.versions, "seed": summary.seed}
    facts["dataset"] = dataset.manifest.content_hash[:16]
    trained = summary.training
    played, task = _gold_episode(dataset, out) if trained is None else _before_and_after(out)
    return ReportData(
        title="envgen quickstart",
        summary="Tasks made without a model and proven by gates"
        + ("." if trained is None else "; a policy of 0.8 million parameters trained on variants."),
        facts={name: str(value) for name, value in facts.items()},
        commands=(f"envgen quickstart --seed {summary.seed}", "envgen validate dataset/"),
        counts={
            "environments": summary.environments,
            "proven tasks": summary.tasks,
            "kept tasks": len(summary.kept),
            "episodes": summary.episodes,
        },
        paths=_paths(summary),
        funnel=_funnel(summary),
        funnel_hint="draft: no task could be drawn that says what it should. sibling: no second task "
        "over the same rows. The others are gates, which are explained below.",
        tasks=task_points(tasks),
        pass_at=summary.pass_at,
        filtered=summary.filtered,
        filter_rule="kept: pass@100 > 0 and pass@1 <= 0.95 of random-valid",
        timings=_timings(summary),
        gates=gate_rows(tasks, _gate_meanings()),
        training=None if trained is None else training_part(trained),
        curves=training_curves(out) if trained else (),
        played=played,
        played_task=task,
        samples=tuple(family_samples()),
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


UNBIASED = (0.46, 0.53, 0.55)
"""Greedy pass@1 where no bias was planted: before, after GRPO, after as many seconds more of supervised
training: ``docs/figures/unbiased_study.json``, which a test compares."""


def training_part(found: TrainingDemoSummary) -> TrainingPart:
    """What the report says of a training; nothing that its intervals don't show."""
    rows = (
        ("greedy", "greedy", found.greedy_lift),
        ("temperature 1", "sampled", found.sampled_lift),
    )
    shows = (
        "What this shows is that the loop of rollouts, verdicts and updates works, not that it takes GRPO: "
        f"measured once without a planted bias, from {UNBIASED[0]}, GRPO reached {UNBIASED[1]} where as many "
        f"seconds more of the same supervised training reached {UNBIASED[2]}."
        if not found.missed
        else f"The training did not do what it should: {'; '.join(found.missed)}."
    )
    return TrainingPart(
        headline=_headline(found),
        text=f"{found.held_out_tasks} held-out tasks: variants of the questions that were trained on, over "
        f"{found.held_out_databases} databases that no stage saw. Intervals: 95 %, over databases. A policy "
        f"that takes the first row passes {found.first_row:.2f}. "
        "The bias is planted: where the right row is not the first, the expert teaches it "
        f"with weight {found.gold_weight:g}, and the first row with {1 - found.gold_weight:g}. The ceiling "
        f"is the same cold start from right answers alone. {shows}",
        lifts=tuple(
            LiftRow(
                decoding=name,
                ceiling=_ends(getattr(found.ceiling, field)),
                before=_ends(getattr(found.before, field)),
                after=_ends(getattr(found.after, field)),
                lift=_ends(lift),
            )
            for name, field, lift in rows
        ),
        facts={
            "GRPO steps": str(found.grpo_steps),
            "SFT tokens per second": f"{found.sft_tokens_per_second:,.0f}",
            "GRPO model tokens per second": f"{found.grpo_tokens_per_second:,.0f}",
        },
    )


def _headline(found: TrainingDemoSummary) -> str:
    """What the interval of the greedy lift allows to say."""
    ceiling, before, after = (
        f"{one.greedy.value:.2f}" for one in (found.ceiling, found.before, found.after)
    )
    lift = found.greedy_lift
    change = f"from {before} to {after} of held-out tasks"
    if lift.low is None or lift.high is None or lift.low <= 0 <= lift.high:
        effect = f"No effect of GRPO was measured: {change}."
    elif lift.high < 0:
        effect = f"GRPO took a policy that was taught a bias down {change}."
    else:
        effect = f"GRPO takes a policy that was taught a bias {change}."
    return f"{effect} Without the bias, the cold start alone reaches {ceiling}."


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    """Value, low, high; without an interval all the same."""
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return estimate.value, low, high


def _paths(summary: QuickstartSummary) -> tuple[TaskPath, ...]:
    """What is filtered, and what is trained on: not the same tasks."""
    drafted = summary.tasks + sum(summary.rejected.values())
    paths = [
        TaskPath(
            title="Tasks of levels 1 to 5",
            steps=(
                f"{drafted} drafts",
                f"gates: {summary.tasks} proven tasks",
                f"pass@100 of random-valid: {len(summary.kept)} kept",
                "played again on fresh seeds by five scripted policies",
            ),
            end="measured, and not trained on",
        )
    ]
    if found := summary.training:
        paths.append(
            TaskPath(
                title="Tasks that the policy is trained on",
                steps=(
                    f"{found.parents} other tasks, of level 1, through the same gates",
                    f"{found.variants:,} variants of them: the same questions over new rows",
                    f"a split by database: {found.held_out_tasks} held-out variants are set aside",
                    "two teachers play the others: gold, and one that takes the first row",
                    "cold start from both: the planted bias",
                    f"pass@100 of the cold start on {found.filter_kept + found.filter_dropped} of them: "
                    f"{found.filter_dropped} never passed and dropped",
                    f"GRPO on the rest, {found.grpo_steps} steps",
                ),
                end="judged on the held-out variants",
            )
        )
    return tuple(paths)


def _gate_meanings() -> dict[str, str]:
    """Gate -> the first sentence of its documentation."""
    words = {name: (gate.__doc__ or "").partition("\n")[0] for name, gate in GATES}
    return words | {AGREEMENT: "The policy random-valid passes as often as the density says."}


def _before_and_after(out: Path) -> tuple[tuple[Played, ...], PublicTask | None]:
    """A held-out task that the greedy policy failed before and passed after; else any."""
    before, after = (_greedy(out / name) for name in ("before", "after"))
    both = sorted(before.keys() & after.keys())
    if not both:
        return (), None
    mended = [name for name in both if not _passed(before[name]) and _passed(after[name])]
    chosen = (mended or both)[0]
    data = Dataset.open(out / "tasks" / "variants")
    spec = data.tasks[chosen]
    played = (
        Played(title="Before: the cold start", episode=before[chosen]),
        Played(title="After GRPO", episode=after[chosen]),
    )
    return played, spec.public(data.environments[spec.environment_id])


def _greedy(folder: Path) -> dict[str, Trajectory]:
    with RunStore.read(folder / "temperature-0") as store:
        return {one.task_id: one for one in store.trajectories() if one.error is None}


def _passed(episode: Trajectory) -> bool:
    return episode.score is not None and episode.score.passed


def _gold_episode(dataset: Dataset, out: Path) -> tuple[tuple[Played, ...], PublicTask | None]:
    """The solution of a kept task, of about six calls."""
    with RunStore.read(out / "rollouts" / "gold") as store:
        found = [one for one in store.trajectories() if one.stop is StopReason.SUBMITTED]
    if not found:
        return (), None
    chosen = min(found, key=lambda one: (abs(one.num_calls - 6), one.task_id))
    spec = dataset.tasks[chosen.task_id]
    played = Played(title="", episode=chosen)
    return (played,), spec.public(dataset.environments[spec.environment_id])

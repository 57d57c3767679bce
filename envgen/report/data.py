"""The data of a report. Pipelines fill it; ``envgen.report.html`` renders it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pydantic import Field

from envgen.core.types import PublicTask, Record, TaskSpec, Trajectory
from envgen.store.card import kill_rate


class FunnelStage(Record):
    """One step of a funnel."""

    name: str
    num_in: int = Field(ge=0)
    num_out: int = Field(ge=0)
    reasons: dict[str, int] = Field(default_factory=dict)
    """Why the others were dropped, and how many for each reason."""


class TaskPoint(Record):
    """One task in the plots."""

    task_id: str
    level: int
    density: float | None = None
    density_low: float | None = None
    density_high: float | None = None
    kill_rate: float | None = None
    gold_calls: int = 0
    distinct_tools: int = 0
    split: str = "train"


class PassRow(Record):
    """A pass@k estimate over the tasks of one level."""

    policy: str
    level: int | None = None
    """None: all levels."""
    k: int = Field(ge=1)
    estimate: float
    low: float | None
    high: float | None
    """None where the tasks have one database only."""
    n: int
    """Error-free samples."""
    num_tasks: int


class FilterRow(Record):
    """The effect of a pass@k filter on one level."""

    level: int
    kept: int
    dropped: int
    undecided: int = 0
    """Too few error-free samples: kept out, but not for being too hard or too easy."""
    reasons: dict[str, int] = Field(default_factory=dict)


class StageTime(Record):
    """How long a stage took."""

    name: str
    seconds: float = Field(ge=0)


class GateRow(Record):
    """The results of one gate over all tasks."""

    gate: str
    meaning: str = ""
    """What it holds of a task that passes."""
    passed: int = 0
    failed: int = 0
    not_applicable: int = 0
    not_run: int = 0
    num_trials: int = 0
    lowest_figure: float | None = None
    reason: str = ""
    """The most common reason where it did not pass."""


class LiftRow(Record):
    """The change that training made: one way of decoding, with 95 % intervals."""

    decoding: str
    ceiling: tuple[float, float, float]
    """Of a cold start that nobody misled: value, low, high."""
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    lift: tuple[float, float, float]
    """Paired over databases."""


class TrainingPart(Record):
    """The result of a training, which the page begins with."""

    headline: str
    """In a sentence, the ceiling included."""
    text: str
    """What was judged, and what was planted."""
    lifts: tuple[LiftRow, ...]
    facts: dict[str, str] = Field(default_factory=dict)


class Played(Record):
    """An episode that is shown turn by turn."""

    title: str
    episode: Trajectory


class FamilySample(Record):
    """One task of a family, with its secrets and who fails it."""

    family: str
    title: str
    task_id: str
    level: int
    prompt: str
    answer: str
    parts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Heading -> lines: what ``envgen show --secrets`` shows."""
    players: dict[str, str] = Field(default_factory=dict)
    """Policy -> how many episodes it passed."""
    note: str = ""


class TaskPath(Record):
    """The steps that tasks go through, and the numbers that are left."""

    title: str
    steps: tuple[str, ...]
    end: str
    """What the last step's tasks are used for."""


class Curve(Record):
    """One figure over the steps of a run."""

    name: str
    points: tuple[tuple[int, float], ...]


class Panel(Record):
    """Curves that are drawn into one plot."""

    title: str
    curves: tuple[Curve, ...]
    hint: str = ""
    limit: float | None = None
    """Where an alarm begins."""
    share: bool = False
    """From 0 to 1."""
    log: bool = False


class CurveGroup(Record):
    """Panels of one run, or of one part of it."""

    title: str = ""
    panels: tuple[Panel, ...]


class ReportData(Record):
    """All that ``report.html`` shows; empty parts are left out of the page."""

    title: str
    summary: str = ""
    facts: dict[str, str] = Field(default_factory=dict)
    """Small print of the header: versions, seed, host, config hash."""
    commands: tuple[str, ...] = ()
    """The commands that make this run again."""
    counts: dict[str, int | float] = Field(default_factory=dict)
    """The big numbers, by what they count."""
    paths: tuple[TaskPath, ...] = ()
    """From generation to where tasks are used."""
    funnel: tuple[FunnelStage, ...] = ()
    funnel_hint: str = ""
    """What the names of reasons mean."""
    tasks: tuple[TaskPoint, ...] = ()
    pass_at: tuple[PassRow, ...] = ()
    filtered: tuple[FilterRow, ...] = ()
    filter_rule: str = ""
    training: TrainingPart | None = None
    curves: tuple[CurveGroup, ...] = ()
    """Of training runs."""
    timings: tuple[StageTime, ...] = ()
    timings_title: str = "Seconds per stage"
    gates: tuple[GateRow, ...] = ()
    played: tuple[Played, ...] = ()
    """Of one task; two stand side by side, at the page's top if there is a training."""
    played_task: PublicTask | None = None
    samples: tuple[FamilySample, ...] = ()
    """Of the other families."""
    notes: tuple[str, ...] = ()
    """What a reader should know: what is not isolated, what was not run and why."""


def task_points(tasks: Iterable[TaskSpec]) -> tuple[TaskPoint, ...]:
    """The plots' points for these tasks."""
    points = []
    for task in tasks:
        difficulty = task.difficulty
        density = difficulty.density
        points.append(
            TaskPoint(
                task_id=task.id,
                level=difficulty.level,
                density=density and density.value,
                density_low=density and density.low,
                density_high=density and density.high,
                kill_rate=kill_rate(task),
                gold_calls=difficulty.gold_calls,
                distinct_tools=difficulty.distinct_tools,
                split=task.split,
            )
        )
    return tuple(points)


def gate_rows(
    tasks: Iterable[TaskSpec], meanings: Mapping[str, str] | None = None
) -> tuple[GateRow, ...]:
    """The evidence of these tasks, one row a gate, in the order the gates were run.

    Args:
        tasks: whose.
        meanings: gate -> what it holds of a task that passes.
    """
    rows: dict[str, Counter[str]] = {}
    figures: dict[str, list[float]] = {}
    reasons: dict[str, Counter[str]] = {}
    for task in tasks:
        for gate in task.evidence:
            row = rows.setdefault(gate.gate, Counter())
            row[gate.status.value] += 1
            row["num_trials"] += gate.n
            if gate.figure is not None:
                figures.setdefault(gate.gate, []).append(gate.figure)
            if gate.reason:
                reasons.setdefault(gate.gate, Counter())[gate.reason] += 1
    result = []
    for name, row in rows.items():
        common = reasons[name].most_common(1)[0][0] if name in reasons else ""
        lowest = min(figures[name]) if name in figures else None
        counts = {key: row[key] for key in row}
        meaning = (meanings or {}).get(name, "")
        result.append(
            GateRow(gate=name, meaning=meaning, lowest_figure=lowest, reason=common, **counts)
        )
    return tuple(result)

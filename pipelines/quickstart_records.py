"""What the quickstart is told, and what it tells."""

from __future__ import annotations

from pydantic import Field

from envgen.core.limits import Real, Whole
from envgen.core.types import Record
from envgen.pipelines.demo_records import TrainingDemoConfig, TrainingDemoSummary
from envgen.report.data import FilterRow, PassRow


class QuickstartConfig(Record):
    """How much of everything."""

    environments: int = Field(default=15, ge=1)
    """Databases to make."""
    tasks_per_environment: int = Field(default=2, ge=1)
    """Most tasks over one database."""
    max_level: int = Field(default=5, ge=1, le=10)
    """Tasks have levels 1 to this."""
    samples: int = Field(default=100, ge=1)
    """Episodes a task for pass@100."""
    max_pass_at_1: Real = 0.95
    """The filter drops what is passed more often."""
    train: bool = True
    """Also train a small policy from nothing; needs ``pip install 'envgen-gym[train]'``."""
    training: TrainingDemoConfig = TrainingDemoConfig()
    """Its seed is ``seed``; two processes learn where there are two cores."""
    seed: Whole = 0


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
    failed: str = ""
    """Why a stage failed that the others could do without; empty if none did."""

"""What an author hands to the gates: one task with its environment, as texts and rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pydantic import Field, JsonValue

from envgen.core.ir import Problem, Relation
from envgen.core.limits import Text
from envgen.core.types import Evidence, Id, LineageStep, PublicRule, Record, Schema, ToolSpec
from envgen.pipelines.general.semantics.tables import Tables


class DraftRequest(Record):
    """What an author is asked for."""

    domain: Id
    """A name in ``envgen.pipelines.general.domains`` (procedural), or any category (model)."""
    level: int = Field(default=1, ge=1, le=10)
    page: Text = ""
    """The domain's page as JSON, where it isn't one of the package's."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An unproven task: the gates read nothing but this.

    The environment part is category ... blueprint, the task part is task_id ... lineage. ``problem``
    is the constraint IR behind the texts; None when a model wrote them.
    """

    environment_id: str
    category: str
    title: str
    description: str = ""
    language: str = "en"
    relations: tuple[Relation, ...]
    tables: Tables
    tools: tuple[ToolSpec, ...]
    tools_source: str
    policy_text: str = ""
    author: str = "procedural"
    seed: int = 0
    licence: str = "CC0-1.0"
    sources: tuple[str, ...] = ()
    blueprint: JsonValue = None
    """The re-seed recipe: domain, level, seed and the operators applied; None if there is none."""

    task_id: str
    prompt: str
    submit_schema: Schema
    rules: tuple[PublicRule, ...] = ()
    solution: str
    verifier: str
    problem: Problem | None = None
    level: int = 1
    lineage: tuple[LineageStep, ...] = ()
    attempts: int = field(default=1, compare=False)
    """Problems tried until this one worked (the funnel counts them)."""


class NoDraft(NamedTuple):
    """Why a seed led to no task."""

    step: str
    """What it got stuck at, in a word or two: the funnel counts these."""
    reason: str


class Author(Protocol):
    """Writes tasks. Every author faces the same gates."""

    name: str

    def draft(self, request: DraftRequest, seed: int) -> Draft | NoDraft:
        """A new task at ``request.level``, or why this seed gives none."""

    def harden(self, draft: Draft) -> Draft | None:
        """The task one level up, lineage extended; None at the top or if no operator applies."""

    def repair(self, draft: Draft, report: Evidence) -> Draft | None:
        """Another try at a task that failed ``report``; None to give it up."""

    def recompiled(self, draft: Draft) -> Draft | None:
        """All texts of ``draft`` again, from its problem, rows and recipe; None for another author's."""

    def reseed(self, draft: Draft, seed: int) -> Draft | None:
        """The same task over new rows with re-bound parameters; None if that failed.

        Tools are unchanged; solution and verifier differ in their ``PARAMS`` line only.
        """

"""A task with its environment as an author hands it to the gates: texts and rows, and how they are stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

from pydantic import Field, JsonValue

from envgen.core.canonical import dumps
from envgen.core.ir import Problem, Relation
from envgen.core.limits import Text
from envgen.core.types import (
    Density,
    Difficulty,
    EnvironmentSpec,
    Evidence,
    GoldRun,
    Id,
    Limits,
    LineageStep,
    Probe,
    PublicRule,
    Record,
    Schema,
    TaskSpec,
    ToolSpec,
)
from envgen.pipelines.boundary import failure
from envgen.pipelines.general.difficulty.figures import Measures, gold_tokens
from envgen.pipelines.general.semantics.tables import Tables, in_file_order, write_sqlite
from envgen.pipelines.general.words.lexicon import LEXICONS, lexicon
from envgen.store.bundles import EnvironmentBundle, TaskBundle

ENVIRONMENT_FIELDS = (
    "category", "title", "description", "language", "tools", "policy_text", "author", "seed", "licence",
    "sources",
)  # fmt: skip
"""Fields that a draft and its environment's record share."""
FEWEST_TOKENS = 32_768
"""An episode may always take so many tokens; up to format 2 of datasets never more."""


class DraftRequest(Record):
    """A request to an author."""

    domain: Id
    """A name in ``envgen.pipelines.general.domains``, or the id of ``page``."""
    level: int = Field(default=1, ge=1, le=10)
    page: Text = ""
    """The domain's page as JSON, where it isn't one of the package's."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An unproven task: the gates read nothing but this.

    The environment part is category ... blueprint, the task part is task_id ... lineage. ``problem``
    is the constraint IR behind the texts; None when a person or a model wrote them.
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

    @property
    def public_text(self) -> str:
        """All that an agent reads before its first call, tools apart."""
        return f"{self.policy_text}\n{self.prompt}"


class NoDraft(NamedTuple):
    """The reason why a seed led to no task."""

    step: str
    """The step that failed, in a word or two: the funnel counts these."""
    reason: str


class Author(Protocol):
    """The writer of a draft, as far as the gates need one."""

    name: str

    def recompiled(self, draft: Draft) -> Draft | None:
        """All texts of ``draft`` again, from its problem, rows and recipe; None for another author's."""

    def reseed(self, draft: Draft, seed: int) -> Draft | None:
        """The same task over new rows with re-bound parameters; None if that failed.

        Tools are unchanged; solution and verifier differ in their ``PARAMS`` line only.
        """

    def instance(self, draft: Draft, seed: int) -> tuple[Problem, Tables] | None:
        """The problem and rows of ``reseed``, without the texts."""

    def bounds_shortcuts(self, draft: Draft) -> bool:
        """Whether the levels of the draft's page bound what shortcuts pass."""


class Proof(NamedTuple):
    """The findings of the gates: the evidence, and what the dataset stores of it."""

    evidence: Evidence
    gold: GoldRun | None = None
    probes: tuple[Probe, ...] = ()
    density: Density | None = None
    measures: Measures | None = None
    measuring_s: float = 0.0
    """Seconds that ``measures`` took."""

    @property
    def passed(self) -> bool:
        """Whether no gate failed and none was left out for an earlier failure."""
        return failure(self.evidence) is None


def as_stored(draft: Draft) -> Draft:
    """``draft`` as it is read back once it is stored: equal, with rows and keys in the files' order."""
    return replace(
        draft,
        tables=in_file_order(draft.relations, draft.tables),
        tools=tuple(ToolSpec.model_validate_json(dumps(tool)) for tool in draft.tools),
        submit_schema=json.loads(dumps(draft.submit_schema)),
        blueprint=json.loads(dumps(draft.blueprint)),
        problem=None if draft.problem is None else as_read(draft.problem),
    )


def as_read(problem: Problem) -> Problem:
    """``problem`` as it is read back from a file: equal, with its keys in the file's order.

    Files hold canonical JSON, whose keys are sorted, but the answer's form in the prompt has an order:
    the layout gets that in which its lexicon writes it.
    """
    problem = Problem.model_validate_json(dumps(problem))
    if problem.lexicon not in LEXICONS:
        return problem
    try:
        layout = lexicon(problem.lexicon).frame(problem.fields).layout
    except (KeyError, TypeError, ValueError):  # fields of no such problem: a gate says so
        return problem
    return problem.model_copy(update={"layout": layout}) if layout == problem.layout else problem


def environment_bundle(draft: Draft) -> EnvironmentBundle:
    """The environment part of a draft, with its database as SQLite bytes."""
    with TemporaryDirectory(prefix="envgen-bundle-") as folder:
        path = Path(folder) / "database.sqlite"
        write_sqlite(draft.relations, draft.tables, path)
        database = path.read_bytes()
    shared = {name: getattr(draft, name) for name in ENVIRONMENT_FIELDS}
    spec = EnvironmentSpec(id=draft.environment_id, **shared)
    return EnvironmentBundle(
        spec=spec, database=database, tools_source=draft.tools_source, blueprint=draft.blueprint
    )


def task_bundle(draft: Draft, proof: Proof) -> TaskBundle:
    """The task part of a proven draft."""
    calls = proof.gold.calls if proof.gold else ()
    tokens = gold_tokens(draft.public_text, draft.tools, calls)
    spec = TaskSpec(
        id=draft.task_id,
        environment_id=draft.environment_id,
        prompt=draft.prompt,
        submit_schema=draft.submit_schema,
        rules=draft.rules,
        # Four times gold's calls, and room to explore; one call a turn must suffice.
        limits=Limits(
            turns=16 + 4 * len(calls), tokens=max(FEWEST_TOKENS, 4 * tokens), seconds=600.0
        ),
        difficulty=Difficulty(
            level=draft.level,
            lineage=draft.lineage,
            density=proof.density,
            gold_calls=len(calls),
            distinct_tools=len({call.name for call in calls}),
            gold_tokens=tokens if proof.gold else None,
            **(proof.measures._asdict() if proof.measures else {}),
        ),
        evidence=proof.evidence,
    )
    return TaskBundle(
        spec=spec,
        solution=draft.solution,
        verifier=draft.verifier,
        constraints=None if draft.problem is None else draft.problem.model_dump(mode="json"),
        gold=proof.gold,
        probes=proof.probes,
    )

"""The author that needs no model: tasks from a domain's blueprint, hardened level by level."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError
from envgen.core.ir import Problem
from envgen.core.seeding import derive, rng
from envgen.core.types import Evidence, LineageStep
from envgen.pipelines.general.authoring.tasks import Hardened, Operator, Tasks, tasks_from
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.draft import Draft, DraftRequest, NoDraft
from envgen.pipelines.general.programs.task_code import TaskCompiler
from envgen.pipelines.general.reload import as_read
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.density import density
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import public_rules, submit_schema
from envgen.store.bundles import PAGE

_TRIES = 20
"""Rows drawn for one level-1 task, operators tried for one step, re-seeds tried for one binding."""
_SIBLING_TRIES = 4
_EXACT_STEPS, _ROUGH_STEPS, _ROUGH_LEVEL = 100_000, 500, 9
"""Work spent on the density of a lineage step: exact where that is quick, else a sampled bound."""


@dataclass(frozen=True)
class _TaskState:
    """A task on its way up."""

    tasks: Tasks
    domain: str
    seed: int
    level: int
    problem: Problem
    tables: Tables
    lineage: tuple[LineageStep, ...] = ()
    attempts: int = 1


class ProceduralAuthor:
    """Drafts, hardens and re-seeds tasks; everything is a function of (request, seed)."""

    name = "procedural"

    def __init__(self) -> None:
        self._compiler = TaskCompiler()

    def draft(self, request: DraftRequest, seed: int) -> Draft | NoDraft:
        """A level-1 task hardened ``request.level - 1`` times, or where the seed got stuck.

        Raises:
            ConfigError: if the domain is unknown or has no such level.
        """
        tasks = tasks_from(request.page) if request.page else load_tasks(request.domain)
        if request.level > tasks.domain.max_level:
            raise ConfigError(
                f"domain {request.domain!r} has no level {request.level}",
                f"its highest is {tasks.domain.max_level}",
            )
        state = _first(tasks, request.domain, seed)
        if state is None:
            return NoDraft("rows", f"{_TRIES} draws of rows held no level-1 task")
        while state.level < request.level:
            harder = _step(state)
            if harder is None:
                tried = ", ".join(op.name for op in _operators(state)) or "none applies"
                goal = f"level {state.level + 1}"
                return NoDraft(goal, f"no operator leads to {goal} (tried: {tried})")
            state = harder
        return self._compile(state)

    def harden(self, draft: Draft) -> Draft | None:
        """The task one level up; None at the top, or if no operator applies."""
        state = _state(draft)
        if state is None or state.level >= state.tasks.domain.max_level:
            return None
        harder = _step(state)
        return None if harder is None else self._compile(harder)

    def repair(self, draft: Draft, report: Evidence) -> Draft | None:
        """Another task of the same domain and level: what a gate rejects, new rows may mend."""
        recipe = draft.blueprint
        if not isinstance(recipe, dict):
            return None
        request = DraftRequest(
            domain=str(recipe["domain"]), level=draft.level, page=str(recipe[PAGE])
        )
        failed = [result.gate for result in report if result.status == "failed"]
        found = self.draft(request, derive(draft.seed, "repair", *failed))
        return None if isinstance(found, NoDraft) else found

    def reseed(self, draft: Draft, seed: int) -> Draft | None:
        """The same task over new rows, its parameters re-tuned; None if no draw allows it.

        Tools are unchanged; solution and verifier differ in their ``PARAMS`` line only.
        """
        state = _state(draft)
        if state is None:
            return None
        found = state.tasks.reseeded(state.problem, rng(seed, "reseed"))
        if found is None:
            return None
        return self._compile(_with_problem(state, found.problem, found.tables, seed))

    def sibling(self, draft: Draft, seed: int) -> Draft | NoDraft:
        """Another task of the same level in the same environment (rows and tools), or why none."""
        state = _state(draft)
        if state is None:
            return NoDraft("author", "another author's task has no siblings")
        stuck = NoDraft("tuning", "the rows allow no other question of the kind")
        for attempt in range(_SIBLING_TRIES):
            rand = rng(seed, "sibling", attempt)
            other = state.tasks.sibling(state.problem, state.tables, rand)
            if other is None:
                continue
            found = self._compile(_with_problem(state, other, state.tables, draft.seed))
            if found.environment_id == draft.environment_id:
                return found
            stuck = NoDraft("environment", "another question needs other tools or another policy")
        return stuck

    def recompiled(self, draft: Draft) -> Draft | None:
        """All texts of ``draft`` again, from its problem, rows and recipe; None for another author's."""
        state = _state(draft)
        return None if state is None else self._compile(state)

    def _compile(self, state: _TaskState) -> Draft:
        """All texts of a task."""
        problem = as_read(state.problem.model_copy(update={"id": _problem_id(state.problem)}))
        domain, tables = state.tasks.domain, state.tables
        rendered = prompt(problem, state.tasks.lexicon)
        code = self._compiler.code(problem)
        rows = {name: [found[key] for key in sorted(found)] for name, found in tables.items()}
        environment = content_hash([code.tools, rendered.policy_text, rows])
        environment_id = f"{domain.category}-{environment[:12]}"
        recipe: JsonValue = {
            "domain": state.domain,
            PAGE: state.tasks.domain.text,
            "level": state.level,
            "operators": [step.operator for step in state.lineage],
            "seed": state.seed,
        }
        return Draft(
            environment_id=environment_id,
            category=domain.category,
            title=domain.title,
            description=domain.description,
            relations=problem.relations,
            tables=tables,
            tools=code.specs,
            tools_source=code.tools,
            policy_text=rendered.policy_text,
            author=ProceduralAuthor.name,
            seed=state.seed,
            licence=domain.licence,
            sources=domain.sources,
            blueprint=recipe,
            task_id=_task_id(environment_id, problem),
            prompt=rendered.text,
            submit_schema=submit_schema(problem, tables),
            rules=public_rules(problem, rendered),
            solution=code.solution,
            verifier=code.verifier,
            problem=problem,
            level=state.level,
            lineage=state.lineage,
            attempts=state.attempts,
        )


def _first(tasks: Tasks, domain: str, seed: int) -> _TaskState | None:
    for attempt in range(_TRIES):
        found = tasks.first(rng(seed, domain, 1, attempt))
        if found is not None:
            return _TaskState(
                tasks, domain, seed, 1, found.problem, found.tables, attempts=attempt + 1
            )
    return None


def _step(state: _TaskState) -> _TaskState | None:
    """One level up by the first operator, in random order, that gives a task."""
    rand = rng(state.seed, state.domain, state.level + 1, _problem_id(state.problem))
    operators = _operators(state)
    for operator in rand.sample(operators, len(operators)):
        harder = operator.harden(state.problem, state.tables, rand)
        if harder is not None:
            return _TaskState(
                tasks=state.tasks,
                domain=state.domain,
                seed=state.seed,
                level=state.level + 1,
                problem=harder.problem,
                tables=harder.tables,
                lineage=(*state.lineage, _lineage_step(operator.name, state.level + 1, harder)),
                attempts=state.attempts,
            )
    return None


def _operators(state: _TaskState) -> list[Operator]:
    return state.tasks.operators(state.level)


def _lineage_step(operator: str, level: int, harder: Hardened) -> LineageStep:
    steps = _ROUGH_STEPS if level >= _ROUGH_LEVEL else _EXACT_STEPS
    rough = density(harder.problem, harder.tables, rng(0, operator), steps=steps)
    return LineageStep(operator=operator, problem_id=_problem_id(harder.problem), density=rough)


def _state(draft: Draft) -> _TaskState | None:
    """Back from a draft to what it was compiled from; None for another author's."""
    recipe = draft.blueprint
    if draft.problem is None or not isinstance(recipe, dict):
        return None
    domain, text = str(recipe["domain"]), recipe.get(PAGE)
    if not isinstance(text, str):
        return None  # made before pages were stored
    return _TaskState(
        tasks=tasks_from(text),
        domain=domain,
        seed=draft.seed,
        level=draft.level,
        problem=draft.problem,
        tables=draft.tables,
        lineage=draft.lineage,
    )


def _with_problem(state: _TaskState, problem: Problem, tables: Tables, seed: int) -> _TaskState:
    """``state`` about another problem made by the same steps."""
    lineage = state.lineage
    if lineage:
        last = lineage[-1].model_copy(update={"problem_id": _problem_id(problem), "density": None})
        lineage = (*lineage[:-1], last)
    return _TaskState(
        tasks=state.tasks,
        domain=state.domain,
        seed=seed,
        level=state.level,
        problem=problem,
        tables=tables,
        lineage=lineage,
    )


def _problem_id(problem: Problem) -> str:
    """The hash of what is asked, whatever the problem is called."""
    return "p-" + content_hash(problem.model_copy(update={"id": ""}))[:16]


def _task_id(environment_id: str, problem: Problem) -> str:
    return "t-" + content_hash([environment_id, problem.model_dump(mode="json")])[:16]

"""The author that needs no model: tasks from a domain's blueprint, hardened level by level."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import JsonValue

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError, DatasetError
from envgen.core.ir import Problem
from envgen.core.seeding import rng
from envgen.core.types import LineageStep
from envgen.pipelines.general.authoring.tasks import Hardened, Tasks, tasks_from
from envgen.pipelines.general.difficulty.plans import must_escalate
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.draft import (
    ENVIRONMENT_FIELDS,
    Draft,
    DraftRequest,
    NoDraft,
    as_read,
)
from envgen.pipelines.general.programs.task_code import TaskCompiler
from envgen.pipelines.general.semantics.identity import identity
from envgen.pipelines.general.semantics.tables import Tables, read_sqlite
from envgen.pipelines.general.space.density import density
from envgen.pipelines.general.words.prompt import prompt
from envgen.pipelines.general.words.schema import public_rules, submit_schema
from envgen.store.bundles import PAGE
from envgen.store.dataset import Dataset

_TRIES = 20
"""Rows drawn for one level-1 task."""
_SIBLING_TRIES = 4
_HARDER_TRIES = 3
"""Most draws of one hardening step; if all make the task easier, the hardest is kept."""
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
    """Drafts and re-seeds tasks; everything is a function of (request, seed)."""

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
                operators = tasks.blueprint.operators(state.level)
                tried = ", ".join(op.name for op in operators) or "none applies"
                goal = f"level {state.level + 1}"
                return NoDraft(goal, f"no operator leads to {goal} (tried: {tried})")
            state = harder
        worded = state.tasks.worded(state.problem, rng(seed, "words"))
        state = _asking(state, worded, state.tables, seed, keep_density=True)
        return self._compile(state, as_read(state.problem))

    def has_recipe(self, draft: Draft) -> bool:
        """Whether ``draft`` can be made again from what it holds, whoever it says wrote it."""
        return _state(draft) is not None

    def reseed(self, draft: Draft, seed: int) -> Draft | None:
        """The same task over new rows, its parameters re-tuned; None if no draw allows it.

        Tools are unchanged; solution and verifier differ in their ``PARAMS`` line only.
        """
        state, found = _state(draft), self.instance(draft, seed)
        if state is None or found is None:
            return None
        # All but the parameters is the draft's own, and so already in the files' order.
        params = dict(sorted(found.problem.params.items()))
        problem = found.problem.model_copy(update={"params": params})
        return self._compile(_asking(state, problem, found.tables, seed), problem)

    def instance(self, draft: Draft, seed: int) -> Hardened | None:
        """What ``reseed`` compiles: the problem re-bound over new rows; None if no draw allows it."""
        state = _state(draft)
        if state is None:
            return None
        return state.tasks.reseeded(state.problem, rng(seed, "reseed"))

    def bounds_shortcuts(self, draft: Draft) -> bool:
        """Whether the levels of the draft's page bound what shortcuts pass."""
        state = _state(draft)
        return state is None or state.tasks.domain.shortcuts == "bounded"

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
            other = state.tasks.worded(other, rand, policy=False)
            found = self._compile(_asking(state, other, state.tables, draft.seed), as_read(other))
            if found.environment_id == draft.environment_id:
                return found
            stuck = NoDraft("environment", "another question needs other tools or another policy")
        return stuck

    def recompiled(self, draft: Draft) -> Draft | None:
        """All texts of ``draft`` again, from its problem, rows and recipe; None for another author's."""
        state = _state(draft)
        return None if state is None else self._compile(state, as_read(state.problem))

    def _compile(self, state: _TaskState, problem: Problem) -> Draft:
        """All texts of a task whose problem, as it is read from a file, is ``problem``."""
        problem = problem.model_copy(update={"id": _problem_id(problem)})
        domain, tables = state.tasks.domain, state.tables
        rendered = prompt(problem, state.tasks.lexicon)
        code = self._compiler.code(problem)
        rows = {name: [found[key] for key in sorted(found)] for name, found in tables.items()}
        environment = content_hash([code.tools, rendered.policy_text, rows])
        environment_id = f"{domain.category}-{environment[:12]}"
        task = content_hash([environment_id, problem.model_dump(mode="json")])
        recipe: JsonValue = {
            "domain": state.domain,
            PAGE: domain.text,
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
            author=self.name,
            seed=state.seed,
            licence=domain.licence,
            sources=domain.sources,
            blueprint=recipe,
            task_id=f"t-{task[:16]}",
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
            return _TaskState(tasks, domain, seed, 1, *found, attempts=attempt + 1)
    return None


def _step(state: _TaskState) -> _TaskState | None:
    """One level up by the first operator, in random order, that gives a task.

    A step that raises the density is drawn again, with other rows.
    """
    level = state.level + 1
    rand = rng(state.seed, state.domain, level, identity(state.problem))
    operators = state.tasks.blueprint.operators(state.level)
    for operator in rand.sample(operators, len(operators)):
        before = state.lineage[-1].density if state.lineage else None
        drawn: list[_TaskState] = []
        for _ in range(_HARDER_TRIES):
            harder = state.tasks.harder(operator, state.problem, rand)
            if harder is None:
                break
            escalated = must_escalate(harder.problem, harder.tables)
            if drawn and escalated:  # the first draw has decided that, or more of them would be
                continue
            found = _lineage_step(operator.name, level, harder)
            lineage = (*state.lineage, found)
            drawn.append(replace(state, level=level, lineage=lineage, **harder._asdict()))
            if before is None or found.density is None or found.density.low <= before.high:
                return drawn[-1]
            if escalated:  # its density counts writes that nobody makes
                return drawn[-1]
        if drawn:
            return min(drawn, key=_density)
    return None


def _density(state: _TaskState) -> float:
    found = state.lineage[-1].density
    return found.value if found else 0.0


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


def _asking(
    state: _TaskState, problem: Problem, tables: Tables, seed: int, *, keep_density: bool = False
) -> _TaskState:
    """``state`` about another problem made by the same steps, or about its own in other words."""
    lineage = state.lineage
    if lineage:
        density = lineage[-1].density if keep_density else None
        update = {"problem_id": _problem_id(problem), "density": density}
        last = lineage[-1].model_copy(update=update)
        lineage = (*lineage[:-1], last)
    return replace(state, problem=problem, tables=tables, seed=seed, lineage=lineage)


def _problem_id(problem: Problem) -> str:
    """The hash of what is asked, whatever the problem is called."""
    return "p-" + content_hash(problem.model_copy(update={"id": ""}))[:16]


def draft_of(dataset: Dataset, task_id: str) -> Draft | None:
    """The draft behind a stored task, read from its files alone; None if it has no constraint IR.

    Raises:
        DatasetError: if files are missing, the IR doesn't fit the database, or the page is none.
    """
    task = dataset.task_files(task_id)
    if not isinstance(task.constraints, dict):
        return None
    environment = dataset.environment_files(task.spec.environment_id)
    database = dataset.database(task_id)
    if database is None:
        raise DatasetError(f"task {task_id!r} has a constraint IR but no database")
    page = _learn(environment.blueprint)
    try:
        problem = as_read(Problem.model_validate(task.constraints))
    except ValueError as error:
        raise DatasetError(
            f"constraints.json of task {task_id!r} is not a valid problem: {error}"
        ) from error
    if page not in ("", problem.lexicon):
        raise DatasetError(f"task {task_id!r} was made from {problem.lexicon!r}, not from {page!r}")
    return Draft(
        environment_id=environment.spec.id,
        **{name: getattr(environment.spec, name) for name in ENVIRONMENT_FIELDS},
        relations=problem.relations,
        tables=read_sqlite(problem.relations, database),
        tools_source=environment.tools_source,
        blueprint=environment.blueprint,
        task_id=task_id,
        prompt=task.spec.prompt,
        submit_schema=task.spec.submit_schema or {},
        rules=task.spec.rules,
        solution=task.solution,
        verifier=task.verifier,
        problem=problem,
        level=task.spec.difficulty.level,
        lineage=task.spec.difficulty.lineage,
    )


def _learn(blueprint: JsonValue) -> str:
    """Read the page that is stored with an environment, so that its sentences are known; "" if there is none.

    Raises:
        DatasetError: if it is no page.
    """
    text = blueprint.get(PAGE) if isinstance(blueprint, dict) else None
    if not isinstance(text, str):
        return ""
    try:
        return tasks_from(text).domain.key
    except ConfigError as error:
        raise DatasetError(
            f"the domain stored with the environment is not valid: {error}"
        ) from error

"""Tasks of a domain: the first, harder ones, re-seeded ones and siblings, each a problem with its rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from random import Random
from typing import NamedTuple

from pydantic import ValidationError

from envgen.core.errors import ConfigError
from envgen.core.ir import Equals, Get, Problem, Query, Reach
from envgen.core.seeding import rng
from envgen.pipelines.general.authoring.analysis import (
    Analysis,
    OpenTask,
    Params,
    one_best,
    other_side,
)
from envgen.pipelines.general.authoring.answers import AnswerTuner
from envgen.pipelines.general.authoring.check import check_page
from envgen.pipelines.general.authoring.page import Domain, is_package_page, page_error
from envgen.pipelines.general.authoring.rows import TooFewRowsError
from envgen.pipelines.general.authoring.statement import Blueprint
from envgen.pipelines.general.authoring.structure import Operator, Structure
from envgen.pipelines.general.authoring.workflows import WorkflowTuner
from envgen.pipelines.general.semantics.rewrite import params_of
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.words.lexicon import register

_TRIES = 40
"""Choices of parameters tried for a question about one set of rows."""
_DRAWS = 400
"""Rows drawn for one structure before it is given up, when a task is drafted and when it is re-seeded."""
_REHEARSED = 15
"""Rows drawn for one step when a page is rehearsed."""
_CHOICES = 8
"""Ways to take one step, and questions tried for a sibling."""
_WITH_SIBLING = 150
"""Draws looked at for rows on which a workflow has a sibling."""
_ESCALATED_SHARE = 0.15
"""Share of re-seeded requests that must be escalated."""


class Hardened(NamedTuple):
    """A problem with the rows that it is about."""

    problem: Problem
    tables: Tables


class Tasks:
    """Makes the tasks of one domain. All methods are functions of their arguments, chance included."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.blueprint = Blueprint(domain)
        check_page(self.blueprint, outside=not is_package_page(domain))
        self._analysis: Analysis | None = None
        self.lexicon = register(self.blueprint.lexicon)

    def first(self, rng: Random) -> Hardened | None:
        """A task of level 1; None if no rows drawn hold one."""
        return self._over_rows(self.blueprint.begin(self.domain.start, rng), rng)

    def harder(self, operator: Operator, problem: Problem, rng: Random) -> Hardened | None:
        """The task one level up by an operator of ``blueprint.operators``; None where it doesn't apply."""
        before = self.blueprint.structure_of(problem)
        for structure in self._structures(before, operator, rng):
            found = self._over_rows(structure, rng)
            if found is not None:
                return found
        return None

    def _structures(
        self, before: Structure, operator: Operator, rng: Random
    ) -> Iterator[Structure]:
        """Some structures to which an operator may lead; none where it doesn't apply."""
        for _ in range(_CHOICES):
            structure = self.blueprint.stepped(before, operator, rng)
            if structure is None:
                return
            yield structure

    def reseeded(self, problem: Problem, rng: Random) -> Hardened | None:
        """``problem`` over new rows of the same sizes and distributions, its parameters re-tuned."""
        structure = self.blueprint.structure_of(problem)
        goal = problem.goal
        may_escalate = isinstance(goal, Reach) and goal.escalate_when is not None
        escalated = may_escalate and rng.random() < _ESCALATED_SHARE
        return next(self._draws(structure, problem, rng, escalated=escalated), None)

    def rehearsed(self, seed: int = 0) -> Iterator[Hardened]:
        """A task of each level, each made of the one before; every step that applies is tried.

        Raises:
            ConfigError: naming the scene or the step for which no rows hold a task.
        """
        draws, domain = rng(seed, "rehearsal"), self.domain
        found = self._over_rows(self.blueprint.begin(domain.start, draws), draws)
        level, done, failed = 1, set[str](), dict[str, int]()
        reasons: dict[str, Counter[str]] = defaultdict(Counter)
        if found is None:
            failed = {(start := f"scene {domain.start!r}"): level}
            reasons[start] += self._failed()
        while found is not None:
            yield found
            failed = {name: at for name, at in failed.items() if name not in done}
            if level == domain.max_level:
                break
            before, found = self.blueprint.structure_of(found.problem), None
            operators, level = self.blueprint.operators(level), level + 1
            draws.shuffle(operators)
            for operator in operators:
                if found is not None and operator.name in done:
                    continue
                for structure in self._structures(before, operator, draws):
                    failed[operator.name] = level
                    task = self._over_rows(structure, draws, _REHEARSED)
                    reasons[operator.name] += self._failed()
                    if task is not None:
                        found, done = found or task, done | {operator.name}
                        break
        last = [name for name, at in failed.items() if at == level]
        for name in last or failed:
            often = [f"{why} ({times} times)" for why, times in reasons[name].most_common(2)]
            raise ConfigError(
                f"domain {domain.id!r}, {name!r}: no rows that were drawn hold such a task of level "
                f"{failed[name]}: {'; '.join(often) or 'no question about them has one answer'}",
                "loosen the rule, or draw rows that keep it and rows that break it",
            )

    def _failed(self) -> Counter[str]:
        """What kept the rows drawn last, and their parameters, from holding a task."""
        return self._analysis.failed if self._analysis else Counter()

    def _over_rows(self, structure: Structure, rng: Random, most: int = _DRAWS) -> Hardened | None:
        """A task over rows that allow a sibling, if some of the first draws do."""
        first = None
        for found in islice(
            self._draws(structure, self.blueprint.problem(structure), rng, most=most), _WITH_SIBLING
        ):
            first = first or found
            if not isinstance(found.problem.goal, Reach):
                break
            if self.sibling(found.problem, found.tables, rng) is not None:
                return found
        return first

    def _draws(
        self, structure: Structure, problem: Problem, rng: Random, *,
        escalated: bool = False, most: int = _DRAWS,
    ) -> Iterator[Hardened]:  # fmt: skip
        lost = 0
        for _ in range(most):
            try:
                tables = self.blueprint.draw_tables(structure, rng)
            except TooFewRowsError:  # by chance, unless it happens every time
                lost += 1
                if lost == most:
                    raise
                continue
            bound = self._tuned(problem, tables, rng, escalated=escalated)
            if bound is not None:
                yield Hardened(bound, tables)

    def sibling(self, problem: Problem, tables: Tables, rng: Random) -> Problem | None:
        """Another question about the same rows, with the same tools and policy; None if there is none."""
        if isinstance(problem.goal, Reach):
            fixed = {name: problem.params[name] for name in self._of_policy(problem)}
            return self._tuned(problem, tables, rng, fixed=fixed, other_than=problem.params)
        structure = self.blueprint.structure_of(problem)
        for _ in range(_CHOICES):
            other = self.blueprint.problem(self.blueprint.other(structure, rng))
            if other.access != problem.access:
                continue
            found = self._tuned(other, tables, rng)
            if found is not None and found != problem.model_copy(update={"id": found.id}):
                return found
        return None

    def _tuned(
        self, problem: Problem, tables: Tables, rng: Random, *,
        fixed: Params | None = None, escalated: bool = False, other_than: Params | None = None,
    ) -> Problem | None:  # fmt: skip
        """``problem`` with parameters for ``tables``; None if none of those tried will do.

        Args:
            problem: as ``Blueprint.problem`` states it; its parameters are replaced.
            tables: the rows.
            rng: the source of chance.
            fixed: parameters that must keep these values.
            escalated: of a workflow: whether the request must be escalated.
            other_than: of a workflow: the parameters of a request that must not come again.
        """
        if self._analysis is None or self._analysis.problem is not problem:
            self._analysis = Analysis(problem, self.blueprint)
        task = OpenTask(self._analysis, tables, rng, dict(fixed or {}))
        if isinstance(problem.goal, Reach):
            params = WorkflowTuner(task).params(escalated=escalated, other_than=other_than or {})
        elif isinstance(problem.goal, Equals):
            params = _question_params(task, problem.goal.query)
        else:
            params = AnswerTuner(task).params()
        return None if params is None else problem.model_copy(update={"params": params})

    def _of_policy(self, problem: Problem) -> list[str]:
        """Parameters that the policy states, and the day on which it is read."""
        clauses = [clause for clause in problem.clauses if clause.source == "policy"]
        stated = {name for clause in clauses for name in params_of(clause.expr)}
        return sorted(stated | ({"today"} & set(problem.params)))


def _question_params(task: OpenTask, query: Query) -> Params | None:
    """Parameters under which a question is fair: it has one answer, and each condition matters for it."""
    for _ in range(_TRIES if task.names else 1):
        params = task.drawn()
        if params is None:
            return None
        params |= _some_edges(task)
        if _fair(task, params, query):
            return params
    return None


def _some_edges(task: OpenTask) -> Params:
    """Choose for each edge the value of some row on the other side of its comparison."""
    found: Params = {}
    for name, edge in task.edges.items():
        other = other_side(edge, name)
        assert isinstance(other, Get)
        values = {row[other.column] for row in task.tables[other.relation].values()} - {None}
        step = task.analysis.domains[name].options.get("step", 1)
        column = sorted({v // step * step if isinstance(v, int) else v for v in values}, key=str)
        found[name] = task.rng.choice(column) if column else None
    return found


def _fair(task: OpenTask, params: Params, query: Query) -> bool:
    frame, compiler = task.frame(params), task.compiler
    answer = compiler.compile(query)(frame)
    if answer is None or not task.blueprint.answers(task.problem, answer):
        return False
    queries = (node for node in query.walk() if isinstance(node, Query))
    return all(one_best(node, compiler, frame) for node in queries) and all(
        compiler.compile(other)(frame) != answer for other in task.analysis.weaker
    )


@lru_cache(maxsize=64)
def tasks_from(text: str) -> Tasks:
    """Read a page, a JSON text, into its ``Tasks``; kept, since reading takes a while.

    Raises:
        ConfigError: if the text is no page.
    """
    try:
        return Tasks(Domain.model_validate_json(text))
    except ValidationError as error:
        raise page_error(error, text) from None

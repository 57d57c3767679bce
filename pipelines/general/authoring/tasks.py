"""Tasks of a domain: the first, harder ones, re-seeded ones and siblings, each a problem with its rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import copy
from functools import lru_cache
from itertools import islice
from random import Random
from typing import NamedTuple

from pydantic import ValidationError

from envgen.core.errors import ConfigError
from envgen.core.ir import NEAREST, Equals, Get, Optimise, Problem, Query, Reach, Satisfy
from envgen.core.seeding import rng
from envgen.core.threads import go_on
from envgen.pipelines.general.authoring.analysis import Analysis, OpenTask, Params, one_best
from envgen.pipelines.general.authoring.answers import AnswerTuner
from envgen.pipelines.general.authoring.check import check_page
from envgen.pipelines.general.authoring.edges import bounds, other_side
from envgen.pipelines.general.authoring.page import Domain, page_error
from envgen.pipelines.general.authoring.page_files import is_package_page
from envgen.pipelines.general.authoring.rows import TooFewRowsError
from envgen.pipelines.general.authoring.statement import Blueprint
from envgen.pipelines.general.authoring.structure import Operator, Structure
from envgen.pipelines.general.authoring.workflows import WorkflowTuner
from envgen.pipelines.general.semantics.identity import identity
from envgen.pipelines.general.semantics.rewrite import best_rule, params_of, strict
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
"""Share of requests that must be escalated, of those that a workflow may make."""
_INFEASIBLE_SHARE = 0.15
"""Share of tasks in which no answer keeps all rules, where one of them gives way."""
_TWIN_DRAWS = 60
"""Rows drawn for such a task before one with answers is made instead."""


class Hardened(NamedTuple):
    """A problem with the rows that it is about."""

    problem: Problem
    tables: Tables


class Rehearsal(NamedTuple):
    """A task of one level, found while a page is rehearsed."""

    problem: Problem
    tables: Tables
    held: int
    """The number of draws of rows that held a task of this level."""
    lost: Counter[str]
    """Why the other draws held none, with how often."""


class Tasks:
    """Makes the tasks of one domain. All methods are functions of their arguments, chance included."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.blueprint = Blueprint(domain)
        check_page(self.blueprint, outside=not is_package_page(domain))
        self._analysis: Analysis | None = None
        self._stated: Problem | None = None
        """The problem that was analysed."""
        self._explains = False
        self._lost = Counter[str]()
        """What the draws that held no task were lost for."""
        self.lexicon = register(self.blueprint.lexicon)

    def first(self, rng: Random) -> Hardened | None:
        """A task of level 1; None if no rows drawn hold one."""
        return self._over_rows(self.blueprint.begin(self.domain.start, rng), rng, rng.random())

    def harder(self, operator: Operator, problem: Problem, rng: Random) -> Hardened | None:
        """The task one level up by an operator of ``blueprint.operators``; None where it doesn't apply."""
        before, chance = self.blueprint.structure_of(problem), rng.random()
        for structure in self._structures(before, operator, rng):
            found = self._over_rows(structure, rng, chance)
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

    def worded(self, problem: Problem, rng: Random, *, policy: bool = True) -> Problem:
        """``problem`` in other words; the policy's stay unless ``policy``."""
        structure = self.blueprint.structure_of(problem)
        worded = self.blueprint.worded(structure, rng, policy=policy)
        return self.blueprint.problem(worded, problem.params)

    def reseeded(self, problem: Problem, rng: Random) -> Hardened | None:
        """``problem`` over new rows of the same sizes and distributions, its parameters re-tuned."""
        structure, escalated = self.blueprint.structure_of(problem), escalates(problem, rng)
        return next(self._draws(structure, problem, rng, escalated=escalated), None)

    def rehearsed(self, seed: int = 0) -> Iterator[Rehearsal]:
        """A task of each level, each made of the one before; every step that applies is tried.

        Raises:
            ConfigError: naming the scene or the step for which no rows hold a task, and all that is missing.
        """
        explaining = copy(self)
        explaining._explains = True
        return explaining._rehearsed(seed)

    def _rehearsed(self, seed: int) -> Iterator[Rehearsal]:
        draws, domain = rng(seed, "rehearsal"), self.domain
        start = self.blueprint.begin(domain.start, draws)
        found = self._with_sibling(start, self.blueprint.problem(start), draws)
        level, held, done, failed = 1, 1, set[str](), dict[str, int]()
        reasons: dict[str, Counter[str]] = defaultdict(Counter)
        if found is None:
            failed = {(scene := f"scene {domain.start!r}"): level}
            reasons[scene] += self._failed()
        while found is not None:
            yield Rehearsal(*found, held, self._lost)
            failed = {name: at for name, at in failed.items() if name not in done}
            if level == domain.max_level:
                break
            before, found = self.blueprint.structure_of(found.problem), None
            operators, level, held = self.blueprint.operators(level), level + 1, 0
            self._lost = Counter()
            draws.shuffle(operators)
            for operator in operators:
                if found is not None and operator.name in done:
                    continue
                for structure in self._structures(before, operator, draws):
                    failed[operator.name] = level
                    problem = self.blueprint.problem(structure)
                    task = self._with_sibling(structure, problem, draws, _REHEARSED)
                    reasons[operator.name] += self._failed()
                    if task is not None:
                        found, done, held = found or task, done | {operator.name}, held + 1
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

    def _over_rows(self, structure: Structure, rng: Random, chance: float) -> Hardened | None:
        """A task over new rows; a workflow's must be escalated in a fixed share of cases.

        Chance decides once for all structures that are tried: what must be escalated is found more easily.
        """
        problem = self.blueprint.problem(structure)
        if may_escalate(problem) and chance < _ESCALATED_SHARE:
            found = next(self._draws(structure, problem, rng, escalated=True), None)
            if found is not None:
                return found
        return self._with_sibling(structure, problem, rng)

    def _with_sibling(
        self, structure: Structure, problem: Problem, rng: Random, most: int = _DRAWS
    ) -> Hardened | None:
        """A task over rows that allow a sibling, if some of the first draws do."""
        first = None
        for found in islice(self._draws(structure, problem, rng, most=most), _WITH_SIBLING):
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
        lost, feasible = 0, self._feasible(problem, rng)
        for draw in range(most):
            go_on()
            feasible = feasible or draw >= min(_TWIN_DRAWS, most // 2)
            try:
                tables = self.blueprint.draw_tables(structure, rng)
            except TooFewRowsError:  # by chance, unless it happens every time
                lost += 1
                if lost == most:
                    raise
                continue
            before = self._failed().copy()
            bound = self._tuned(problem, tables, rng, escalated=escalated, feasible=feasible)
            if bound is not None:
                yield Hardened(bound, tables)
            elif self._explains:
                why = self._failed() - before
                self._lost[next((one for one, _ in why.most_common(1)), "")] += 1

    def _feasible(self, problem: Problem, rng: Random) -> bool:
        """Whether the next task of a problem shall have an answer."""
        return problem.giving_way is None or rng.random() >= _INFEASIBLE_SHARE

    def sibling(self, problem: Problem, tables: Tables, rng: Random) -> Problem | None:
        """Another question about the same rows, with the same tools and policy; None if there is none."""
        if isinstance(problem.goal, Reach):
            fixed = {name: problem.params[name] for name in self._of_policy(problem)}
            kinds = [True, False] if escalates(problem, rng) else [False]
            tried = (
                self._tuned(
                    problem, tables, rng, fixed=fixed, escalated=kind, other_than=problem.params
                )
                for kind in kinds
            )
            return next((one for one in tried if one is not None), None)
        structure = self.blueprint.structure_of(problem)
        for _ in range(_CHOICES):
            other = self.blueprint.problem(self.blueprint.other(structure, rng))
            if other.access != problem.access:
                continue
            feasible = self._feasible(other, rng)
            found = self._tuned(other, tables, rng, feasible=feasible)
            if found is not None and identity(found) != identity(problem):
                return found
        return None

    def _tuned(
        self, problem: Problem, tables: Tables, rng: Random, *,
        fixed: Params | None = None, escalated: bool = False, other_than: Params | None = None,
        feasible: bool = True,
    ) -> Problem | None:  # fmt: skip
        """``problem`` with parameters for ``tables``; None if none of those tried will do.

        Args:
            problem: as ``Blueprint.problem`` states it; its parameters are replaced.
            tables: the rows.
            rng: the source of chance.
            fixed: parameters that must keep these values.
            escalated: of a workflow: whether the request must be escalated.
            other_than: of a workflow: the parameters of a request that must not come again.
            feasible: whether some answer must keep all rules, or none may.
        """
        if self._analysis is None or self._stated is not problem:
            self._stated = problem
            best = isinstance(problem.goal, Optimise)
            self._analysis = Analysis(_bounded(problem), self.blueprint, self._explains, best)
        task = OpenTask(self._analysis, tables, rng, dict(fixed or {}))
        if isinstance(problem.goal, Reach):
            params = WorkflowTuner(task).params(escalated=escalated, other_than=other_than or {})
        elif isinstance(problem.goal, Equals):
            params = _question_params(task, problem.goal.query)
        else:
            tuner = AnswerTuner(task)
            params = tuner.params()
            rule = problem.giving_way
            if params is not None and rule is not None and feasible:
                params[NEAREST] = params[str(rule.gives_way)]
            elif params is not None and rule is not None:
                params = tuner.tight.past(params)
        return None if params is None else problem.model_copy(update={"params": params})

    def _of_policy(self, problem: Problem) -> list[str]:
        """Parameters that the policy states, and the day on which it is read."""
        clauses = [clause for clause in problem.clauses if clause.source == "policy"]
        stated = {name for clause in clauses for name in params_of(clause.expr)}
        if isinstance(problem.goal, Reach) and problem.goal.escalate_text_key:
            sentence = self.lexicon.phrase(problem.goal.escalate_text_key).sentence
            stated |= sentence.stated(problem.fields)
        return sorted(stated | ({"today"} & set(problem.params)))


def escalates(problem: Problem, rng: Random) -> bool:
    """Draw whether a request must be escalated; never where the task's rules don't say when."""
    return may_escalate(problem) and rng.random() < _ESCALATED_SHARE


def may_escalate(problem: Problem) -> bool:
    """Whether some requests of a task must be escalated."""
    return isinstance(problem.goal, Reach) and problem.goal.escalate_when is not None


def _bounded(problem: Problem) -> Problem:
    """``problem`` with the best value as a bound that a rule states: that is how the bound is found."""
    if not isinstance(problem.goal, Optimise):
        return strict(problem) if problem.giving_way else problem
    clauses = (*problem.clauses, best_rule(problem.goal))
    return problem.model_copy(update={"clauses": clauses, "goal": Satisfy()})


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
    """Choose for each edge a bound that some rows keep and others break."""
    found: Params = {}
    for name, edge in task.edges.items():
        other = other_side(edge, name)
        assert isinstance(other, Get)
        values = [row[other.column] for row in task.tables[other.relation].values()]
        step = task.analysis.domains[name].options.get("step", 1)
        if step != 1:
            values = [v // step if isinstance(v, int) else v for v in values]
        column = bounds(edge, name, values, task.rng, clock=task.analysis.clock(name))
        value = task.rng.choice(column) if column else None
        found[name] = value * step if step != 1 and value is not None else value
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


MAX_JSON = 1_000_000
"""Characters of a page as JSON: that of a page of ``MAX_PAGE`` bytes of TOML is shorter."""


@lru_cache(maxsize=64)
def tasks_from(text: str) -> Tasks:
    """Read a page, a JSON text, into its ``Tasks``; kept, since reading takes a while.

    Raises:
        ConfigError: if the text is no page.
    """
    if len(text) > MAX_JSON:
        raise ConfigError(f"the page is longer than {MAX_JSON} characters", "no page is")
    try:
        return Tasks(Domain.model_validate_json(text))
    except ValidationError as error:
        raise page_error(error, text) from None

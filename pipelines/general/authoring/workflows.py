"""Parameters of workflows: a request that can be met, under a policy each rule of which forbids something.

An effect wants something of all rows that its query gives. The policy's rules are conditions of that
query; the rest of it says which rows the request is about. On those rows each rule is a column of true,
false and unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from random import Random
from typing import Any, NamedTuple

from envgen.core import ir
from envgen.pipelines.general.authoring.analysis import OpenTask, Params, Wish, one_best
from envgen.pipelines.general.authoring.edges import bounds, nearest, other_side
from envgen.pipelines.general.difficulty.plans import WorkflowGame
from envgen.pipelines.general.semantics.evaluator import Closure
from envgen.pipelines.general.semantics.rewrite import (
    conjuncts,
    free_names,
    is_joint,
    params_of,
    told,
    written,
)

_COMBINATIONS = 4_000
"""Choices of bounds tried for one request."""
_MOST_REQUESTS = 50_000
"""Choices of values for several parameters: their number multiplies."""
_MOST_JOINT = 60
"""Bounds of the plain rules under which bounds of the joint ones are sought."""
_MOST_ROWS = 12
"""Rows that one effect is about: random walks have a state for each subset of them."""


class WorkflowTuner:
    """Tunes one workflow over given rows."""

    def __init__(self, task: OpenTask) -> None:
        self.task = task
        goal = task.problem.goal
        assert isinstance(goal, ir.Reach)
        self.goal = goal
        self.wishes = task.analysis.wishes
        self.frame = task.compiler.frame()
        self.measures: dict[tuple[Any, ...], list[Any]] = {}
        """By wish, edge, rows and parameters: what the edge bounds, of each row."""

    def params(self, *, escalated: bool, other_than: Params) -> Params | None:
        """Parameters of a request that can be met, or must be ``escalated``; None if these rows hold none.

        ``other_than`` are those of a request that must not come again; empty: any will do.
        """
        for request in self._requests():
            if other_than and request.items() <= other_than.items():
                continue
            if self._holds(self.goal.escalate_when, request) is not escalated:
                continue
            asked = [self._rows(wish, request) for wish in self.wishes]
            if not self._may_fit(asked):
                continue
            found = self._bound(request, asked)
            if found is not None and self._one_told(found):
                if escalated or self._withstands(found):
                    return found
        return None

    def _one_told(self, params: Params) -> bool:
        """Whether each row that the answer must name is the only best one."""
        self.frame.params = params
        parts = [told(clause.expr) for clause in self.task.problem.clauses]
        queries = [part[1] for part in parts if part and isinstance(part[1], ir.Query)]
        return all(one_best(query, self.task.compiler, self.frame) for query in queries)

    def _withstands(self, params: Params) -> bool:
        """Whether players that decide row by row fail, where a rule is about several rows together."""
        if not self.task.analysis.coupled:
            return True
        problem = self.task.problem.model_copy(update={"params": params})
        game = WorkflowGame(problem, self.task.tables)
        for play in (game.first_row, game.greedy, game.first_fit):
            if game.passes(play()):
                self.task.analysis.failed[
                    f"{play.__name__} solves it: a joint rule decides nothing"
                ] += 1
                return False
        return True

    def _may_fit(self, asked: list[list[str]]) -> bool:
        """Whether each wish is about enough rows, and not too many."""
        for wish, rows in zip(self.wishes, asked, strict=True):
            if not _may_fit(wish, rows):
                self.task.analysis.failed[_too_few(wish, len(rows))] += 1
                return False
        return True

    # --- requests ------------------------------------------------------------------------------------

    def _requests(self) -> list[Params]:
        """List the requests: every choice of the parameters that select rows, in random order."""
        task = self.task
        fixed = dict(task.fixed)
        keys = []
        for name in task.names:
            if name in fixed or name in task.edges:
                continue
            if task.values(name, fixed) is None:
                fixed[name] = task.draw(name, fixed)
            elif any(name in params_of(part) for part in self._selecting()):
                keys.append(name)
        found = [fixed]
        for name in keys:
            more = ({**one, name: v} for one in found for v in task.values(name, one) or ())
            found = list(islice(more, _MOST_REQUESTS))
        task.rng.shuffle(found)
        return found

    def _selecting(self) -> Iterator[ir.Node]:
        yield from (wish.asked for wish in self.wishes)
        if self.goal.escalate_when is not None:
            yield self.goal.escalate_when

    def _holds(self, test: ir.Node | None, params: Params) -> bool:
        if test is None:
            return False
        self.frame.params = params
        return self.task.compiler.compile(test)(self.frame) is True

    def _rows(self, wish: Wish, params: Params) -> list[str]:
        """The rows that the request is about and that some tool would take."""
        self.frame.params = params
        rows = list(self.task.compiler.compile(wish.asked)(self.frame))
        taken = self._writable(wish, rows)
        return [row for at, row in enumerate(rows) if taken >> at & 1]

    # --- bounds --------------------------------------------------------------------------------------

    def _bound(self, request: Params, asked: list[list[str]]) -> Params | None:
        """Bounds under which every wish is met by some rows and each of its rules alone forbids one."""
        params, columns = dict(request), []
        for wish, rows in zip(self.wishes, asked, strict=True):
            chosen = self._chosen(wish, rows, params)
            if chosen is None:
                rules = ", ".join(wish.rules)
                why = f"among the rows of {wish.id!r}, one of its rules forbids none alone: {rules}"
                self.task.analysis.failed[why] += 1
                return None
            params |= {name: value for column in chosen for name, value in column.params.items()}
            columns.append(chosen)
        return self._extras(params, asked, columns)

    def _chosen(self, wish: Wish, rows: list[str], params: Params) -> tuple[_Column, ...] | None:
        """One column for each rule such that they fit; what a joint rule says depends on the others'."""
        open_ = [self._columns(wish, rule, rows, params) for rule in wish.plain]
        writable, tried = self._writable(wish, rows), 0
        for columns in _fitting(wish, len(rows), open_, writable, self.task.rng):
            known = params | {n: v for column in columns for n, v in column.params.items()}
            found = self._with_joint(wish, rows, known, columns, writable)
            if found is not None:
                return found
            tried += 1
            if tried == _MOST_JOINT:
                return None
        return None

    def _with_joint(
        self,
        wish: Wish,
        rows: list[str],
        params: Params,
        columns: tuple[_Column, ...],
        writable: int,
    ) -> tuple[_Column, ...] | None:
        """``columns`` with one for each joint rule, in their order, such that all fit."""
        left = wish.joint[len(columns) - len(wish.plain) :]
        if not _fits(wish, len(rows), columns, writable, len(left)):
            return None
        if not left:
            return columns
        granted = _granted(columns, (1 << len(rows)) - 1)
        among = [row for at, row in enumerate(rows) if granted >> at & 1]
        if self._tied(wish, left[0], among, params):
            self.task.analysis.failed[f"rows that the rule {left[0]!r} can't tell apart"] += 1
            return None
        for column in self._columns(wish, left[0], rows, params):
            known = {**params, **column.params}
            found = self._with_joint(wish, rows, known, (*columns, column), writable)
            if found is not None:
                return found
        return None

    def _tied(self, wish: Wish, rule: str, rows: list[str], params: Params) -> bool:
        """Whether a rule's ranks, counts or totals are equal for two rows of one group.

        Rows are of one group if the query that ranks them compares them with equal values, such as
        those of one order. No draw of rows may leave it to a reader who comes first.
        """
        self.frame.params = params
        tables = written(self.task.problem.access)
        compile_node = self.task.compiler.compile
        for part in wish.rules[rule]:
            for side in part.children() if isinstance(part, ir.Cmp) else ():
                if isinstance(side, ir.Query) and is_joint(side, tables) and _orders(side):
                    keys = [*_groups(side), side]
                    values = [self._of_rows(wish, rows, compile_node(key)) for key in keys]
                    if len(set(zip(*values, strict=True))) < len(rows):
                        return True
        return False

    def _columns(self, wish: Wish, rule: str, rows: list[str], params: Params) -> list[_Column]:
        """List a rule's verdicts on the rows, by every choice of its own parameters."""
        parts = wish.rules[rule]
        names = sorted({n for part in parts for n in params_of(part)} - set(params))
        edges = [name for name in names if name in self.task.edges]
        choices: list[Params] = [{}]
        for name in names:
            if name not in edges:
                values = self.task.values(name, params) or []
                more = ({**one, name: value} for one in choices for value in values)
                choices = list(islice(more, _MOST_REQUESTS))
        for name in edges:
            choices = [
                {**one, name: value}
                for one in choices
                for value in self._bounds(wish, name, rows, {**params, **one})
            ]
        columns = [self._column(wish, parts, rows, params, one) for one in choices]
        self.task.rng.shuffle(columns)
        return columns

    def _bounds(self, wish: Wish, name: str, rows: list[str], params: Params) -> list[Any]:
        """Bounds that some rows keep and others break."""
        edge = self.task.edges[name]
        least = self.task.analysis.domains[name].options.get("least")
        clock = self.task.analysis.clock(name)
        values = self._measured(wish, name, rows, params)
        found = bounds(edge, name, values, self.task.rng, clock=clock)
        return [value for value in found if least is None or value >= least]

    def _measured(self, wish: Wish, name: str, rows: list[str], params: Params) -> list[Any]:
        """What an edge bounds, of each row; it does not read the edge itself."""
        measure = other_side(self.task.edges[name], name)
        read = sorted(params_of(measure))
        at = (wish.id, name, tuple(rows), tuple(params.get(param) for param in read))
        if at not in self.measures:
            self.frame.params = params
            self.measures[at] = self._of_rows(wish, rows, self.task.compiler.compile(measure))
        return self.measures[at]

    def _of_rows(self, wish: Wish, rows: list[str], run: Closure) -> list[Any]:
        """Evaluate an expression about a row of the wish for each row."""
        found = []
        for row in rows:
            self.frame.vars = {wish.query.var: row}
            found.append(run(self.frame))
        self.frame.vars = {}
        return found

    def _column(
        self, wish: Wish, parts: tuple[ir.Node, ...], rows: list[str], params: Params, own: Params
    ) -> _Column:
        """Judge the rows by a rule with its own parameters ``own``."""
        self.frame.params = {**params, **own}
        truths = [self._of_rows(wish, rows, self.task.compiler.compile(part)) for part in parts]
        false = unknown = 0
        for at, values in enumerate(zip(*truths, strict=True)):
            if False in values:
                false |= 1 << at
            elif None in values:
                unknown |= 1 << at
        return _Column(own, false, unknown, self._at_edge(wish, rows, {**params, **own}, own))

    def _at_edge(self, wish: Wish, rows: list[str], params: Params, own: Params) -> int:
        """The rows that keep a bound of ``own`` by least; all if it has none."""
        edges = {name: self.task.edges[name] for name in own if name in self.task.edges}
        mask = 0 if edges else (1 << len(rows)) - 1
        for name, edge in edges.items():
            values = self._measured(wish, name, rows, params)
            least = nearest(edge, name, own[name], values)
            for at, value in enumerate(values):
                if value is not None and value == least:
                    mask |= 1 << at
        return mask

    def _writable(self, wish: Wish, rows: list[str]) -> int:
        """The rows that some tool would take, so that a rule about them can be broken by a call."""
        mask = 0
        for access in self.task.problem.access:
            for effect in access.effects:
                if effect.relation != wish.query.relation or not isinstance(effect.key, ir.Arg):
                    continue
                own = frozenset({f"arg:{effect.key.name}"})
                tests = [
                    self.task.compiler.compile(pre.expr)
                    for pre in access.pre
                    if free_names(pre.expr) == own
                ]
                for at, row in enumerate(rows):
                    self.frame.args = {effect.key.name: row}
                    if all(test(self.frame) is True for test in tests):
                        mask |= 1 << at
        return mask

    # --- wishes about one row ------------------------------------------------------------------------

    def _extras(
        self, params: Params, asked: list[list[str]], columns: list[tuple[_Column, ...]]
    ) -> Params | None:
        """Parameters of the wishes about one row: one that the others can spare."""
        task = self.task
        left = [name for name in task.names if name not in params]
        if not left:
            return params
        if len(left) > 1:
            return None
        name = left[0]
        values = task.values(name, params) or []
        task.rng.shuffle(values)
        for value in values:
            found = {**params, name: value}
            spared = all(
                value not in rows or self._spared(wish, rows, chosen, 1 << rows.index(str(value)))
                for wish, rows, chosen in zip(self.wishes, asked, columns, strict=True)
            )
            if spared and self._clear(found):
                return found
        return None

    def _spared(self, wish: Wish, rows: list[str], chosen: tuple[_Column, ...], row: int) -> bool:
        """Whether the wish is not about that row, and its rules still matter without it."""
        granted = _granted(chosen, (1 << len(rows)) - 1)
        return not granted & row and _fits(
            wish, len(rows), chosen, self._writable(wish, rows) & ~row
        )

    def _clear(self, params: Params) -> bool:
        """Whether each query for a best row has one, and its conditions on those rows alone matter."""
        self.frame.params = params
        compiler, frame = self.task.compiler, self.frame
        for query, weaker in self.task.analysis.choices:
            best = compiler.compile(query)(frame)
            if not one_best(query, compiler, frame):
                return False
            if any(compiler.compile(other)(frame) == best for other in weaker):
                return False
        return True


def _may_fit(wish: Wish, rows: list[str]) -> bool:
    """Whether the rows are enough for a wish: some are granted, and each rule alone forbids another."""
    return wish.least + len(wish.rules) <= len(rows) <= _MOST_ROWS


def _too_few(wish: Wish, found: int) -> str:
    rules = len(wish.rules)
    needed = f"{wish.least + rules} to {_MOST_ROWS}: {rules} to forbid"
    return f"{wish.id!r} is about {found} rows and needs {needed}"


class _Column(NamedTuple):
    """The verdicts of one rule on the rows, with one choice of its parameters; a bit for each row."""

    params: Params
    false: int
    unknown: int
    met: int
    """Rows that keep the bound by least; all where there is none."""


def _granted(columns: Sequence[_Column], every: int) -> int:
    """Mask the rows that no rule forbids."""
    for column in columns:
        every &= ~(column.false | column.unknown)
    return every


def _fits(wish: Wish, size: int, columns: Sequence[_Column], writable: int, joint: int = 0) -> bool:
    """Whether enough rows are granted, each bound is kept by least by one, and each rule alone forbids one.

    An unknown value forbids a row, too, but no call can show it. So many ``joint`` rules are still to
    come, and forbid one row each at least.
    """
    granted = _granted(columns, (1 << size) - 1)
    if not wish.least + joint <= granted.bit_count() <= (size if joint else wish.most):
        return False
    for i, column in enumerate(columns):
        others = _granted((*columns[:i], *columns[i + 1 :]), writable)
        if not column.false & others or not column.met & granted:
            return False
    return True


def _fitting(
    wish: Wish, size: int, open_: list[list[_Column]], writable: int, rng: Random
) -> Iterator[tuple[_Column, ...]]:
    """One column for each plain rule such that they fit, in random order."""
    rng.shuffle(open_)
    for columns in islice(product(*open_), _COMBINATIONS):
        if _fits(wish, size, columns, writable, len(wish.joint)):
            yield columns


def _orders(ranked: ir.Query) -> bool:
    """Whether a query compares its rows with the row that it is about: a total of a whole group doesn't.

    All rows of such a group have one total, which leaves nothing open: none of them comes first.
    """
    return any(
        isinstance(part, ir.Cmp) and part.fn not in ("=", "!=")
        and ranked.var in free_names(part) and free_names(part) - {ranked.var}
        for part in conjuncts(ranked.where)
    )  # fmt: skip


def _groups(ranked: ir.Query) -> Iterator[ir.Node]:
    """What a query's row must equal in the row that it ranks: the conditions ``j.x == i.x``."""
    own = ir.Var(name=ranked.var)
    for part in conjuncts(ranked.where):
        if isinstance(part, ir.Cmp) and part.fn == "=":
            for side in (part.left, part.right):
                if own.name not in free_names(side) and free_names(side):
                    yield side

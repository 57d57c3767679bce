"""A problem as variables, domains and constraints: what search and counting work on.

Clauses are split into conjuncts of small scope. Two forms get special treatment: a *link*
(``Get(hotels, hotel_1, city) = city_1``) makes a domain depend on another variable, and a sum compared
with a constant becomes a *linear* constraint of separate terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from math import prod
from typing import Any, Literal

from envgen.core import ir
from envgen.core.ir import Node, Problem, Scalar
from envgen.pipelines.general.semantics.evaluator import Closure, Compiler, Frame, elements
from envgen.pipelines.general.semantics.layout import (
    fill_layout,
    frozen,
    match_layout,
    ordered,
    plain,
)
from envgen.pipelines.general.semantics.rewrite import (
    OPPOSITE,
    conjuncts,
    free_names,
    slots_of,
    summands,
    truth,
)
from envgen.pipelines.general.semantics.slot_values import (
    domain_values,
    element_values,
    fixed_columns,
    linked_columns,
)
from envgen.pipelines.general.semantics.tables import Row, Tables

MAX_TABLE = 5_000
"""A sum over so few assignments is tested as a whole."""


@dataclass
class Link:
    """``child``'s row holds ``parent``'s value: ``by_parent[value]`` lists the child's values."""

    child: int
    parent: int
    relation: str
    column: str
    key_of: dict[Any, Any] = field(default_factory=dict)


@dataclass
class Constraint:
    """``run(frame)`` must be true; ``expr`` is what it was compiled from."""

    scope: tuple[int, ...]
    run: Closure
    expr: Node


@dataclass
class Term:
    """One summand of a linear constraint, an int or unknown."""

    scope: tuple[int, ...]
    run: Closure
    expr: Node


@dataclass
class Linear:
    """The sum of ``terms`` is <= ``bound`` (``exact``: equal to it)."""

    terms: list[Term]
    bound: int
    exact: bool = False

    @property
    def scope(self) -> tuple[int, ...]:
        """All variables of all terms."""
        return tuple(sorted({i for term in self.terms for i in term.scope}))


class Model:
    """Variables (slots, by position) with listed domains, and what must hold between them."""

    def __init__(self, p: Problem, db: Tables, compiler: Compiler | None = None) -> None:
        self.p = p
        self.db = db
        self.compiler = compiler or Compiler(p, db)
        self.frame: Frame = self.compiler.frame()
        self.domains: list[list[Any]] = [domain_values(slot, self.compiler) for slot in p.slots]
        self.constraints: list[Constraint] = []
        self.linears: list[Linear] = []
        self.links: list[Link] = []
        self.different: set[tuple[int, int]] = set()
        self.feasible = True

    def require(self, expr: Node) -> None:
        """Add a boolean expression that must be true."""
        for part in conjuncts(expr):
            self._add(part)

    def refuse(self, expr: Node) -> None:
        """Add a boolean expression that must not be true: false or unknown."""
        scope = self.scope_of(expr)
        if isinstance(expr, ir.Cmp) and expr.fn in OPPOSITE:
            sides = (expr.left, expr.right)
            large = prod(len(self.domains[i]) for i in scope) > MAX_TABLE and len(scope) > 2
            slots = all(isinstance(side, ir.SlotRef) and side.index is None for side in sides)
            if slots or large:
                self.require(expr.model_copy(update={"fn": OPPOSITE[expr.fn]}))
                return
        run = self.compiler.compile(expr)
        if scope:
            self.constraints.append(Constraint(scope, lambda f: run(f) is not True, expr))
        elif run(self.frame) is True:
            self.feasible = False

    def _add(self, expr: Node) -> None:
        scope = self.scope_of(expr)
        if isinstance(expr, ir.AllDifferent) and len(scope) == len(expr.items) > 1:
            if all(isinstance(item, ir.SlotRef) and item.index is None for item in expr.items):
                self.different |= set(combinations(scope, 2))
                return
        link = self._as_link(expr)
        if link is not None:
            self.links.append(link)
            return
        cells = prod(len(self.domains[i]) for i in scope)
        linear = as_linear(expr, self.compiler) if cells > MAX_TABLE else None
        if linear is not None:
            self.linears.append(linear)
            return
        run = self.compiler.compile(expr)
        if scope:
            self.constraints.append(Constraint(scope, run, expr))
        elif run(self.frame) is not True:
            self.feasible = False

    def scope_of(self, expr: Node) -> tuple[int, ...]:
        """Positions of the slots that ``expr`` reads."""
        return tuple(sorted(self.compiler.position[name] for name in slots_of(expr)))

    def _as_link(self, expr: Node) -> Link | None:
        if not isinstance(expr, ir.Cmp) or expr.fn != "=":
            return None
        for get, ref in ((expr.left, expr.right), (expr.right, expr.left)):
            if not (isinstance(get, ir.Get) and isinstance(get.entity, ir.SlotRef)):
                continue
            if not isinstance(ref, ir.SlotRef) or ref.index or get.entity.index:
                continue
            child, parent = (self.compiler.position[s.slot] for s in (get.entity, ref))
            if child != parent and self._is_entity(child) and self._is_entity(parent):
                return self.link(child, parent, get.relation, get.column)
        return None

    def _is_entity(self, position: int) -> bool:
        return self.p.slots[position].kind in ("entity", "value")

    def link(self, child: int, parent: int, relation: str, column: str) -> Link:
        """A link with its index over the child's present values."""
        rows = self.db.get(relation, {})
        keys = {v: rows[v].get(column) for v in self.domains[child] if v in rows}
        return Link(child, parent, relation, column, keys)

    def require_domains(self) -> None:
        """Condition each slot on constants and earlier slots, as its domain says."""
        for child, slot in enumerate(self.p.slots):
            fixed = fixed_columns(self.p, slot)
            if fixed and isinstance(slot.domain, ir.Query):
                rows = self.db.get(slot.domain.relation, {})
                fits = {k for k, row in rows.items() if _has(row, fixed)}
                self.domains[child] = [
                    v
                    for v in self.domains[child]
                    if fits.issuperset([v] if isinstance(v, str) else v)
                ]
            for column, parent in linked_columns(self.p, slot).items():
                assert isinstance(slot.domain, ir.Query)
                parent_at = self.compiler.position[parent]
                self.links.append(self.link(child, parent_at, slot.domain.relation, column))

    def simplify(self) -> None:
        """Filter domains by unary constraints, drop what is implied. Call it once, at the end."""
        self._drop_repeated_links()
        self._drop_implied_pairs()
        for pair in sorted(self.different):
            self.constraints.append(_pair(self, *pair))
        binary = []
        for constraint in self.constraints:
            if len(constraint.scope) == 1:
                self._filter(constraint.scope[0], partial(_is_true, constraint))
            else:
                binary.append(constraint)
        self.constraints = binary
        self._simplify_linears()
        for link in self.links:
            parents = set(self.domains[link.parent])
            keep = [v for v in self.domains[link.child] if link.key_of.get(v) in parents]
            self.domains[link.child] = keep
            used = {link.key_of[v] for v in keep}
            self.domains[link.parent] = [v for v in self.domains[link.parent] if v in used]
        self.feasible = self.feasible and all(self.domains)

    def _filter(self, position: int, keep: Callable[[Frame], bool]) -> None:
        kept = []
        for value in self.domains[position]:
            self.frame.slots[position] = value
            if keep(self.frame):
                kept.append(value)
        self.domains[position] = kept

    def _drop_repeated_links(self) -> None:
        seen = {(link.child, link.parent, link.column): link for link in self.links}
        self.links = list(seen.values())

    def _drop_implied_pairs(self) -> None:
        """Drop "hotel 1 is not hotel 2" where both lie in cities that must differ."""
        parents: dict[tuple[int, str, str], set[int]] = {}
        for link in self.links:
            parents.setdefault((link.child, link.relation, link.column), set()).add(link.parent)
        implied = set()
        for a, b in self.different:
            for (child, relation, column), above in parents.items():
                if child == a:
                    others = parents.get((b, relation, column), set())
                    pairs = {(min(x, y), max(x, y)) for x in above for y in others if x != y}
                    if pairs & self.different:
                        implied.add((a, b))
        self.different -= implied

    def _simplify_linears(self) -> None:
        kept = []
        for linear in self.linears:
            for term in linear.terms:
                if len(term.scope) == 1:
                    self._filter(term.scope[0], partial(_is_known, term))
                else:
                    known = ir.Cmp(fn="=", left=term.expr, right=term.expr)
                    run = self.compiler.compile(known)
                    self.constraints.append(Constraint(term.scope, run, known))
            kept.append(linear)
        self.linears = kept

    def answer(self, values: Sequence[Any]) -> Any:
        """The submission with these (hashable) slot values."""
        named = {s.name: plain(s, v) for s, v in zip(self.p.slots, values, strict=True)}
        return fill_layout(self.p.layout, named)

    def values_of(self, answer: Any) -> list[Any] | None:
        """The hashable slot values of a submission, None if it doesn't fit the layout."""
        found = match_layout(self.p.layout, answer)
        if found is None or any(slot.name not in found for slot in self.p.slots):
            return None
        return [frozen(slot, found[slot.name]) for slot in self.p.slots]


def _has(row: Row, values: dict[str, Scalar]) -> bool:
    return all(value is not None and row.get(c) == value for c, value in values.items())


def _is_true(constraint: Constraint, frame: Frame) -> bool:
    return constraint.run(frame) is True


def _is_known(term: Term, frame: Frame) -> bool:
    return term.run(frame) is not None


def _pair(model: Model, a: int, b: int) -> Constraint:
    names = [model.p.slots[i].name for i in (a, b)]
    left, right = (ir.SlotRef(slot=name) for name in names)
    expr = ir.Cmp(fn="!=", left=left, right=right)
    return Constraint((a, b), model.compiler.compile(expr), expr)


def build_model(
    p: Problem,
    db: Tables,
    *,
    space: Literal["conditioned", "unconditioned"] = "unconditioned",
    refused: Iterable[Node] = (),
    without: str | None = None,
    clauses: bool = True,
    compiler: Compiler | None = None,
) -> Model:
    """The model of ``p`` over ``db``.

    Args:
        p: the problem.
        db: its rows.
        space: ``conditioned`` also requires what slot domains say about earlier slots.
        refused: expressions that must not be true.
        without: id of a clause (or ``goal``) to leave out.
        clauses: False leaves out all clauses and the goal: the bare space.
        compiler: shared closures of the same problem and database.
    """
    model = Model(p, db, compiler)
    if space == "conditioned":
        model.require_domains()
    if clauses:
        for clause in p.clauses:
            if clause.id != without:
                model.require(truth(clause))
        if without != "goal":
            _require_goal(model)
    for expr in refused:
        model.refuse(expr)
    model.simplify()
    return model


def _require_goal(model: Model) -> None:
    goal = model.p.goal
    if isinstance(goal, ir.Equals) and not slots_of(goal.query):
        target = equals_target(model.p, goal, model.compiler)
        position = model.compiler.position[goal.slot]
        model.domains[position] = [v for v in model.domains[position] if v == target]
        return
    expr = goal_truth(model.p, model.compiler)
    if expr is not None:
        model.require(expr)


def goal_truth(p: Problem, compiler: Compiler) -> Node | None:
    """What the goal asks of the answer, as an expression; None where it asks nothing."""
    goal = p.goal
    if isinstance(goal, ir.Optimise):
        if goal.sense == "min":
            bound = ir.Const(value=goal.bound + goal.eps)
            return ir.Cmp(fn="<=", left=goal.expr, right=bound)
        return ir.Cmp(fn=">=", left=goal.expr, right=ir.Const(value=goal.bound - goal.eps))
    if not isinstance(goal, ir.Equals):
        return None
    slot = ir.SlotRef(slot=goal.slot)
    if not slots_of(goal.query):
        target = equals_target(p, goal, compiler)
        return ir.Cmp(fn="=", left=slot, right=ir.Const(value=target))
    if p.slot(goal.slot).kind != "set":
        return ir.Cmp(fn="=", left=slot, right=goal.query)
    item = ir.Var(name="goal_member")
    there = ir.Any(var="other", over=goal.query, body=_same(item, ir.Var(name="other")))
    inside = ir.Any(var="other", over=slot, body=_same(item, ir.Var(name="other")))
    return ir.And(
        items=(
            ir.All(var=item.name, over=slot, body=there),
            ir.All(var=item.name, over=goal.query, body=inside),
        )
    )


def _same(left: ir.Var, right: ir.Var) -> ir.Cmp:
    return ir.Cmp(fn="=", left=left, right=right)


def equals_target(p: Problem, goal: ir.Equals, compiler: Compiler) -> Any:
    """The value that an Equals goal asks for, in hashable form; None if unknown."""
    slot, frame = p.slot(goal.slot), compiler.frame()
    if slot.kind == "set":
        rows = elements(goal.query.model_copy(update={"agg": "none"}), compiler)
        return ordered(set(rows(frame)))
    return compiler.compile(goal.query)(frame)


def right_sets(p: Problem, compiler: Compiler) -> list[tuple[Any, ...]] | None:
    """What an Equals goal over a lone set slot accepts, one set or none, though sets be too many to list.

    None for any other problem.
    """
    if not isinstance(p.goal, ir.Equals) or p.clauses or [slot.kind for slot in p.slots] != ["set"]:
        return None
    target, slot = equals_target(p, p.goal, compiler), p.slots[0]
    fits = set(target) <= set(element_values(slot, compiler))
    return [target] if fits and (slot.length is None or len(target) <= slot.length) else []


def as_linear(expr: Node, compiler: Compiler) -> Linear | None:
    """``expr`` as a sum of separate terms against a constant, None if it is nothing of the kind."""
    if not isinstance(expr, ir.Cmp) or expr.fn in ("!=", "in"):
        return None
    parts: list[tuple[int, Node]] = [*summands(expr.left, 1), *summands(expr.right, -1)]
    if len(parts) < 3 or any(free_names(part) for _, part in parts):
        return None
    constant, groups = 0, dict[tuple[int, ...], list[tuple[int, Node]]]()
    for sign, part in parts:
        scope = tuple(sorted(compiler.position[name] for name in slots_of(part)))
        if scope:
            groups.setdefault(scope, []).append((sign, part))
            continue
        value = compiler.compile(part)(compiler.frame())
        if type(value) is not int:
            return None
        constant += sign * value
    if len(groups) < 2 or max(map(len, groups)) > 2:
        return None
    flip = -1 if expr.fn in (">", ">=") else 1
    terms = [_term(scope, [(flip * s, e) for s, e in g], compiler) for scope, g in groups.items()]
    bound = -flip * constant - (1 if expr.fn in ("<", ">") else 0)
    return Linear(terms, bound, expr.fn == "=")


def _term(scope: tuple[int, ...], parts: list[tuple[int, Node]], compiler: Compiler) -> Term:
    total: Node | None = None
    for sign, part in parts:
        signed = part if sign > 0 else ir.Arith(fn="*", left=part, right=ir.Const(value=-1))
        total = signed if total is None else ir.Arith(fn="+", left=total, right=signed)
    assert total is not None
    return Term(scope, compiler.compile(total), total)

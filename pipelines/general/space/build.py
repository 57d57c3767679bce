"""From a problem to a ``Model``: clauses in parts of small scope, links, sums.

Two forms get special treatment, for without it counting and search would be hopeless at real sizes. A
*link* (``Get(hotels, hotel_1, city) = city_1``) makes a domain depend on another variable, so that only
the hotels of a city are visited. A sum of many variables that is compared with a constant becomes a
*linear* constraint of separate terms, because a table of it would have a cell for each combination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from envgen.core import ir
from envgen.core.ir import Node, Problem, Scalar, Slot
from envgen.pipelines.general.semantics.evaluate import domain_values
from envgen.pipelines.general.semantics.evaluator import Compiler, elements
from envgen.pipelines.general.semantics.layout import ordered
from envgen.pipelines.general.semantics.rewrite import (
    OPPOSITE,
    column_equals,
    compares_slots,
    conjuncts,
    free_names,
    implied_pairs,
    interned,
    is_slot,
    optimal,
    pairwise,
    slots_of,
    summands,
    truth,
)
from envgen.pipelines.general.semantics.tables import Row, Tables
from envgen.pipelines.general.space.model import Linear, Link, Model, SlotPart

MAX_TABLE = 5_000
"""A sum over so few assignments is tested as a whole."""
Space = Literal["conditioned", "unconditioned"]


def bare_model(p: Problem, db: Tables, compiler: Compiler | None = None) -> Model:
    """Every slot with all values of its type, and nothing that must hold.

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    compiler = compiler or Compiler(p, db)
    return Model(p, compiler, [domain_values(slot, compiler) for slot in p.slots])


def build_model(
    p: Problem,
    db: Tables,
    *,
    space: Space = "unconditioned",
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

    Raises:
        NotEnumerableError: if the values of a slot can't be listed.
    """
    builder = _Builder(bare_model(p, db, compiler))
    if space == "conditioned":
        builder.require_domains()
    if clauses:
        for clause in p.clauses:
            if clause.id != without:
                builder.require(truth(clause))
        goal = None if without == "goal" else goal_truth(p, builder.model.compiler)
        if goal is not None:
            builder.require(goal)
    for expr in refused:
        builder.refuse(expr)
    return builder.finished()


class _Builder:
    """Adds to a model; ``finished`` filters its domains and drops what is implied."""

    def __init__(self, model: Model) -> None:
        self.model, self.compiler = model, model.compiler
        self.different: set[frozenset[int]] = set()
        self.links: dict[tuple[int, int, str], Link] = {}

    def require(self, expr: Node) -> None:
        """Add a boolean expression that must be true."""
        for part in pairwise(expr):
            scope = self.model.scope_of(part)
            if compares_slots(part, "!="):
                self.different.add(frozenset(scope))
                continue
            if self._linked(part):
                continue
            large = self.model.size(scope) > MAX_TABLE
            linear = as_linear(part, self.compiler) if large else None
            if linear is not None:
                self.model.linears.append(linear)
            else:
                self._constrain(SlotPart(scope, self.compiler.compile(part), part))

    def refuse(self, expr: Node) -> None:
        """Add a boolean expression that must not be true: false or unknown."""
        scope = self.model.scope_of(expr)
        if isinstance(expr, ir.Cmp) and expr.fn in OPPOSITE:
            # The opposite can be split into links and terms; being not true can't.
            large = self.model.size(scope) > MAX_TABLE and len(scope) > 2
            if large or (is_slot(expr.left) and is_slot(expr.right)):
                self.require(expr.model_copy(update={"fn": OPPOSITE[expr.fn]}))
                return
        run = self.compiler.compile(expr)
        self._constrain(SlotPart(scope, lambda f: run(f) is not True, expr))

    def _constrain(self, part: SlotPart) -> None:
        if part.scope:
            self.model.constraints.append(part)
        elif part.run(self.model.frame) is not True:
            self.model.feasible = False

    def _linked(self, expr: Node) -> bool:
        """Whether ``expr`` was taken as a link."""
        if not isinstance(expr, ir.Cmp) or expr.fn != "=":
            return False
        for get, other in ((expr.left, expr.right), (expr.right, expr.left)):
            if isinstance(get, ir.Get) and is_slot(get.entity) and is_slot(other):
                (child,), (parent,) = map(self.model.scope_of, (get.entity, other))
                kinds = {self.model.p.slots[i].kind for i in (child, parent)}
                if child != parent and kinds <= {"entity", "value"}:
                    self._link(child, parent, get.relation, get.column)
                    return True
        return False

    def _link(self, child: int, parent: int, relation: str, column: str) -> None:
        rows = self.compiler.db.get(relation, {})
        of = _common if self.model.p.slots[child].kind == "set" else _cell
        key_of = {v: of(v, rows, column) for v in self.model.domains[child]}
        self.links[child, parent, column] = Link(child, parent, relation, column, key_of)

    def require_domains(self) -> None:
        """Condition each slot on constants and earlier slots, as its domain says."""
        p, position = self.model.p, self.compiler.position
        for child, slot in enumerate(p.slots):
            fixed = fixed_columns(p, slot)
            if fixed and isinstance(slot.domain, ir.Query):
                rows = self.compiler.db.get(slot.domain.relation, {}).items()
                known = None not in fixed.values()  # nothing equals an unknown constant
                fits = {k for k, row in rows if known and fixed.items() <= row.items()}
                self.model.domains[child] = [
                    v
                    for v in self.model.domains[child]
                    if fits.issuperset([v] if isinstance(v, str) else v)
                ]
            for column, parent in linked_columns(p, slot).items():
                assert isinstance(slot.domain, ir.Query)
                self._link(child, position[parent], slot.domain.relation, column)

    def finished(self) -> Model:
        """The model, with domains that hold no value which alone breaks something."""
        model = self.model
        above = {(x.child, f"{x.relation}.{x.column}"): x.parent for x in self.links.values()}
        # Without its pair a hotel is tied to its own city only, which keeps eliminations small.
        for a, b in sorted(map(sorted, self.different - implied_pairs(self.different, above))):
            left, right = (ir.SlotRef(slot=model.p.slots[i].name) for i in (a, b))
            expr = interned(ir.Cmp(fn="!=", left=left, right=right))
            model.constraints.append(SlotPart((a, b), self.compiler.compile(expr), expr))
        for constraint in model.constraints:
            if len(constraint.scope) == 1:
                self._filter(constraint, lambda held: held is True)
        model.constraints = [c for c in model.constraints if len(c.scope) > 1]
        for term in (term for linear in model.linears for term in linear.terms):
            if len(term.scope) == 1:
                self._filter(term, lambda value: value is not None)
            else:  # an unknown term breaks the sum
                known = interned(ir.Cmp(fn="=", left=term.expr, right=term.expr))
                model.constraints.append(SlotPart(term.scope, self.compiler.compile(known), known))
        model.links = list(self.links.values())
        for link in model.links:
            parents = set(model.domains[link.parent])
            keep = [v for v in model.domains[link.child] if link.key_of.get(v) in parents]
            used = {link.key_of[v] for v in keep}
            model.domains[link.child] = keep
            model.domains[link.parent] = [v for v in model.domains[link.parent] if v in used]
        model.feasible = model.feasible and all(model.domains)
        return model

    def _filter(self, part: SlotPart, keeps: Callable[[Any], bool]) -> None:
        """Keep the values of a part's one variable at which the part's value is one to keep."""
        (i,), frame, kept = part.scope, self.model.frame, []
        for value in self.model.domains[i]:
            frame.slots[i] = value
            if keeps(part.run(frame)):
                kept.append(value)
        self.model.domains[i] = kept


def _cell(key: Any, rows: dict[str, Row], column: str) -> Any:
    return rows[key].get(column) if key in rows else None


def _common(keys: Sequence[Any], rows: dict[str, Row], column: str) -> Any:
    """What all rows of a set hold in a column; None where they differ."""
    found = {_cell(key, rows, column) for key in keys}
    return found.pop() if len(found) == 1 else None


# --- domains and goals -----------------------------------------------------------------------


def linked_columns(p: Problem, slot: Slot) -> dict[str, str]:
    """By column the earlier slot whose value it must have, for an entity or set slot's domain.

    What an empty set must be like says nothing: a set without ``least`` is conditioned on no slot.
    """
    if slot.kind != "entity" and not (slot.kind == "set" and slot.least):
        return {}
    names = [other.name for other in p.slots]
    earlier = set(names[: names.index(slot.name)])
    return {
        column: side.slot
        for column, side in _equalities(slot)
        if isinstance(side, ir.SlotRef) and side.index is None and side.slot in earlier
    }


def fixed_columns(p: Problem, slot: Slot) -> dict[str, Scalar]:
    """By column the constant that it must have, for the rows of an entity or set slot's domain."""
    found: dict[str, Scalar] = {}
    if slot.kind not in ("entity", "set"):
        return found
    for column, side in _equalities(slot):
        if isinstance(side, ir.Param):
            found[column] = p.params.get(side.name)
        elif isinstance(side, ir.Const) and not isinstance(side.value, tuple):
            found[column] = side.value
    return found


def _equalities(slot: Slot) -> Iterator[tuple[str, Node]]:
    """(column, other side) for each conjunct ``column = ...`` of the domain's ``where``."""
    if isinstance(slot.domain, ir.Query):
        for part in conjuncts(slot.domain.where):
            column, side = column_equals(part, slot.domain)
            if column is not None and side is not None:
                yield column, side


def goal_truth(p: Problem, compiler: Compiler) -> Node | None:
    """What the goal asks of the answer, as an expression; None where it asks nothing."""
    goal = p.goal
    if isinstance(goal, ir.Optimise):
        return optimal(goal)
    if not isinstance(goal, ir.Equals):
        return None
    slot, target = p.slot(goal.slot), goal.query
    right: Node = target
    if slot.kind == "set":
        if slots_of(target):
            return _same_members(ir.SlotRef(slot=slot.name), target)
        rows = elements(target.model_copy(update={"agg": "none"}), compiler)
        right = ir.Const(value=ordered(set(rows(compiler.frame()))))
    elif not slots_of(target):
        right = ir.Const(value=compiler.compile(target)(compiler.frame()))
    return ir.Cmp(fn="=", left=ir.SlotRef(slot=goal.slot), right=right)


def _same_members(given: ir.SlotRef, wanted: ir.Query) -> Node:
    """That a set holds what a query gives, and nothing else."""
    var = "_same"  # no name of a page
    member, wanted = ir.Var(name=var), wanted.model_copy(update={"agg": "none"})
    inside = ir.All(var=var, over=given, body=ir.Cmp(fn="in", left=member, right=wanted))
    among = ir.All(var=var, over=wanted, body=ir.Cmp(fn="in", left=member, right=given))
    return ir.And(items=(inside, among))


# --- sums ------------------------------------------------------------------------------------


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
    flip = -1 if expr.fn in (">", ">=") else 1  # all sums are bounded from above
    terms = [_term(scope, [(flip * s, e) for s, e in g], compiler) for scope, g in groups.items()]
    bound = -flip * constant - (1 if expr.fn in ("<", ">") else 0)
    return Linear(terms, bound, expr.fn == "=")


def _term(scope: tuple[int, ...], parts: list[tuple[int, Node]], compiler: Compiler) -> SlotPart:
    """The signed sum of expressions that read the same slots."""
    signed = [
        part if sign > 0 else ir.Arith(fn="*", left=part, right=ir.Const(value=-1))
        for sign, part in parts
    ]
    total: Node = signed[0]
    for part in signed[1:]:
        total = ir.Arith(fn="+", left=total, right=part)
    total = interned(total)
    return SlotPart(scope, compiler.compile(total), total)

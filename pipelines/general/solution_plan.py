"""In which order a solution searches: rules split into small ones, slots grouped, tightest group first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from envgen.core import ir
from envgen.core.ir import Clause, Node, Problem, Slot

TRUE = ir.Const(value=True)


@dataclass(frozen=True)
class Rule:
    """A condition over a few slots; ``clause`` is where it comes from."""

    expr: Node
    slots: frozenset[str]
    clause: str


@dataclass(frozen=True)
class Link:
    """``column`` of the row of ``child`` equals ``value``, which reads only ``parents``."""

    child: str
    relation: str
    column: str
    value: Node
    parents: frozenset[str]
    rule: Rule


@dataclass(frozen=True)
class Term:
    """A signed summand that reads ``slots``."""

    sign: int
    expr: Node
    slots: frozenset[str]


@dataclass(frozen=True)
class Linear:
    """``sum of terms`` compared with ``bound`` by ``fn``: <, <=, >, >=."""

    clause: str
    terms: tuple[Term, ...]
    fn: str
    bound: tuple[tuple[int, Node], ...]

    @property
    def slots(self) -> frozenset[str]:
        """All slots of all terms."""
        return frozenset().union(*(term.slots for term in self.terms))


@dataclass
class Plan:
    """Everything a search needs to know of a problem."""

    order: list[Slot]
    rules: list[Rule] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    linears: list[Linear] = field(default_factory=list)


def slots_of(node: Node) -> frozenset[str]:
    """Names of the slots that an expression reads."""
    return frozenset(inner.slot for inner in node.walk() if isinstance(inner, ir.SlotRef))


def make_plan(p: Problem, extra: Iterable[Node] = ()) -> Plan:
    """Split the clauses of ``p`` (and ``extra``) and order its slots."""
    plan = Plan(order=[])
    different: list[Rule] = []
    for clause_id, expr in _conditions(p, extra):
        for part in split(expr):
            rule = Rule(part, slots_of(part), clause_id)
            if isinstance(part, ir.Cmp) and part.fn == "!=" and _is_pair(part):
                different.append(rule)
            elif (link := _as_link(rule, p)) is not None:
                plan.links.append(link)
            elif (linear := _as_linear(rule)) is not None:
                plan.linears.append(linear)
            else:
                plan.rules.append(rule)
    plan.rules += _not_implied(different, plan.links)
    plan.order = _order(p, plan)
    return plan


def _conditions(p: Problem, extra: Iterable[Node]) -> Iterator[tuple[str, Node]]:
    for clause in p.clauses:
        yield clause.id, condition(clause)
    for node in extra:
        yield "goal", node


def condition(clause: Clause) -> Node:
    """A clause as one expression: true iff the clause holds."""
    if clause.guard is None:
        return clause.expr
    return ir.If(test=clause.guard, then=clause.expr, other=TRUE)


def split(expr: Node) -> Iterator[Node]:
    """Expressions that are all true iff ``expr`` is."""
    if isinstance(expr, ir.And):
        for item in expr.items:
            yield from split(item)
    elif isinstance(expr, ir.AllDifferent) and len(expr.items) > 1:
        for a, b in combinations(expr.items, 2):
            yield ir.Cmp(fn="!=", left=a, right=b)
    elif isinstance(expr, ir.NoOverlap):
        for i, j in combinations(range(len(expr.intervals)), 2):
            places = (expr.resources[i], expr.resources[j]) if expr.resources else ()
            spans = (expr.intervals[i], expr.intervals[j])
            yield ir.NoOverlap(intervals=spans, resources=places)
    elif isinstance(expr, ir.If) and expr.other == TRUE:
        for part in split(expr.then):
            yield expr.model_copy(update={"then": part})
    elif expr != TRUE:
        yield expr


def _is_pair(node: ir.Cmp) -> bool:
    sides = (node.left, node.right)
    return all(isinstance(side, ir.SlotRef) and side.index is None for side in sides)


def _as_link(rule: Rule, p: Problem) -> Link | None:
    expr = rule.expr
    if not isinstance(expr, ir.Cmp) or expr.fn != "=":
        return None
    for get, value in ((expr.left, expr.right), (expr.right, expr.left)):
        if not isinstance(get, ir.Get) or not isinstance(get.entity, ir.SlotRef):
            continue
        child, parents = get.entity.slot, slots_of(value)
        slot = p.slot(child)
        if slot.kind != "entity" or not isinstance(slot.domain, ir.Query) or child in parents:
            continue
        if slot.domain.relation == get.relation and get.column != p.relation(get.relation).key:
            return Link(child, get.relation, get.column, value, parents, rule)
    return None


def _as_linear(rule: Rule) -> Linear | None:
    expr = rule.expr
    if not isinstance(expr, ir.Cmp) or expr.fn not in ("<", "<=", ">", ">="):
        return None
    parts = [*_summands(expr.left, 1), *_summands(expr.right, -1)]
    terms = tuple(Term(sign, node, slots_of(node)) for sign, node in parts if slots_of(node))
    if len({term.slots for term in terms}) < 2:
        return None
    bound = tuple((-sign, node) for sign, node in parts if not slots_of(node))
    return Linear(rule.clause, terms, expr.fn, bound)


def _summands(expr: Node, sign: int) -> Iterator[tuple[int, Node]]:
    if isinstance(expr, ir.Arith) and expr.fn in ("+", "-"):
        yield from _summands(expr.left, sign)
        yield from _summands(expr.right, sign if expr.fn == "+" else -sign)
    else:
        yield sign, expr


def _not_implied(different: list[Rule], links: list[Link]) -> list[Rule]:
    """Drop "hotel 1 is not hotel 2" where they lie in cities that must differ."""
    pairs = {rule.slots for rule in different}
    parent: dict[str, set[tuple[str, str]]] = {}
    for link in links:
        if isinstance(link.value, ir.SlotRef) and link.value.index is None:
            parent.setdefault(link.child, set()).add((link.column, link.value.slot))

    def implied(rule: Rule) -> bool:
        a, b = sorted(rule.slots) if len(rule.slots) == 2 else ("", "")
        return any(
            column == other and frozenset((x, y)) in pairs
            for column, x in parent.get(a, ())
            for other, y in parent.get(b, ())
        )

    return [rule for rule in different if not implied(rule)]


# --- order ---------------------------------------------------------------------------------


def _order(p: Problem, plan: Plan) -> list[Slot]:
    """Groups (a city and what must lie in it) by how many rules bind them, then greedily."""
    group = {slot.name: slot.name for slot in p.slots}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for link in plan.links:
        for parent in link.parents:
            group[root(link.child)] = root(parent)
    members: dict[str, list[str]] = {}
    for slot in p.slots:
        members.setdefault(root(slot.name), []).append(slot.name)
    if len(members) == len(p.slots):
        members = {"": [slot.name for slot in p.slots]}

    def tightness(names: list[str]) -> int:
        inside = set(names)
        return sum(len(rule.slots) > 1 and rule.slots <= inside for rule in plan.rules)

    order: list[str] = []
    for names in sorted(members.values(), key=tightness, reverse=True):
        order += _greedy(names, order, plan)
    return [p.slot(name) for name in order]


def _greedy(names: list[str], before: list[str], plan: Plan) -> list[str]:
    """Parents first; then always the slot that lets most rules be checked."""
    parents: dict[str, set[str]] = {name: set() for name in names}
    for link in plan.links:
        if link.child in parents:
            parents[link.child] |= link.parents & set(names)
    done, left, order = set(before), list(names), []

    def gain(name: str) -> tuple[int, int]:
        now = done | {name}
        fresh = sum(name in rule.slots and rule.slots <= now for rule in plan.rules)
        return fresh, sum(name in rule.slots for rule in plan.rules)

    while left:
        ready = [name for name in left if parents[name] <= done] or left
        best = max(ready, key=lambda name: (*gain(name), -names.index(name)))
        order.append(best)
        done.add(best)
        left.remove(best)
    return order

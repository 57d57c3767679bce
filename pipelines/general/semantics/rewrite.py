"""Expressions taken apart: what they refer to, conjuncts, summands, a clause as one expression."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache, wraps
from itertools import combinations
from typing import TypeVar

from envgen.core import ir
from envgen.core.ir import NEAREST, Clause, Found, Goal, Node, Problem

Name = TypeVar("Name", str, int)
"""How a slot is called: by name or by position."""
TRUE = ir.Const(value=True)
NO_LAG = ir.Const(value=0)
OPPOSITE = {"<=": ">", "<": ">=", ">=": "<", ">": "<=", "=": "!=", "!=": "="}
"""Comparisons by their negation (where both sides are known)."""


def kept(find: Callable[[Node], Found]) -> Callable[[Node], Found]:
    """``find`` of a node, asked once of each: nodes never change."""

    @wraps(find)
    def known(expr: Node) -> Found:
        return expr.known(find)

    return known


@lru_cache(maxsize=8192)
def interned(node: Found) -> Found:
    """One node for all that are equal, so that facts about it, and its closure, are computed once.

    Only to evaluate, and not for a bare constant: 1 and True are equal.
    """
    return node


@kept
def slots_of(expr: Node) -> frozenset[str]:
    """Names of the slots that ``expr`` reads."""
    names = {expr.slot} if isinstance(expr, ir.SlotRef) else set()
    return frozenset(names.union(*(slots_of(child) for child in expr.children())))


@kept
def params_of(expr: Node) -> frozenset[str]:
    """Names of the parameters that ``expr`` reads."""
    return frozenset(node.name for node in expr.walk() if isinstance(node, ir.Param))


@kept
def free_names(expr: Node) -> frozenset[str]:
    """Variables that ``expr`` reads but doesn't bind, and its arguments (as ``arg:name``)."""
    if isinstance(expr, ir.Var):
        return frozenset((expr.name,))
    if isinstance(expr, ir.Arg):
        return frozenset((f"arg:{expr.name}",))
    inner = frozenset[str]().union(*(free_names(child) for child in expr.children()))
    if isinstance(expr, ir.Query):
        return inner - {expr.var}
    if isinstance(expr, ir.Sum | ir.Count | ir.All | ir.Any):
        return free_names(expr.over) | (free_names(expr.body) - {expr.var})
    return inner


@kept
def reads_final(expr: Node) -> bool:
    """Whether ``expr`` holds a ``New``."""
    return isinstance(expr, ir.New) or any(reads_final(child) for child in expr.children())


def nodes_of(clauses: Iterable[Clause], goal: Goal | None = None) -> Iterator[Node]:
    """Every node of a goal (its query, its effects, when to escalate) and of rules."""
    roots: list[Node | None] = []
    if isinstance(goal, ir.Reach):
        clauses, roots = (*goal.effects, *clauses), [goal.escalate_when]
    if isinstance(goal, ir.Equals):
        roots.append(goal.query)
    if isinstance(goal, ir.Optimise):
        roots.append(goal.expr)
    for clause in clauses:
        roots += [clause.expr, clause.guard]
    return (node for root in roots if root is not None for node in root.walk())


def changed_as_asked(item: ir.WriteSet) -> ir.Query:
    """The rows that a part of a write set lets change, in a final state: those that are as it says."""
    if item.only is None:
        return item.rows
    where = ir.And(items=(*conjuncts(item.rows.where), item.only))
    return item.rows.model_copy(update={"where": where})


def as_asked(write_set: Iterable[ir.WriteSet]) -> tuple[ir.All, ...]:
    """That cells which may change only in some way are as they were, or so: rules to be looked at row by row.

    A cell that several parts of the write set name may change as any of them says. The columns are never
    NULL, so that comparing them tells whether they changed.
    """
    parts, found = tuple(write_set), []
    for item in (part for part in parts if part.only is not None):
        row, groups = ir.Var(name=item.rows.var), dict[tuple[int, ...], list[str]]()
        for column in item.columns:
            named = (
                i
                for i, other in enumerate(parts)
                if (other.relation, other is item) == (item.relation, False)
                and column in other.columns
            )
            groups.setdefault(tuple(named), []).append(column)
        for others, columns in groups.items():
            ways = [item.only, *(_in_this_way(parts[i], row) for i in others)]
            body = ir.Or(items=(_unchanged(item.relation, row, columns), *filter(None, ways)))
            found.append(ir.All(var=row.name, over=item.rows, body=body))
    return tuple(found)


def _unchanged(relation: str, row: ir.Var, columns: Iterable[str]) -> Node:
    cells = [ir.Get(relation=relation, entity=row, column=name) for name in columns]
    same = tuple(ir.Cmp(fn="=", left=ir.New(item=cell), right=cell) for cell in cells)
    return same[0] if len(same) == 1 else ir.And(items=same)


def _in_this_way(item: ir.WriteSet, row: ir.Var) -> Node:
    """That ``row`` is one of an item's rows and as the item says."""
    inside = ir.Cmp(fn="in", left=row, right=item.rows)
    if item.only is None:
        return inside
    return ir.And(items=(inside, renamed(item.only, item.rows.var, row.name)))


def renamed(expr: Node, old: str, new: str) -> Node:
    """``expr`` with its free variable ``old`` called ``new``, a name that nothing inside it binds."""
    if old == new:
        return expr

    def walk(part: object) -> object:
        if isinstance(part, list):
            return [walk(one) for one in part]
        if not isinstance(part, dict) or part.get("var") == old:  # what binds it hides it
            return part
        if (part.get("op"), part.get("name")) == ("var", old):
            return {**part, "name": new}
        return {name: walk(one) for name, one in part.items()}

    return type(expr).model_validate(walk(expr.model_dump(mode="json")))


def written(access: Iterable[ir.Access]) -> frozenset[str]:
    """The tables that calls change."""
    return frozenset(effect.relation for tool in access for effect in tool.effects)


def is_joint(expr: Node, tables: Collection[str]) -> bool:
    """Whether ``expr`` ranks, counts or adds up rows of ``tables``: no row decides it alone."""
    return any(
        (isinstance(node, ir.Query) and (node.agg != "none" or node.limit is not None)
         and node.relation in tables)
        or (isinstance(node, ir.Sum | ir.Count) and isinstance(node.over, ir.Query)
            and node.over.relation in tables)
        for node in expr.walk()
    )  # fmt: skip


def optimal(goal: ir.Optimise) -> ir.Cmp:
    """What an ``Optimise`` goal asks of an answer: its value is as good as the bound."""
    bound: Node = goal.bound
    if goal.eps:
        slack = ir.Const(value=goal.eps if goal.sense == "min" else -goal.eps)
        bound = ir.Arith(fn="+", left=goal.bound, right=slack)
    return ir.Cmp(fn="<=" if goal.sense == "min" else ">=", left=goal.expr, right=bound)


def best_rule(goal: ir.Optimise) -> Clause:
    """The same as a clause."""
    return Clause(id="goal", family="goal", expr=optimal(goal), text_key=goal.text_key)


def hidden(p: Problem) -> frozenset[str]:
    """Parameters that no prompt states and no solution knows: an optimum that is to be found."""
    best = (p.goal.bound.name,) if isinstance(p.goal, ir.Optimise) else ()
    return frozenset(best) | ({NEAREST} if p.giving_way else frozenset())


def truth(clause: Clause) -> Node:
    """A clause as one expression, true iff the clause holds: one that gives way is held to ``NEAREST``."""
    if clause.gives_way:
        return _nearest(clause)
    return stated(clause)


def stated(clause: Clause) -> Node:
    """A clause as one expression, as the prompt states it."""
    if clause.guard is None:
        return clause.expr
    return ir.If(test=clause.guard, then=clause.expr, other=TRUE)


def _nearest(clause: Clause) -> Node:
    expr, own = clause.expr, ir.Param(name=str(clause.gives_way))
    assert isinstance(expr, ir.Cmp)
    side = "left" if expr.left == own else "right"
    held: Node = interned(expr.model_copy(update={side: ir.Param(name=NEAREST)}))
    return held


def told(part: Node) -> tuple[str, Node] | None:
    """A slot that ``part`` says to equal something which no slot decides, and that; else None."""
    if isinstance(part, ir.Cmp) and part.fn == "=":
        for slot, value in ((part.left, part.right), (part.right, part.left)):
            if isinstance(slot, ir.SlotRef) and slot.index is None and not slots_of(value):
                return slot.slot, value
    return None


def strict(problem: Problem) -> Problem:
    """``problem`` in which no rule gives way: all are held to what the prompt states."""
    clauses = tuple(clause.model_copy(update={"gives_way": None}) for clause in problem.clauses)
    params = {name: value for name, value in problem.params.items() if name != NEAREST}
    return problem.model_copy(update={"clauses": clauses, "params": params})


def conjuncts(expr: Node) -> Iterator[Node]:
    """Expressions that are all true iff ``expr`` is; branches of an If are split too."""
    return iter(_conjuncts(expr))


@kept  # the same nodes every time, so that a compiler's closures of them serve again
def _conjuncts(expr: Node) -> tuple[Node, ...]:
    if isinstance(expr, ir.And):
        return tuple(part for item in expr.items for part in _conjuncts(item))
    if isinstance(expr, ir.If):
        found = [ir.If(test=expr.test, then=part, other=TRUE) for part in _conjuncts(expr.then)]
        found += [ir.If(test=expr.test, then=TRUE, other=part) for part in _conjuncts(expr.other)]
        return (expr,) if expr.then == TRUE and expr.other == TRUE else tuple(found)
    if isinstance(expr, ir.NoOverlap):
        return _conjuncts(plain_form(expr))
    return (expr,) if expr != TRUE else ()


def condition(clause: ir.Clause) -> tuple[ir.Node, ...]:
    """What a policy clause ``not done(row) or condition`` asks of a row that a call changed."""
    body = clause.expr.body if isinstance(clause.expr, ir.All) else None
    if not isinstance(body, ir.Or):
        return ()
    return tuple(conjuncts(body.items[-1]))


def compares_slots(expr: Node, fn: str) -> bool:
    """Whether ``expr`` compares two whole slots with ``fn``, nothing else."""
    if not isinstance(expr, ir.Cmp) or expr.fn != fn or len(slots_of(expr)) != 2:
        return False
    return all(map(is_slot, expr.children()))


def is_slot(expr: Node) -> bool:
    """Whether ``expr`` is the whole value of a slot."""
    return isinstance(expr, ir.SlotRef) and expr.index is None


def implied_pairs(
    pairs: set[frozenset[Name]], parents: Mapping[tuple[Name, str], Name]
) -> set[frozenset[Name]]:
    """Pairs of hotels that differ because the cities that they lie in must.

    ``parents`` gives by slot and column of its row the slot whose value stands there.
    """
    columns = {column for _, column in parents}
    return {
        pair
        for pair in pairs
        for column in columns
        if frozenset(parents[x, column] for x in pair if (x, column) in parents) in pairs
    }


def pairwise(expr: Node) -> Iterator[Node]:
    """Conjuncts of ``expr``, an AllDifferent among them in pairs."""
    return iter(_pairwise(expr))


@kept
def _pairwise(expr: Node) -> tuple[Node, ...]:
    found: list[Node] = []
    for part in _conjuncts(expr):
        found += _conjuncts(plain_form(part)) if isinstance(part, ir.AllDifferent) else (part,)
    return tuple(found)


def plain_form(expr: ir.AllDifferent | ir.NoOverlap | ir.Before) -> Node:
    """The same in comparisons of pairs; what is unknown stays unknown."""
    if isinstance(expr, ir.AllDifferent):
        pairs = combinations(expr.items, 2)
        return ir.And(items=tuple(ir.Cmp(fn="!=", left=a, right=b) for a, b in pairs))
    if isinstance(expr, ir.Before):
        return _ends_before(expr.left, expr.right, expr.lag)
    apart = []
    for i, j in combinations(range(len(expr.intervals)), 2):
        one, other = expr.intervals[i], expr.intervals[j]
        ways = [_ends_before(one, other), _ends_before(other, one)]
        if expr.resources:
            ways.append(ir.Cmp(fn="!=", left=expr.resources[i], right=expr.resources[j]))
        apart.append(ir.Or(items=tuple(ways)))
    return ir.And(items=tuple(apart))


def _ends_before(left: Node, right: Node, lag: Node = NO_LAG) -> Node:
    end: Node = ir.End(interval=left)
    if lag != NO_LAG:
        end = ir.Arith(fn="+", left=end, right=lag)
    return ir.Cmp(fn="<=", left=end, right=ir.Start(interval=right))


def summands(expr: Node, sign: int) -> Iterator[tuple[int, Node]]:
    """Signed expressions whose sum is ``expr``; sums times constants stay whole."""
    if isinstance(expr, ir.Arith) and expr.fn in ("+", "-"):
        yield from summands(expr.left, sign)
        yield from summands(expr.right, sign if expr.fn == "+" else -sign)
    else:
        yield sign, expr


def column_equals(part: Node, query: ir.Query) -> tuple[str, Node] | tuple[None, None]:
    """``column`` and ``value`` of a condition ``column = value`` on the query's row."""
    if isinstance(part, ir.Cmp) and part.fn == "=":
        for cell, value in ((part.left, part.right), (part.right, part.left)):
            if (
                isinstance(cell, ir.Get)
                and cell.entity == ir.Var(name=query.var)
                and cell.relation == query.relation
                and query.var not in free_names(value)
            ):
                return cell.column, value
    return None, None


def unstated(problem: ir.Problem) -> Iterator[tuple[str, str]]:
    """Slots with a condition in their domain that no rule repeats, and the columns in it.

    Domains shape a space and are not tested: only a rule keeps out the answers that break one. The
    slot of an ``Equals`` needs none: its value is given.
    """
    rules = {part for rule in problem.clauses if not rule.guard for part in conjuncts(rule.expr)}
    known = {json for part in rules for json in _either_way(part)}
    goal = problem.goal.slot if isinstance(problem.goal, ir.Equals) else None
    for slot in problem.slots:
        if not isinstance(slot.domain, ir.Query) or slot.name == goal:
            continue
        row, value = ir.Var(name=slot.domain.var), ir.SlotRef(slot=slot.name)
        stated_parts = known | set(_of_each(slot.name, rules)) if slot.kind == "set" else known
        for part in conjuncts(slot.domain.where):
            json = part.model_dump_json()
            stated = value if slot.kind != "set" else _MEMBER
            if json.replace(row.model_dump_json(), stated.model_dump_json()) not in stated_parts:
                columns = dict.fromkeys(n.column for n in part.walk() if isinstance(n, ir.Get))
                yield slot.name, ", ".join(columns)


_MEMBER = ir.Var(name="_member")


def _of_each(slot: str, rules: Iterable[Node]) -> Iterator[str]:
    """What rules say of each member of a set slot."""
    for rule in rules:
        if isinstance(rule, ir.All) and rule.over == ir.SlotRef(slot=slot):
            row = ir.Var(name=rule.var).model_dump_json()
            for part in conjuncts(rule.body):
                for json in _either_way(part):
                    yield json.replace(row, _MEMBER.model_dump_json())


def _either_way(part: Node) -> Iterator[str]:
    yield part.model_dump_json()
    if isinstance(part, ir.Cmp) and part.fn == "=":
        yield part.model_copy(update={"left": part.right, "right": part.left}).model_dump_json()

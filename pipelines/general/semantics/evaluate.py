"""The reference semantics of a problem: its slots' values, and which rules an answer and a state keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations, islice
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Node, Problem, Slot
from envgen.pipelines.general.semantics.evaluator import Compiler, Frame, elements
from envgen.pipelines.general.semantics.layout import fill_layout, frozen, match_layout, ordered
from envgen.pipelines.general.semantics.rewrite import TRUE, changed_as_asked, optimal, told, truth
from envgen.pipelines.general.semantics.tables import Tables

MAX_VALUES = 20_000
"""Slots with more values than this have no enumerated domain."""


class NotEnumerableError(PipelineError):
    """Raised when the values of a slot can't be listed: there are too many, or nothing says which."""


def domain_values(slot: Slot, compiler: Compiler) -> list[Any]:
    """Every value that has the slot's type, hashable, in a fixed order.

    The submit schema tells agents the same (``x-where``), so a uniform draw from this space is what a
    policy can do that knows no rule.

    Raises:
        NotEnumerableError: for maps and sequences, more than ``MAX_VALUES``, or where nothing lists them.
    """
    if slot.kind in ("map", "sequence"):
        raise NotEnumerableError(
            f"can't list the values of the {slot.kind} slot {slot.name!r}",
            "ask for its parts in slots of their own",
        )
    values = _element_values(slot, compiler)
    if slot.kind == "set":
        values = subsets(slot, values)
    if len(values) > MAX_VALUES:
        raise NotEnumerableError(
            f"the {slot.kind} slot {slot.name!r} has more than {MAX_VALUES} values",
            "give it a smaller domain or length, or ask for the parts in slots of their own",
        )
    return values


def values_given(slot: Slot, compiler: Compiler, frame: Frame) -> Sequence[Any]:
    """The values of a slot whose domain is a query, given the slots before it, in listing order."""
    if not isinstance(slot.domain, ir.Query):
        raise TypeError(f"slot {slot.name!r} chooses among no rows")
    found: Sequence[Any] = elements(slot.domain, compiler)(frame)
    return subsets(slot, found) if slot.kind == "set" else found


def subsets(slot: Slot, elements: Sequence[Any]) -> list[Any]:
    """The values of a set slot out of these elements, small ones first; cut after ``MAX_VALUES`` and one."""
    longest = len(elements) if slot.length is None else min(slot.length, len(elements))
    return list(_subsets(ordered(elements), slot.least, longest))


@lru_cache(maxsize=16)
def _subsets(elements: tuple[Any, ...], least: int, most: int) -> tuple[Any, ...]:
    sets = chain.from_iterable(combinations(elements, k) for k in range(least, most + 1))
    return tuple(islice(sets, MAX_VALUES + 1))


def _element_values(slot: Slot, compiler: Compiler) -> list[Any]:
    """The values of one element of a slot: a query gives all keys, or all values, of its relation."""
    domain = slot.domain
    if isinstance(domain, ir.Choice):
        return list(domain.values)
    if isinstance(domain, ir.IntRange):
        return list(range(domain.low, domain.high + 1, domain.step)[: MAX_VALUES + 1])
    if isinstance(domain, ir.Intervals):
        starts = range(domain.low, domain.high - domain.length + 1, domain.step)
        return [(start, start + domain.length) for start in starts[: MAX_VALUES + 1]]
    if domain.agg != "none":
        raise NotEnumerableError(
            f"the domain of slot {slot.name!r} is an aggregate", "make it a range or a choice"
        )
    if domain.select is None:
        return sorted(compiler.db.get(domain.relation, {}))
    whole = domain.model_copy(update={"where": TRUE, "limit": None, "order": ()})
    found = elements(whole, compiler)(compiler.frame())
    return sorted({value for value in found if value is not None})


class Cell(NamedTuple):
    """One place where two states differ; ``column`` is None for a whole row."""

    relation: str
    key: str
    column: str | None
    kind: str
    """insert | update | delete"""


def evaluate(
    p: Problem, initial: Tables, answer: JsonValue, final: Tables | None = None
) -> dict[str, bool]:
    """Which rules hold: every clause and effect id, ``layout``, and what the goal adds.

    ``goal`` stands for Equals, Optimise and the outcome of Reach, ``write_set`` for Reach's unchanged
    rest. The answer is accepted iff all are true. An answer that doesn't fit the layout, in structure
    or in a slot's type, makes all false. Never raises, whatever ``answer`` holds.
    """
    return rules_of(p).verdicts(initial, answer, initial if final is None else final)


def accepted(p: Problem, initial: Tables, answer: JsonValue, final: Tables | None = None) -> bool:
    """Whether every rule holds."""
    return all(evaluate(p, initial, answer, final).values())


def rule_ids(p: Problem) -> tuple[str, ...]:
    """The keys of ``evaluate``'s result, in order."""
    rules = ["layout", *(clause.id for clause in p.clauses)]
    if isinstance(p.goal, ir.Reach):
        rules += [effect.id for effect in p.goal.effects]
    if not isinstance(p.goal, ir.Satisfy):
        rules.append("goal")
    if isinstance(p.goal, ir.Reach):
        rules.append("write_set")
    return tuple(rules)


def as_told(p: Problem, initial: Tables, answer: JsonValue) -> JsonValue:
    """``answer`` with the values that rules tell of slots over these rows, whatever else it holds."""
    values = match_layout(p.layout, answer)
    found = [one for c in p.clauses if not c.guard and (one := told(c.expr)) is not None]
    if values is None or not found or not isinstance(p.goal, ir.Reach):
        return answer
    rules = rules_of(p)
    frame = rules.compiler.frame(initial)
    return fill_layout(p.layout, {**values, **{slot: rules.value(e, frame) for slot, e in found}})


class Rules:
    """What a problem asks of an answer, compiled once; rows come with each question."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.ids = rule_ids(p)
        self.compiler = Compiler(p)
        goal = p.goal
        effects = goal.effects if isinstance(goal, ir.Reach) else ()
        self._effects = {effect.id for effect in effects}
        self._runs = {c.id: self.compiler.compile(truth(c)) for c in (*p.clauses, *effects)}

    def value(self, expr: Node, frame: Frame) -> Any:
        """The value of an expression of the problem; None if it is unknown."""
        return self.compiler.compile(expr)(frame)

    def holds(self, rule: str, frame: Frame) -> bool:
        """Whether a clause or effect is true; an unknown guard or expression makes it false."""
        return self._runs[rule](frame) is True

    def frame(self, initial: Tables, answer: JsonValue, final: Tables) -> Frame | None:
        """What the rules read; None if the answer doesn't fit the layout."""
        frame = self.compiler.frame(initial, final)
        slots = match_layout(self.p.layout, answer)
        if slots is None or not all(self._fits(s, slots.get(s.name), frame) for s in self.p.slots):
            return None
        frame.slots[:] = [frozen(slot, slots.get(slot.name)) for slot in self.p.slots]
        return frame

    def verdicts(self, initial: Tables, answer: JsonValue, final: Tables) -> dict[str, bool]:
        """See ``evaluate``."""
        frame, goal = self.frame(initial, answer, final), self.p.goal
        if frame is None:
            return dict.fromkeys(self.ids, False)
        frame.memo = {}
        held = {"layout": True}
        held |= {rule: run(frame) is True for rule, run in self._runs.items()}
        if isinstance(goal, ir.Equals):
            held["goal"] = self._equals(goal, frame)
        elif isinstance(goal, ir.Optimise):
            held["goal"] = self._optimal(goal, frame)
        elif isinstance(goal, ir.Reach):
            held |= self._reached(goal, frame)
        return {rule: held[rule] for rule in self.ids}

    def _equals(self, goal: ir.Equals, frame: Frame) -> bool:
        value = frame.slots[self.compiler.position[goal.slot]]
        if self.p.slot(goal.slot).kind == "set":
            rows = elements(goal.query.model_copy(update={"agg": "none"}), self.compiler)
            return set(value) == set(rows(frame))
        return value is not None and bool(value == self.value(goal.query, frame))

    def _optimal(self, goal: ir.Optimise, frame: Frame) -> bool:
        return self.value(optimal(goal), frame) is True

    def _reached(self, goal: ir.Reach, frame: Frame) -> dict[str, bool]:
        """Effects, outcome and write set; with an escalation due, effects are vacuous."""
        due = False if goal.escalate_when is None else self.value(goal.escalate_when, frame)
        held = dict.fromkeys(self._effects, True) if due is True else {}
        at = self.compiler.position.get("outcome")
        submitted = None if at is None else frame.slots[at]
        outcome = {True: "escalated", False: "done"}.get(due)
        held["goal"] = outcome is not None and submitted in (outcome, None)
        changes = changed_cells(frame.old, frame.new)
        if due is True:
            held["write_set"] = not any(changes)
        else:
            allowed = self.allowance(goal, frame)
            held["write_set"] = all(allowed.covers(cell, self.p) for cell in changes)
        return held

    def allowance(self, goal: ir.Reach, frame: Frame, *, ever: bool = False) -> Allowance:
        """The cells and relations that ``goal``'s write set lets change as they are in the final state.

        ``ever``: those that may change in any way at all.
        """
        cells = set()
        for item in goal.write_set:
            query = item.rows if ever else changed_as_asked(item)
            rows = elements(query.model_copy(update={"agg": "none"}), self.compiler)
            keys = [key for key in rows(frame) if key is not None]
            cells |= {(item.relation, key, column) for key in keys for column in item.columns}
        inserts = frozenset(item.relation for item in goal.write_set if item.inserts)
        return Allowance(frozenset(cells), inserts)

    def _fits(self, slot: Slot, value: JsonValue, frame: Frame) -> bool:
        """Whether ``value`` has the type of ``slot`` (a domain's ``where`` plays no part)."""
        if slot.kind == "map":
            if not isinstance(value, dict) or slot.key_domain is None:
                return False
            keys = elements(slot.key_domain, self.compiler)(frame)
            parts = list(value.values())
            return set(value) == {str(key) for key in keys} and self._all_fit(slot, parts, frame)
        if slot.kind not in ("set", "sequence"):
            return self._element_fits(slot.domain, value, frame)
        if not isinstance(value, list) or not self._all_fit(slot, value, frame):
            return False
        if slot.kind == "sequence":
            return slot.length in (None, len(value))
        different = len(set(frozen(slot, value))) == len(value)
        size = slot.least <= len(value) and (slot.length is None or len(value) <= slot.length)
        return different and size

    def _all_fit(self, slot: Slot, values: list[JsonValue], frame: Frame) -> bool:
        return all(self._element_fits(slot.domain, value, frame) for value in values)

    def _element_fits(
        self, domain: ir.Query | ir.ValueType, value: JsonValue, frame: Frame
    ) -> bool:
        if isinstance(domain, ir.Choice):
            return any(type(item) is type(value) and item == value for item in domain.values)
        if isinstance(domain, ir.IntRange):
            return type(value) is int and value in range(domain.low, domain.high + 1, domain.step)
        if isinstance(domain, ir.Intervals):
            return _interval_fits(domain, value)
        kind = query_type(domain, self.p)
        if kind.startswith("entity:"):
            return isinstance(value, str) and value in frame.old.get(kind[7:], {})
        if kind == "bool":
            return isinstance(value, bool)
        if kind in ("str", "date", "datetime"):
            return isinstance(value, str)
        return type(value) is int


MAX_KEPT = 32
_kept: dict[int, Rules] = {}


def rules_of(p: Problem) -> Rules:
    """The rules of a problem, compiled on first use; those of some problems are kept."""
    rules = _kept.get(id(p))
    if rules is None:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        rules = _kept[id(p)] = Rules(p)  # keeps the problem alive, its id taken
    return rules


class Allowance(NamedTuple):
    """What a Reach goal lets change."""

    cells: frozenset[tuple[str, str, str]]
    inserts: frozenset[str]

    def covers(self, cell: Cell, p: Problem) -> bool:
        """Whether ``cell`` may change; a row may go only if its key column is listed."""
        if cell.kind == "insert":
            return cell.relation in self.inserts
        column = p.relation(cell.relation).key if cell.column is None else cell.column
        return (cell.relation, cell.key, column) in self.cells


def changed_cells(initial: Tables, final: Tables) -> Iterator[Cell]:
    """Every cell or row in which the two states differ, in key order."""
    for relation in sorted({*initial, *final}):
        before, after = initial.get(relation, {}), final.get(relation, {})
        if before is after:
            continue
        for key in sorted({*before, *after}):
            if key not in after:
                yield Cell(relation, key, None, "delete")
            elif key not in before:
                yield Cell(relation, key, None, "insert")
            elif before[key] is not after[key]:
                old, new = before[key], after[key]
                for column in old:
                    if old[column] != new.get(column):
                        yield Cell(relation, key, column, "update")


def _interval_fits(domain: ir.Intervals, value: JsonValue) -> bool:
    if not isinstance(value, dict) or set(value) != {"start", "end"}:
        return False
    start, end = value["start"], value["end"]
    if type(start) is not int or type(end) is not int:
        return False
    starts = range(domain.low, domain.high - domain.length + 1, domain.step)
    return start in starts and end == start + domain.length


def query_type(query: ir.Query, p: Problem) -> str:
    """The IR type of what a query selects or computes."""
    if query.agg in ("count", "sum", "mean"):
        return "int"
    if query.select is None:
        return f"entity:{query.relation}"
    return expr_type(query.select, p, {query.var: f"entity:{query.relation}"})


def expr_type(expr: Node, p: Problem, variables: dict[str, str]) -> str:
    """The IR type of a query's ``select``; ``int`` for everything computed."""
    if isinstance(expr, ir.Get):
        relation = p.relation(expr.relation)
        if expr.column == relation.key:
            return f"entity:{relation.name}"
        return relation.column(expr.column).type
    if isinstance(expr, ir.Var):
        return variables.get(expr.name, "int")
    if isinstance(expr, ir.If):
        return expr_type(expr.then, p, variables)
    if isinstance(expr, ir.Old | ir.New):
        return expr_type(expr.item, p, variables)
    if isinstance(expr, ir.Const) and isinstance(expr.value, str):
        return "str"
    truths = (ir.Cmp, ir.And, ir.Or, ir.Not, ir.All, ir.Any, ir.AllDifferent, ir.Before)
    return "bool" if isinstance(expr, (*truths, ir.NoOverlap)) else "int"

"""The values that a slot may have, and what its domain says of them before any rule.

The submit schema tells agents the same (``x-where``), so a uniform draw from this space is what a policy
can do that knows no rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice, product
from typing import Any

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Node, Problem, Scalar, Slot
from envgen.pipelines.general.semantics.evaluator import Compiler, elements
from envgen.pipelines.general.semantics.layout import ordered
from envgen.pipelines.general.semantics.rewrite import TRUE, conjuncts

MAX_VALUES = 20_000
"""Sets, sequences and maps with more values than this have no enumerated domain."""


class NotEnumerableError(PipelineError):
    """Raised when the values of a slot can't be listed: there are too many, or nothing says which."""


def domain_values(slot: Slot, compiler: Compiler) -> list[Any]:
    """Every value that has the slot's type, hashable, in a fixed order.

    Raises:
        NotEnumerableError: if there are more than ``MAX_VALUES``, or if nothing lists them.
    """
    items = element_values(slot, compiler)
    if slot.kind == "set":
        longest = len(items) if slot.length is None else min(slot.length, len(items))
        sets = (ordered(c) for k in range(longest + 1) for c in combinations(items, k))
        return _capped(slot, sets)
    if slot.kind == "sequence":
        if slot.length is None:
            raise NotEnumerableError(
                f"the sequence slot {slot.name!r} has no length", "give it one, or ask for a set"
            )
        return _capped(slot, product(items, repeat=slot.length))
    if slot.kind == "map":
        assert slot.key_domain is not None
        keys = sorted(map(str, elements(slot.key_domain, compiler)(compiler.frame())))
        values = product(items, repeat=len(keys))
        return _capped(slot, (tuple(zip(keys, one, strict=True)) for one in values))
    return _capped(slot, iter(items))


def _capped(slot: Slot, values: Iterator[Any]) -> list[Any]:
    found = list(islice(values, MAX_VALUES + 1))
    if len(found) > MAX_VALUES:
        raise NotEnumerableError(
            f"the {slot.kind} slot {slot.name!r} has more than {MAX_VALUES} values",
            "give it a smaller domain or length, or ask for the parts in slots of their own",
        )
    return found


def element_values(slot: Slot, compiler: Compiler) -> list[Any]:
    """The values of one element of a slot: a query gives all keys, or all values, of its relation.

    Raises:
        NotEnumerableError: for the value of an aggregate, which no rows list.
    """
    domain = slot.domain
    if isinstance(domain, ir.Choice):
        return list(domain.values)
    if isinstance(domain, ir.IntRange):
        return list(range(domain.low, domain.high + 1, domain.step))
    if isinstance(domain, ir.Intervals):
        last = domain.high - domain.length
        length = domain.length
        return [(s, s + length) for s in range(domain.low, last + 1, domain.step)]
    if domain.agg != "none":
        raise NotEnumerableError(
            f"the domain of slot {slot.name!r} is an aggregate", "make it a range or a choice"
        )
    if domain.select is None:
        return sorted(compiler.db.get(domain.relation, {}))
    whole = domain.model_copy(update={"where": TRUE, "limit": None, "order": ()})
    found = elements(whole, compiler)(compiler.frame())
    return sorted({value for value in found if value is not None})


def linked_columns(p: Problem, slot: Slot) -> dict[str, str]:
    """By column the earlier slot whose value it must have, for an entity slot's domain."""
    if slot.kind != "entity":
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
    query = slot.domain
    if not isinstance(query, ir.Query):
        return
    for part in conjuncts(query.where):
        if not isinstance(part, ir.Cmp) or part.fn != "=":
            continue
        for get, side in ((part.left, part.right), (part.right, part.left)):
            if isinstance(get, ir.Get) and get.entity == ir.Var(name=query.var):
                if get.relation == query.relation:
                    yield get.column, side

"""What a slot's domain says of its values before any rule: the public part of a submission's space.

The submit schema tells agents the same (``x-where``), so a uniform draw from this space is what a policy
can do that knows no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from envgen.core import ir
from envgen.core.ir import Node, Problem, Scalar, Slot
from envgen.pipelines.general.rewrite import conjuncts


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

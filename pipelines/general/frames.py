"""What compiled expressions read, and what an expression refers to."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.ir import Node, Slot
from envgen.pipelines.general.tables import Tables


class Frame:
    """What a closure reads: slot values by position, bound variables, arguments, two states."""

    __slots__ = ("args", "new", "old", "reads", "slots", "vars")

    def __init__(self, num_slots: int, old: Tables, new: Tables | None = None) -> None:
        self.slots: list[Any] = [None] * num_slots
        self.vars: dict[str, Any] = {}
        self.args: Mapping[str, Any] = {}
        self.old = old
        self.new = old if new is None else new
        self.reads: set[tuple[str, str | None]] | None = None
        """When a set: rows (key None: a whole relation) that were read."""


Closure = Callable[[Frame], Any]
"""A compiled expression."""


def frozen(slot: Slot, value: JsonValue) -> Hashable:
    """The hashable form of a slot's JSON value."""
    if slot.kind == "interval" and isinstance(value, dict):
        return (value["start"], value["end"])
    if slot.kind == "set" and isinstance(value, list):
        return tuple(sorted(value, key=lambda item: (str(type(item)), item)))
    if slot.kind == "sequence" and isinstance(value, list):
        return tuple(value)
    if slot.kind == "map" and isinstance(value, dict):
        return tuple(sorted(value.items()))
    return value if not isinstance(value, list | dict) else None


def plain(slot: Slot, value: Any) -> JsonValue:
    """The JSON form of a slot's hashable value."""
    if slot.kind == "interval":
        return {"start": value[0], "end": value[1]}
    if slot.kind in ("set", "sequence"):
        return list(value)
    return dict(value) if slot.kind == "map" else value


@lru_cache(maxsize=16_384)
def slots_of(expr: Node) -> frozenset[str]:
    """Names of the slots that ``expr`` reads."""
    names = {expr.slot} if isinstance(expr, ir.SlotRef) else set()
    return frozenset(names.union(*(slots_of(child) for child in expr.children())))


@lru_cache(maxsize=16_384)
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


@lru_cache(maxsize=16_384)
def reads_final(expr: Node) -> bool:
    """Whether ``expr`` holds a ``New``."""
    return isinstance(expr, ir.New) or any(reads_final(child) for child in expr.children())

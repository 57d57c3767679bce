"""What a solution returns, and what tells its choices apart."""

from __future__ import annotations

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.ir import Problem
from envgen.pipelines.general.emit import Doc, call, flat, glued, python_literal
from envgen.pipelines.general.solution_expr import Item, Scope, emit


def state_doc(name: str, scope: Scope) -> Doc:
    """What tells one choice of a slot from another, hashable."""
    item = scope.slots[name]
    if item.many:
        key = flat(emit(ir.Var(name="row"), scope.bind("row", Item("row", item.relation))).doc)
        return f"tuple([{key} for row in {item.text}])"
    if item.length is not None:
        return item.text
    return emit(ir.SlotRef(slot=name), scope).doc


def answer_doc(p: Problem, scope: Scope) -> Doc:
    """The submission, with what stands in the slots."""

    def value(name: str) -> Doc:
        item = scope.slots[name]
        if item.length is not None:
            return f'{{"start": {item.text}, "end": {item.text} + {item.length}}}'
        if item.many:
            row = Item("row", item.relation, item.source)
            key = flat(emit(ir.Var(name="row"), scope.bind("row", row)).doc)
            return f"[{key} for row in {item.text}]"
        return emit(ir.SlotRef(slot=name), scope).doc

    def walk(layout: JsonValue) -> Doc:
        if isinstance(layout, list):
            return call("[", map(walk, layout), "]")
        if isinstance(layout, dict):
            if set(layout) == {"$slot"}:
                return value(str(layout["$slot"]))
            pairs = [glued(f"{python_literal(key)}: ", walk(item)) for key, item in layout.items()]
            return call("{", pairs, "}")
        return python_literal(layout)

    return walk(p.layout)

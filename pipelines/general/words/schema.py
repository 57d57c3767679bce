"""What may be submitted, as a JSON Schema with public hints, and the rules in parts a machine reads."""

from __future__ import annotations

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import (
    Choice,
    Intervals,
    IntRange,
    Layout,
    Node,
    Problem,
    Query,
    Reach,
    Scalar,
    Slot,
)
from envgen.core.types import PublicRule, Schema
from envgen.pipelines.general.semantics.layout import slot_paths
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.words.prompt import Rendered


def submit_schema(p: Problem, db: Tables) -> Schema:
    """The form of a submission: structure, types and ranges, no rules.

    Leaves carry ``x-source`` ("hotels.name"), ``x-where`` ({"city": "/0/city"}: the column equals what
    stands at that pointer; {"city": {"const": "Hangzhou"}}: it equals a constant of the prompt) and
    ``x-intervals``; the root of a workflow's schema carries ``x-walk``.
    ``db`` is not read today: ranges come from the slots alone, so that a schema serves every re-seed.

    Raises:
        PipelineError: for a slot without a public form.
    """
    pointers = {name: pointer for name, pointer in slot_paths(p.layout)}
    schema = _node(p.layout, p, pointers)
    if isinstance(p.goal, Reach):
        schema["x-walk"] = p.goal.max_calls
    return schema


def _node(layout: Layout, p: Problem, pointers: dict[str, str]) -> Schema:
    if isinstance(layout, dict):
        if set(layout) == {"$slot"}:
            return _slot(p.slot(str(layout["$slot"])), p, pointers)
        names: list[JsonValue] = list(layout)
        return {
            "type": "object",
            "properties": {key: _node(item, p, pointers) for key, item in layout.items()},
            "required": names,
            "additionalProperties": False,
        }
    if isinstance(layout, list):
        items: list[JsonValue] = [_node(item, p, pointers) for item in layout]
        return {
            "type": "array",
            "prefixItems": items,
            "items": False,
            "minItems": len(items),
            "maxItems": len(items),
        }
    return {"const": layout}


def _slot(slot: Slot, p: Problem, pointers: dict[str, str]) -> Schema:
    element = _element(slot, p, pointers)
    if slot.kind == "set":
        schema: Schema = {"type": "array", "items": element, "uniqueItems": True}
        return schema if slot.length is None else {**schema, "maxItems": slot.length}
    if slot.kind == "sequence":
        schema = {"type": "array", "items": element}
        if slot.length is not None:
            schema |= {"minItems": slot.length, "maxItems": slot.length}
        return schema
    if slot.kind == "map":
        return {"type": "object", "additionalProperties": element}
    return element


def _element(slot: Slot, p: Problem, pointers: dict[str, str]) -> Schema:
    domain = slot.domain
    if isinstance(domain, Choice):
        return {"enum": list(domain.values)}
    if isinstance(domain, IntRange):
        return _whole(domain)
    if isinstance(domain, Intervals):
        last = domain.high - domain.length
        start: JsonValue = {"type": "integer", "minimum": domain.low, "maximum": last}
        end: JsonValue = {
            "type": "integer",
            "minimum": domain.low + domain.length,
            "maximum": domain.high,
        }
        return {
            "type": "object",
            "properties": {"start": start, "end": end},
            "required": ["start", "end"],
            "additionalProperties": False,
            "x-intervals": {
                "low": domain.low,
                "high": domain.high,
                "step": domain.step,
                "length": domain.length,
            },
        }
    return _queried(slot, domain, p, pointers)


def _whole(domain: IntRange) -> Schema:
    schema: Schema = {"type": "integer", "minimum": domain.low, "maximum": domain.high}
    if domain.step != 1 and domain.low % domain.step == 0:
        schema["multipleOf"] = domain.step
    elif domain.step != 1:
        values: list[JsonValue] = list(range(domain.low, domain.high + 1, domain.step))
        return {"enum": values}
    return schema


def _queried(slot: Slot, query: Query, p: Problem, pointers: dict[str, str]) -> Schema:
    relation, column = query.relation, p.relation(query.relation).key
    if query.agg in ("count", "sum", "mean"):
        return {"type": "integer"}
    if query.select is not None and query.select != ir.Var(name=query.var):
        if not isinstance(query.select, ir.Get):
            raise PipelineError(f"slot {slot.name!r}: its values have no public source")
        relation, column = query.select.relation, query.select.column
    kind = p.relation(relation).column(column).type
    words = {"bool": "boolean", "int": "integer", "minutes": "integer"}
    base = "integer" if kind.startswith("decimal:") else words.get(kind, "string")
    schema: Schema = {"type": base, "x-source": f"{relation}.{column}"}
    where: Schema = {c: pointers[s] for c, s in linked_columns(p, slot).items() if s in pointers}
    where |= {c: {"const": value} for c, value in fixed_columns(p, slot).items()}
    if where:
        schema["x-where"] = where
    return schema


def fixed_columns(p: Problem, slot: Slot) -> dict[str, Scalar]:
    """Column -> constant, where the slot's domain has a conjunct ``column = constant`` of the prompt."""
    if slot.kind not in ("entity", "set") or not isinstance(slot.domain, Query):
        return {}
    found: dict[str, Scalar] = {}
    for part in _conjuncts(slot.domain.where):
        if not isinstance(part, ir.Cmp) or part.fn != "=":
            continue
        for get, fixed in ((part.left, part.right), (part.right, part.left)):
            if not isinstance(get, ir.Get) or get.entity != ir.Var(name=slot.domain.var):
                continue
            if isinstance(fixed, ir.Param):
                found[get.column] = p.params[fixed.name]
            elif isinstance(fixed, ir.Const) and not isinstance(fixed.value, tuple):
                found[get.column] = fixed.value
    return found


def linked_columns(p: Problem, slot: Slot) -> dict[str, str]:
    """Column -> earlier slot, where the slot's domain is a conjunction of ``column = earlier slot``."""
    if slot.kind != "entity" or not isinstance(slot.domain, Query):
        return {}
    earlier = {s.name for s in p.slots[: p.slots.index(slot)]}
    found: dict[str, str] = {}
    for part in _conjuncts(slot.domain.where):
        pair = _column_equals_slot(part, slot.domain)
        if pair is not None and pair[1] in earlier:
            found[pair[0]] = pair[1]
    return found


def _column_equals_slot(part: Node, query: Query) -> tuple[str, str] | None:
    if not isinstance(part, ir.Cmp) or part.fn != "=":
        return None
    for get, ref in ((part.left, part.right), (part.right, part.left)):
        if isinstance(get, ir.Get) and get.entity == ir.Var(name=query.var):
            if get.relation == query.relation and isinstance(ref, ir.SlotRef) and ref.index is None:
                return get.column, ref.slot
    return None


def _conjuncts(node: Node) -> list[Node]:
    if isinstance(node, ir.And):
        return [part for item in node.items for part in _conjuncts(item)]
    return [] if node == ir.Const(value=True) else [node]


# --- rules ---------------------------------------------------------------------------------


def public_rules(p: Problem, rendered: Rendered) -> tuple[PublicRule, ...]:
    """Every rule that the prompt or the policy states, comparisons and "all different" in parts."""
    pointers = {name: pointer for name, pointer in slot_paths(p.layout)}
    rules: list[PublicRule] = []
    effects = p.goal.effects if isinstance(p.goal, Reach) else ()
    for clause in (*p.clauses, *effects):
        text = _text(clause.id, rendered)
        parts = [_rule(part, p, pointers, text) for part in _conjuncts(clause.expr)]
        readable = [rule for rule in parts if rule is not None] if clause.guard is None else []
        rules += readable
        if len(readable) < len(parts) or not parts:
            rules.append(PublicRule(text=text))
    for name in ("goal", "write_set", "escalate"):
        if name in rendered.spans or name in rendered.policy_spans:
            rules.append(PublicRule(text=_text(name, rendered)))
    return tuple(rules)


def _text(rule: str, rendered: Rendered) -> str:
    policy = rule not in rendered.spans
    source = rendered.policy_text if policy else rendered.text
    spans = rendered.policy_spans if policy else rendered.spans
    return " ".join(source[start:end] for start, end in spans.get(rule, []))


def _rule(part: Node, p: Problem, pointers: dict[str, str], text: str) -> PublicRule | None:
    if isinstance(part, ir.AllDifferent):
        slots = [
            item.slot for item in part.items if isinstance(item, ir.SlotRef) and not item.index
        ]
        if len(slots) == len(part.items) and set(slots) <= set(pointers):
            at = tuple(pointers[slot] for slot in slots)
            return PublicRule(text=text, kind="different", slots=at)
    if isinstance(part, ir.Cmp):
        return _comparison(part, p, pointers, text)
    return None


def _comparison(part: ir.Cmp, p: Problem, pointers: dict[str, str], text: str) -> PublicRule | None:
    mirrored = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
    left, fn, right = part.left, part.fn, part.right
    if isinstance(left, ir.Const | ir.Param) and fn in mirrored:
        left, right = right, left
        fn = mirrored[fn]  # type: ignore[assignment]  # a key of the Literal gives one of its values
    column: str | None = None
    if isinstance(left, ir.Get) and isinstance(left.entity, ir.SlotRef):
        column, left = left.column, left.entity
    if not isinstance(left, ir.SlotRef) or left.index is not None or left.slot not in pointers:
        return None
    value = _constant(right, p)
    if value is None:
        return None
    return PublicRule(
        text=text, kind="compare", slots=(pointers[left.slot],), column=column, cmp=fn, value=value
    )


def _constant(node: Node, p: Problem) -> JsonValue:
    value: Scalar | tuple[Scalar, ...] = None
    if isinstance(node, ir.Const):
        value = node.value
    elif isinstance(node, ir.Param):
        value = p.params.get(node.name)
    return list(value) if isinstance(value, tuple) else value

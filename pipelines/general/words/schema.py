"""The form of a submission as a JSON Schema with public hints, and the rules in parts a machine reads."""

from __future__ import annotations

from pydantic import JsonValue

from envgen.core import ir
from envgen.core.errors import PipelineError
from envgen.core.ir import Choice, Intervals, IntRange, Layout, Node, Problem, Query, Reach, Slot
from envgen.core.types import PublicRule, Schema
from envgen.pipelines.general.semantics.layout import slot_paths
from envgen.pipelines.general.semantics.rewrite import conjuncts
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.build import fixed_columns, linked_columns
from envgen.pipelines.general.words.prompt import Rendered
from envgen.pipelines.general.words.tool_specs import closed, json_type


def submit_schema(p: Problem, db: Tables) -> Schema:
    """The form of a submission: structure, types and ranges, no rules.

    Leaves carry ``x-source`` ("hotels.name"), ``x-where`` ({"city": "/0/city"}: the column equals what
    stands at that pointer; {"city": {"const": "Hangzhou"}}: it equals a constant of the prompt) and
    ``x-intervals``; the root of a workflow's schema carries ``x-walk``.
    ``db`` is not read today: ranges come from the slots alone, so that a schema serves every re-seed.

    Raises:
        PipelineError: for a slot without a public form.
    """
    pointers = dict(slot_paths(p.layout))
    schema = _node(p.layout, p, pointers)
    if isinstance(p.goal, Reach):
        schema["x-walk"] = p.goal.max_calls
    return schema


def _node(layout: Layout, p: Problem, pointers: dict[str, str]) -> Schema:
    if isinstance(layout, dict):
        if set(layout) == {"$slot"}:
            return _slot(p.slot(str(layout["$slot"])), p, pointers)
        return closed({key: _node(item, p, pointers) for key, item in layout.items()})
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
        schema |= {"minItems": slot.least} if slot.least else {}
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
        low, high, length = domain.low, domain.high, domain.length
        start, end = (_whole(IntRange(low=low + by, high=high - length + by)) for by in (0, length))
        hints: JsonValue = {"low": low, "high": high, "step": domain.step, "length": length}
        return {**closed({"start": start, "end": end}), "x-intervals": hints}
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
    kind = json_type(p.relation(relation).column(column).type)
    schema: Schema = {"type": kind, "x-source": f"{relation}.{column}"}
    where: Schema = {c: pointers[s] for c, s in linked_columns(p, slot).items() if s in pointers}
    where |= {c: {"const": value} for c, value in fixed_columns(p, slot).items()}
    if where:
        schema["x-where"] = where
    return schema


# --- rules ---------------------------------------------------------------------------------


def public_rules(p: Problem, rendered: Rendered) -> tuple[PublicRule, ...]:
    """Every rule that the prompt or the policy states, comparisons and "all different" in parts."""
    pointers = dict(slot_paths(p.layout))
    rules: list[PublicRule] = []
    effects = p.goal.effects if isinstance(p.goal, Reach) else ()
    for clause in (*p.clauses, *effects):
        text = _text(clause.id, rendered)
        parts = [_rule(part, p, pointers, text) for part in conjuncts(clause.expr)]
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
        refs = [item for item in part.items if isinstance(item, ir.SlotRef) and not item.index]
        at = tuple(pointers[ref.slot] for ref in refs if ref.slot in pointers)
        if len(at) == len(part.items):
            return PublicRule(text=text, kind="different", slots=at)
    if isinstance(part, ir.Cmp):
        return _comparison(part, p, pointers, text)
    if isinstance(part, ir.All) and isinstance(part.over, ir.SlotRef):
        return _of_members(part, p, pointers, text)
    return None


def _of_members(part: ir.All, p: Problem, pointers: dict[str, str], text: str) -> PublicRule | None:
    """What each member of a set is compared with, or that two sets share none."""
    row, body = ir.Var(name=part.var), part.body
    if isinstance(body, ir.Not) and isinstance(body.item, ir.Cmp) and body.item.left == row:
        sets = (part.over, body.item.right)
        at = tuple(
            pointers[x.slot] for x in sets if isinstance(x, ir.SlotRef) and x.slot in pointers
        )
        if body.item.fn == "in" and len(at) == 2:
            return PublicRule(text=text, kind="different", slots=at)
    if isinstance(body, ir.Cmp):
        sides = {name: getattr(body, name) for name in ("left", "right")}
        for name, side in sides.items():
            if isinstance(side, ir.Get) and side.entity == row:
                sides[name] = side.model_copy(update={"entity": part.over})
        return _comparison(body.model_copy(update=sides), p, pointers, text)
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
    known = right.value if isinstance(right, ir.Const) else None
    if isinstance(right, ir.Param):
        known = p.params.get(right.name)
    if known is None:
        return None
    value: JsonValue = list(known) if isinstance(known, tuple) else known
    return PublicRule(
        text=text, kind="compare", slots=(pointers[left.slot],), column=column, cmp=fn, value=value
    )

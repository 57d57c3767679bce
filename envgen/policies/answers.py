"""Read a submit schema as a template: its leaves, in an order that respects ``x-where``."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import PolicyError
from envgen.policies.sources import Where


@dataclass(frozen=True)
class AnswerLeaf:
    """One place of the submission that a policy fills."""

    pointer: str
    """JSON pointer into the submission; empty when the submission is the leaf."""
    schema: Mapping[str, Any]

    @property
    def element(self) -> Mapping[str, Any]:
        """The schema of a set's elements, else the leaf's own."""
        return self.schema["items"] if self.is_set else self.schema

    @property
    def is_set(self) -> bool:
        """Whether a subset of a source's rows is asked."""
        return self.schema.get("type") == "array"

    @property
    def source(self) -> str | None:
        """``relation.column`` whose values fit, or None for a plain value."""
        return self.element.get("x-source") or self.schema.get("x-source")

    @property
    def conditions(self) -> dict[str, Any]:
        """Column -> what it must equal: a pointer to an earlier leaf, or ``{"const": value}``."""
        return dict(self.element.get("x-where") or self.schema.get("x-where") or {})

    @property
    def where(self) -> dict[str, str]:
        """Column -> JSON pointer of the earlier leaf that it must equal."""
        return {c: value for c, value in self.conditions.items() if isinstance(value, str)}

    @property
    def fixed(self) -> dict[str, JsonValue]:
        """Column -> the constant that it must equal."""
        found = self.conditions.items()
        return {c: value["const"] for c, value in found if isinstance(value, dict)}


def template(schema: Mapping[str, Any]) -> tuple[JsonValue, list[AnswerLeaf]]:
    """A submission with None for every leaf, and the leaves, each after those its ``x-where`` names.

    Of a schema of several forms the first is taken: the others claim that there is no such answer.

    Raises:
        PolicyError: when two leaves wait for each other.
    """
    schema = schema["anyOf"][0] if schema.get("anyOf") else schema
    leaves: list[AnswerLeaf] = []
    blank = _blank(schema, "", leaves)
    return blank, _ordered(leaves)


def _blank(schema: Mapping[str, Any], pointer: str, leaves: list[AnswerLeaf]) -> JsonValue:
    if "const" in schema:
        return schema["const"]  # type: ignore[no-any-return]  # schemas hold JSON values
    if "x-intervals" not in schema and "x-source" not in schema:
        if "properties" in schema:
            return {
                name: _blank(part, f"{pointer}/{_escaped(name)}", leaves)
                for name, part in schema["properties"].items()
            }
        parts = _fixed_items(schema)
        if parts is not None:
            return [_blank(part, f"{pointer}/{i}", leaves) for i, part in enumerate(parts)]
    leaves.append(AnswerLeaf(pointer, schema))
    return None


def _fixed_items(schema: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    if "prefixItems" in schema:
        return list(schema["prefixItems"])
    items = schema.get("items")
    low, high = schema.get("minItems"), schema.get("maxItems")
    if isinstance(items, list):
        return items
    if isinstance(items, Mapping) and low is not None and low == high:
        return None if schema.get("uniqueItems") else [items] * int(low)
    return None


def _ordered(leaves: list[AnswerLeaf]) -> list[AnswerLeaf]:
    ordered: list[AnswerLeaf] = []
    waiting = list(leaves)
    while waiting:
        open_pointers = {leaf.pointer for leaf in waiting}
        ready = [leaf for leaf in waiting if not open_pointers & set(leaf.where.values())]
        if not ready:
            raise PolicyError(f"x-where of {sorted(open_pointers)!r} refer to each other")
        ordered += ready
        waiting = [leaf for leaf in waiting if leaf not in ready]
    return ordered


def waves(leaves: Sequence[AnswerLeaf]) -> Iterator[list[AnswerLeaf]]:
    """Split ordered leaves into runs in which none waits for another one of the same run."""
    run: list[AnswerLeaf] = []
    for leaf in leaves:
        if {other.pointer for other in run} & set(leaf.where.values()):
            yield run
            run = []
        run.append(leaf)
    if run:
        yield run


def where_of(leaf: AnswerLeaf, leaves: Sequence[AnswerLeaf], partial: JsonValue) -> Where:
    """Return the conditions on ``leaf``'s rows, given the values filled so far."""
    sources = {other.pointer: other.source for other in leaves}
    return Where(
        leaf.fixed | {column: pointed(partial, path) for column, path in leaf.where.items()},
        {
            column: source
            for column, pointer in leaf.where.items()
            if (source := sources.get(pointer)) is not None
        },
    )


def filled(blank: JsonValue, values: Mapping[str, JsonValue]) -> JsonValue:
    """The submission with ``values`` (by pointer) in place."""
    if "" in values:
        return values[""]
    answer = copy.deepcopy(blank)
    for pointer, value in values.items():
        *path, last = _steps(pointer)
        place: Any = answer
        for step in path:
            place = place[int(step) if isinstance(place, list) else step]
        place[int(last) if isinstance(place, list) else last] = value
    return answer


def pointed(answer: JsonValue, pointer: str) -> JsonValue:
    """The value at a JSON pointer; None where there is none."""
    place: Any = answer
    for step in _steps(pointer):
        if isinstance(place, list) and step.isdigit() and int(step) < len(place):
            place = place[int(step)]
        elif isinstance(place, dict) and step in place:
            place = place[step]
        else:
            return None
    return place  # type: ignore[no-any-return]  # parts of JSON values


def _steps(pointer: str) -> list[str]:
    parts = pointer.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def options(schema: Mapping[str, Any]) -> Sequence[JsonValue] | None:
    """All values of a plain leaf in order (lazily for ints), or None when they can't be listed."""
    if "enum" in schema:
        return list(schema["enum"])
    if "x-intervals" in schema:
        hint = schema["x-intervals"]
        starts = range(hint["low"], hint["high"] - hint["length"] + 1, hint["step"])
        return [{"start": start, "end": start + hint["length"]} for start in starts]
    if schema.get("type") == "boolean":
        return [False, True]
    if schema.get("type") == "integer" and {"minimum", "maximum"} <= set(schema):
        step = schema.get("multipleOf", 1)
        low, high = schema["minimum"], schema["maximum"]
        base = low if "x-step" in schema else -(-low // step) * step
        step = schema.get("x-step", step)
        return range(base, high + 1, step)
    return None


def draw_subset(
    leaf: AnswerLeaf, values: Sequence[JsonValue], rng: random.Random
) -> list[JsonValue]:
    """A subset of ``values``, uniform over all subsets of an allowed size, in the order given."""
    low = min(leaf.schema.get("minItems", 0), len(values))
    high = min(leaf.schema.get("maxItems", len(values)), len(values))
    sizes = range(low, high + 1)
    size = rng.choices(sizes, [math.comb(len(values), k) for k in sizes])[0]
    chosen = sorted(rng.sample(range(len(values)), size))
    return [values[i] for i in chosen]

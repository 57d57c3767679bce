"""``greedy``: fill each leaf with the first row that breaks no rule it can read. No look-ahead."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import PolicyError
from envgen.core.types import PublicRule, PublicTask
from envgen.policies.answers import AnswerLeaf, filled, options, template, where_of
from envgen.policies.programs import Program, ProgramPolicy
from envgen.policies.sources import Reader, SourceRow, Where

_MAX_OPTIONS = 10_000
"""Plain values of one leaf that are looked at."""
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class GreedyPolicy(ProgramPolicy):
    """Reads the public rules of kind ``compare`` and ``different``; the rest it ignores."""

    name = "greedy"

    def answer(self, task: PublicTask, rng: random.Random) -> Program[JsonValue]:
        """Fill the leaves in order, each with the first candidate that fits what is filled so far."""
        if task.submit_schema is None:
            raise PolicyError(f"task {task.id!r} has no submit schema to fill")
        reader = Reader(task)
        blank, leaves = template(task.submit_schema)
        values: dict[str, JsonValue] = {}
        for leaf in leaves:
            where = where_of(leaf, leaves, filled(blank, values))
            rows = yield from _candidates(reader, leaf, where)
            fits = yield from _fitting(reader, leaf, rows, task.rules, values)
            chosen = [row.value for row in fits]
            if leaf.is_set:
                values[leaf.pointer] = list(chosen[: leaf.schema.get("maxItems", len(chosen))])
            else:
                values[leaf.pointer] = chosen[0] if chosen else None
        return filled(blank, values)


def _candidates(reader: Reader, leaf: AnswerLeaf, where: Where) -> Program[list[SourceRow]]:
    values = options(leaf.element)
    if values is not None:
        return [SourceRow(value, {}) for value in itertools.islice(values, _MAX_OPTIONS)]
    if leaf.source is None:
        raise PolicyError(f"leaf {leaf.pointer!r} has neither a source nor a range")
    try:
        return (yield from reader.rows(leaf.source, where))
    except PolicyError:  # no key, but a column's value
        values = yield from reader.values(leaf.source, where)
        return [SourceRow(value, {}) for value in values]


def _fitting(
    reader: Reader,
    leaf: AnswerLeaf,
    rows: list[SourceRow],
    rules: tuple[PublicRule, ...],
    values: Mapping[str, JsonValue],
) -> Program[list[SourceRow]]:
    """The rows that keep the rules; a rule that no row keeps is passed over."""
    for rule in rules:
        if leaf.pointer not in rule.slots:
            continue
        if rule.kind == "different":
            taken = [values[slot] for slot in rule.slots if slot in values]
            members = [item for value in taken if isinstance(value, list) for item in value]
            kept = [row for row in rows if row.value not in (*taken, *members)]
        elif rule.kind == "compare" and rule.column is None:
            kept = [row for row in rows if compares(row.value, rule.cmp, rule.value)]
        elif rule.kind == "compare" and leaf.source is not None:
            facts = yield from reader.column(leaf.source, rows, str(rule.column))
            paired = zip(rows, facts, strict=True)
            kept = [row for row, fact in paired if compares(fact, rule.cmp, rule.value)]
        else:
            continue
        rows = kept or rows
    return rows


def compares(left: JsonValue, cmp: str | None, right: Any) -> bool:
    """Whether ``left cmp right`` holds; False for unknown or unlike values."""
    if left is None or right is None:
        return False
    if cmp == "in":
        return isinstance(right, list | tuple) and left in right
    if cmp in ("=", "!="):
        return bool(left == right) == (cmp == "=")
    if isinstance(left, str) != isinstance(right, str) or isinstance(left, dict | list):
        return False
    return bool(_ORDERS[cmp](left, right)) if cmp in _ORDERS else False

"""The values that a slot may have, listed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from envgen.core import ir
from envgen.core.ir import Slot
from envgen.pipelines.general.evaluator import Compiler, elements
from envgen.pipelines.general.layout import ordered
from envgen.pipelines.general.rewrite import TRUE

MAX_VALUES = 20_000
"""Sets, sequences and maps with more values than this have no enumerated domain."""


class NotEnumerableError(ValueError):
    """Raised when a slot has too many values to list."""


def domain_values(slot: Slot, compiler: Compiler) -> list[Any]:
    """Every value that has the slot's type, hashable, in a fixed order.

    Raises:
        NotEnumerableError: if there are more than ``MAX_VALUES``.
    """
    items = element_values(slot.domain, compiler)
    if slot.kind == "set":
        longest = len(items) if slot.length is None else min(slot.length, len(items))
        return _capped(ordered(c) for k in range(longest + 1) for c in combinations(items, k))
    if slot.kind == "sequence":
        if slot.length is None:
            raise NotEnumerableError(f"sequence {slot.name!r} has no length")
        return _capped(iter(product(items, repeat=slot.length)))
    if slot.kind == "map":
        assert slot.key_domain is not None
        keys = sorted(map(str, elements(slot.key_domain, compiler)(compiler.frame())))
        return _capped(tuple(zip(keys, c, strict=True)) for c in product(items, repeat=len(keys)))
    return _capped(iter(items))


def _capped(values: Iterator[Any]) -> list[Any]:
    found = []
    for value in values:
        found.append(value)
        if len(found) > MAX_VALUES:
            raise NotEnumerableError(f"more than {MAX_VALUES} values")
    return found


def element_values(domain: ir.Query | ir.ValueType, compiler: Compiler) -> list[Any]:
    """The values of one element of a slot: a query gives all keys, or all values, of its relation."""
    if isinstance(domain, ir.Choice):
        return list(domain.values)
    if isinstance(domain, ir.IntRange):
        return list(range(domain.low, domain.high + 1, domain.step))
    if isinstance(domain, ir.Intervals):
        last = domain.high - domain.length
        length = domain.length
        return [(s, s + length) for s in range(domain.low, last + 1, domain.step)]
    if domain.select is None and domain.agg == "none":
        return sorted(compiler.db.get(domain.relation, {}))
    whole = domain.model_copy(update={"where": TRUE, "limit": None, "agg": "none", "order": ()})
    found = elements(whole, compiler)(compiler.frame())
    return sorted({value for value in found if value is not None})

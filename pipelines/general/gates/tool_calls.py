"""Calls that tell whether a tool is right: every key, every argument at its limits and with bad values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from math import prod
from random import Random
from typing import Any, TypeVar

from envgen.core.canonical import dumps
from envgen.core.ir import Access, Problem, Scalar
from envgen.pipelines.general.semantics.calls import IntSpan, argument_values
from envgen.pipelines.general.semantics.replies import Reply, argument_kinds, has_kind, reply
from envgen.pipelines.general.semantics.tables import Tables

T = TypeVar("T")
Arguments = dict[str, Any]

KEYS = 400
"""All keys of a relation of so many rows or fewer; of a larger one the first, the last and a sample."""
PAGES = 20
"""The same for pages of a list."""
VALUES = 12
"""Values of a column at which an argument is tried, spread from the lowest to the highest."""
WRITES = 1_500
"""Argument sets of a write tool that the reference is asked about; all of them where there are no more."""
PER_OUTCOME = 10
"""Calls made of each outcome (success, each error) of a write tool."""
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**63, -(2**63) - 1, 1.0, "", " ", "no such key", "'; DROP TABLE x; --",
    "%", "2025-13", "2025-1-1", "\u0662025-01-01", "\x00", "\ud800", "x" * 10_000, [], ["x"], {}, {"a": 1},
)  # fmt: skip
"""Given in turn for every argument."""


def sampled(items: Sequence[T], most: int, rand: Random) -> list[T]:
    """All items if they are few, else the first, the last and a sample, in order."""
    if len(items) <= most:
        return list(items)
    inner = sorted(rand.sample(range(1, len(items) - 1), most - 2))
    return [items[0], *(items[i] for i in inner), items[-1]]


def good_reads(p: Problem, tables: Tables, access: Access, rand: Random) -> list[Arguments]:
    """Calls of a read tool that its schema must take: one for each row that it may be asked about."""
    return _distinct(_paged(p, tables, access, _bases(p, tables, access, rand), rand))


def bad_reads(p: Problem, tables: Tables, access: Access, rand: Random) -> list[Arguments]:
    """Calls of a read tool at the limits of each argument and past them, others as in a good call."""
    bases = sampled(good_reads(p, tables, access, rand), 3, rand)
    return _distinct(call for base in bases for call in _changed(p, tables, access, base, rand))


def _bases(p: Problem, tables: Tables, access: Access, rand: Random) -> Iterator[Arguments]:
    """Arguments of each row, then each key that an argument may name, then what no row has."""
    fixed: Arguments = {}
    if access.projection is not None:
        fixed[access.projection] = list(access.returned_columns)
    if not access.args:
        yield fixed
        return
    rows = tables.get(access.relation, {})
    kinds = argument_kinds(p, access)
    first: Arguments = {name: _default(kind) for name, kind in kinds.items()}
    for key in sampled(sorted(rows), KEYS, rand):
        cells = {name: rows[key][column] for name, column in access.args.items()}
        if None not in cells.values():
            first = {**fixed, **cells}
            yield first
    for name, kind in kinds.items():
        if kind == f"entity:{access.relation}":  # its rows are all in the first loop
            continue
        _, _, other = kind.partition("entity:")
        for key in sampled(sorted(tables.get(other, {})), KEYS, rand):
            yield {**fixed, **first, name: key}


def _default(kind: str) -> Scalar:
    texts: dict[str, Scalar] = {"date": "2025-01-31", "datetime": "2025-01-31T08:00", "bool": False}
    is_text = kind == "str" or kind.startswith("entity:")
    return texts.get(kind, "no such key" if is_text else 0)


def _paged(
    p: Problem, tables: Tables, access: Access, bases: Iterator[Arguments], rand: Random
) -> Iterator[Arguments]:
    """The calls with every page of what they list."""
    if access.mode != "page":
        yield from bases
        return
    for base in bases:
        value = reply(p, tables, access, {**base, "page": 1}).value
        pages = value["pages"] if isinstance(value, dict) else 1
        for page in sampled(range(1, int(str(pages)) + 1), PAGES, rand):
            yield {**base, "page": page}


def _changed(
    p: Problem, tables: Tables, access: Access, base: Arguments, rand: Random
) -> Iterator[Arguments]:
    for name, kind in argument_kinds(p, access).items():
        column = access.args[name]
        values = {row[column] for row in tables.get(access.relation, {}).values()}
        known = sorted(value for value in values if has_kind(kind, value))  # type: ignore[type-var]  # of one type
        for value in (*_around(sampled(known, VALUES, rand)), *ODD):
            yield {**base, name: value}
    if access.mode == "range":
        yield from _crossed(access, base)
    if access.projection is not None:
        for chosen in _projections(access.returned_columns):
            yield {**base, access.projection: chosen}
    if access.mode == "page":
        last = base["page"]
        for page in (0, -1, last - 1, last + 1, 10**6, *ODD):
            yield {**base, "page": page}


def _around(values: Sequence[Any]) -> Iterator[Any]:
    """Values, their neighbours, and texts that a careless comparison takes for them."""
    for value in values:
        if isinstance(value, str):
            near = (value.upper(), value.lower(), value + " ", value[:-1], value[:1] + "%")
            yield from (value, *near)
        else:
            yield from (value,) if isinstance(value, bool) else (value - 1, value, value + 1)


def _crossed(access: Access, base: Arguments) -> Iterator[Arguments]:
    """Each lower bound above its upper one, and equal to it."""
    for name, column in access.args.items():
        upper = f"max_{name.removeprefix('min_')}"
        if name.startswith("min_") and access.args.get(upper) == column:
            yield {**base, upper: base[name]}
            if type(base[name]) is int:
                yield {**base, upper: base[name] - 1}


def _projections(columns: Sequence[str]) -> Iterator[Any]:
    first, other = columns[0], "no such column"
    yield from ([column] for column in columns)
    yield from (list(columns[::-1]), [first, first], [], [other], [*columns, other])
    yield from (first, None, [None], [[first]], {first: 1}, [1])


def write_arguments(
    p: Problem, tables: Tables, access: Access, rand: Random
) -> list[tuple[Arguments, Reply]]:
    """Calls of a write tool with what the reference says of them, some of each outcome.

    Those that break one precondition and keep all others come first.
    """
    domains = [_domain(p, tables, access, name, rand) for name in access.args]
    every = prod(map(len, domains)) <= WRITES
    drawn = product(*domains) if every else _drawn(domains, rand)
    tried = [dict(zip(access.args, values, strict=True)) for values in islice(drawn, WRITES)]
    rand.shuffle(tried)
    by_outcome: dict[tuple[str | None, bool], list[tuple[Arguments, Reply]]] = {}
    for args in _distinct(iter(tried)):
        found = reply(p, tables, access, args)
        alone = _breaks_one(p, tables, access, args, found.error)
        by_outcome.setdefault((found.error, alone), []).append((args, found))
    order = sorted(by_outcome, key=lambda key: (not key[1], key[0] or ""))
    return [one for key in order for one in by_outcome[key][:PER_OUTCOME]]


def _breaks_one(
    p: Problem, tables: Tables, access: Access, args: Arguments, error: str | None
) -> bool:
    """Whether one precondition alone stands in the way of a call."""
    if error not in {pre.code for pre in access.pre}:
        return False
    each = (access.model_copy(update={"pre": (pre,), "effects": ()}) for pre in access.pre)
    return sum(reply(p, tables, one, args).error is not None for one in each) == 1


def _domain(p: Problem, tables: Tables, access: Access, name: str, rand: Random) -> list[Any]:
    """Values of a write tool's argument: keys, one that is not there, and both sides of every limit."""
    kind = argument_kinds(p, access)[name]
    known = argument_values(p, access, name, tables)
    if known is None:
        return [_default(kind), "" if isinstance(_default(kind), str) else 1]
    if isinstance(known, IntSpan):
        middle = (known.low + known.high) // 2
        limits = {known.low, known.low + 1, middle, known.high - 1, known.high}
        return sorted(limits | {known.low - 1, known.high + 1})
    missing = [value for value in ("no such key",) if has_kind(kind, value)]
    return [*sampled(known, KEYS, rand), *missing]


def _drawn(domains: Sequence[Sequence[Any]], rand: Random) -> Iterator[tuple[Any, ...]]:
    while all(domains):
        yield tuple(rand.choice(domain) for domain in domains)


def odd_writes(access: Access, base: Arguments) -> list[Arguments]:
    """Calls of a write tool with bad values, one argument at a time."""
    return _distinct({**base, name: value} for name in access.args for value in ODD)


def _distinct(calls: Iterator[Arguments]) -> list[Arguments]:
    """The calls without repeats, in order."""
    found: dict[str, Arguments] = {}
    for call in calls:
        found.setdefault(dumps([[name, repr(value)] for name, value in call.items()]), call)
    return list(found.values())

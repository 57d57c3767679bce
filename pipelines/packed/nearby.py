"""Answers beside one that is known to be right: one step, one swap or one item away.

They show what a verifier decides on. Nobody says whether they are right (some may be): a fault planted in
the verifier is seen where it changes the verdict on one of them.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from random import Random
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.schema import Validator

_NUMBER = re.compile(r"\d+(?!.*\d)", re.DOTALL)
_Path = tuple[str | int, ...]


def nearby(
    gold: JsonValue, fits: Validator, columns: Collection[Collection[str]], rand: Random, most: int
) -> list[JsonValue]:
    """Distinct answers one change away from one that is right, all of which fit its schema.

    Args:
        gold: the right answer.
        fits: the submit schema.
        columns: the texts of each column of the database: one may stand for another.
        rand: draws.
        most: answers to return at most.
    """
    changes = list(_changes(gold, columns, rand))
    rand.shuffle(changes)
    found: dict[str, JsonValue] = {}
    own = dumps(gold)
    for put in changes:
        answer = copy.deepcopy(gold)
        for path, value in put:
            answer = _with(answer, path, value)
        form = dumps(answer)
        if form != own and form not in found and fits.fault(answer) is None:
            found[form] = answer
            if len(found) == most:
                break
    return list(found.values())


def _changes(
    gold: JsonValue, columns: Collection[Collection[str]], rand: Random
) -> Iterator[list[tuple[_Path, JsonValue]]]:
    """What to put where, one change an item."""
    alike = defaultdict[tuple[type, int, str], list[tuple[_Path, JsonValue]]](list)
    for path, value in _nodes(gold):
        if isinstance(value, list):
            yield from ([(path, one)] for one in _lists(value))
        elif not isinstance(value, dict):
            yield from ([(path, one)] for one in _steps(value))
            last = next((step for step in reversed(path) if isinstance(step, str)), "")
            alike[type(value), len(path), last].append((path, value))
            pools = [sorted({*one} - {value}) for one in columns if value and value in one]
            for pool in pools:
                for text in rand.sample(pool, min(3, len(pool))):
                    yield [(path, text)]
    for places in alike.values():
        for path, value in places:
            other, swapped = rand.choice(places)
            yield [(path, swapped)]
            yield [(path, swapped), (other, value)]


def _lists(value: list[JsonValue]) -> Iterator[JsonValue]:
    for i in range(len(value)):
        yield [*value[:i], *value[i + 1 :]]
        yield [*value[: i + 1], *value[i:]]
        if i:
            yield [*value[: i - 1], value[i], value[i - 1], *value[i + 1 :]]


def _steps(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (value + 0.01, value - 0.01, value + 1, value - 1)
    elif isinstance(value, str) and (number := _NUMBER.search(value)):
        for step in (-1, 1):  # a time, a day, the number of a name
            moved = str(max(0, int(number[0]) + step)).zfill(len(number[0]))
            yield value[: number.start()] + moved + value[number.end() :]


def _nodes(value: JsonValue, path: _Path = ()) -> Iterator[tuple[_Path, JsonValue]]:
    yield path, value
    items: Any = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from _nodes(item, (*path, key))


def _with(root: JsonValue, path: _Path, value: JsonValue) -> JsonValue:
    if not path:
        return value
    place: Any = root
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return root

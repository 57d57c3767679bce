"""Between a submission, the slots in it, and the hashable values that are computed with."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from envgen.core.ir import Intervals, Layout, Slot


def slot_paths(layout: Layout, pointer: str = "") -> Iterator[tuple[str, str]]:
    """(slot name, JSON pointer) for each slot of ``layout``, in document order."""
    if isinstance(layout, dict):
        if set(layout) == {"$slot"}:
            yield str(layout["$slot"]), pointer
            return
        for key, item in layout.items():
            yield from slot_paths(item, f"{pointer}/{key}")
    elif isinstance(layout, list):
        for i, item in enumerate(layout):
            yield from slot_paths(item, f"{pointer}/{i}")


def match_layout(layout: Layout, answer: JsonValue) -> dict[str, JsonValue] | None:
    """The slot values of ``answer``, or None if its structure or a constant differs.

    Structure only: whether a value has its slot's type is for the caller. ``1`` is not ``True``.
    """
    values: dict[str, JsonValue] = {}
    return values if _match(layout, answer, values) else None


def _match(layout: Layout, answer: JsonValue, values: dict[str, JsonValue]) -> bool:
    if isinstance(layout, dict):
        if set(layout) == {"$slot"}:
            values[str(layout["$slot"])] = answer
            return True
        return (
            isinstance(answer, dict)
            and set(answer) == set(layout)
            and all(_match(item, answer[key], values) for key, item in layout.items())
        )
    if isinstance(layout, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(layout)
            and all(_match(a, b, values) for a, b in zip(layout, answer, strict=True))
        )
    return type(layout) is type(answer) and layout == answer


def fill_layout(layout: Layout, values: Mapping[str, JsonValue]) -> JsonValue:
    """The submission that holds ``values`` (slot name -> value)."""
    if isinstance(layout, dict):
        if set(layout) == {"$slot"}:
            return values[str(layout["$slot"])]
        return {key: fill_layout(item, values) for key, item in layout.items()}
    if isinstance(layout, list):
        return [fill_layout(item, values) for item in layout]
    return layout


def frozen(slot: Slot, value: Any) -> Any:
    """The hashable form of a slot's JSON value; None where the value isn't of the slot's kind.

    An interval gives ``(start, end)``, a set a sorted tuple, a sequence a tuple, a map a sorted tuple of
    pairs.
    """
    if slot.kind == "map":
        pairs = value.items() if isinstance(value, dict) else ()
        return tuple(sorted((key, _frozen(slot, item)) for key, item in pairs))
    if slot.kind in ("set", "sequence"):
        items = [_frozen(slot, item) for item in value] if isinstance(value, list) else []
        return ordered(items) if slot.kind == "set" else tuple(items)
    return _frozen(slot, value)


def ordered(items: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """The elements of a set in the one order in which it is compared."""
    return tuple(sorted(items, key=lambda item: (str(type(item)), 0 if item is None else item)))


def _frozen(slot: Slot, value: Any) -> Hashable:
    if isinstance(slot.domain, Intervals):
        span = (value.get("start"), value.get("end")) if isinstance(value, dict) else ()
        return span if [type(bound) for bound in span] == [int, int] else None
    return None if isinstance(value, list | dict) else value


def plain(slot: Slot, value: Any) -> Any:
    """The JSON form of a slot's hashable value."""
    if slot.kind == "map":
        return {key: _plain(slot, item) for key, item in value}
    if slot.kind in ("set", "sequence"):
        return [_plain(slot, item) for item in value]
    return _plain(slot, value)


def _plain(slot: Slot, value: Any) -> Any:
    if isinstance(slot.domain, Intervals) and value is not None:
        return {"start": value[0], "end": value[1]}
    return value

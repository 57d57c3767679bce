"""Between a submission and the slots in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from envgen.core.ir import Layout


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

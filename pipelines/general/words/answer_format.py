"""The form of the answer in the prompt: the layout as JSON with named holes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from envgen.core.errors import PipelineError
from envgen.core.ir import Choice, Intervals, IntRange, Layout, Query, Relation, Slot
from envgen.pipelines.general.semantics.layout import slot_paths
from envgen.pipelines.general.words.wording import Words, joined, matched

_WIDTH = 100
_Leaf = Callable[[str], str]


def answer_format(
    layout: Layout,
    slots: Sequence[Slot],
    relations: Iterable[Relation],
    placeholders: Mapping[str, str],
    words: Words,
) -> str:
    """The layout as JSON text, each slot a hole such as ``"<hotel name>"``, wrapped at 100 columns.

    Raises:
        PipelineError: for a slot whose values no prompt can describe.
    """
    keys = {relation.name: relation.key for relation in relations}
    holes = {}
    for slot in slots:
        name = matched(slot.name, placeholders) or _placeholder(slot, keys, words)
        quote = '"' if _is_text(slot) else ""
        hole = _MINUTES if slot.kind == "interval" else f"{quote}<{name}>{quote}"
        holes[slot.name] = f"[{hole}, ...]" if slot.kind == "set" else hole
    return _dump(layout, holes.__getitem__, "")


_MINUTES = '{"start": <minute>, "end": <minute>}'


def format_notes(layout: Layout, slots: Sequence[Slot], words: Words) -> list[str]:
    """Sentences on what the holes can hold that the format itself can't show."""
    by_name = {slot.name: slot for slot in slots}
    groups: dict[str, list[str]] = {}
    for name, _ in slot_paths(layout):
        slot, note = by_name[name], ""
        if isinstance(domain := slot.domain, Intervals):
            note = (
                f"times are minutes after midnight; `start` is {domain.low} or a later step of "
                f"{domain.step} minutes, `end` is `start` plus {domain.length}, and at most {domain.high}."
            )
        elif slot.kind == "set":
            exact = slot.least == slot.length
            size = f"exactly {slot.length}" if exact else f"{slot.least} to {slot.length}"
            note = f"a list of {size} different entries, in any order."
        if note:
            groups.setdefault(note, []).append(words.slot(name))
    return [f"About {joined(names)}: {note}" for note, names in groups.items()]


def _placeholder(slot: Slot, keys: Mapping[str, str], words: Words) -> str:
    domain = slot.domain
    computed = isinstance(domain, Query) and (domain.select is not None or domain.agg != "none")
    sized = slot.kind == "set" and slot.length is not None
    if computed or not (sized or slot.kind in ("entity", "value", "interval")):
        raise PipelineError(
            f"slot {slot.name!r}: a prompt can't ask for a {slot.kind} of that kind"
        )
    if isinstance(domain, Choice):
        shown = [str(_json(value)).strip('"') for value in domain.values]
        return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    if isinstance(domain, IntRange):
        step = f" in steps of {domain.step}" if domain.step != 1 else ""
        return f"whole number from {domain.low} to {domain.high}{step}"
    if isinstance(domain, Query):
        return words.noun(f"{domain.relation}.{keys[domain.relation]}").replace(".", " ")
    return words.noun(slot.name)


def _is_text(slot: Slot) -> bool:
    if isinstance(slot.domain, Choice):
        return all(isinstance(value, str) for value in slot.domain.values)
    return isinstance(slot.domain, Query)


def _dump(layout: Layout, leaf: _Leaf, indent: str) -> str:
    line = _line(layout, leaf)
    if len(indent) + len(line) <= _WIDTH or not isinstance(layout, dict | list):
        return line
    inner = indent + "  "
    if isinstance(layout, list):
        parts = [inner + _dump(item, leaf, inner) for item in layout]
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    if set(layout) == {"$slot"}:
        return line
    parts = [f"{inner}{_json(key)}: {_dump(item, leaf, inner)}" for key, item in layout.items()]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def _line(layout: Layout, leaf: _Leaf) -> str:
    if isinstance(layout, list):
        return f"[{', '.join(_line(item, leaf) for item in layout)}]"
    if isinstance(layout, dict):
        if set(layout) == {"$slot"}:
            return leaf(str(layout["$slot"]))
        items = [f"{_json(key)}: {_line(item, leaf)}" for key, item in layout.items()]
        return "{" + ", ".join(items) + "}"
    return _json(layout)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

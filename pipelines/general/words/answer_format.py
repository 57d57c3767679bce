"""How the prompt shows the form of the answer: the layout as JSON with named holes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import JsonValue

from envgen.core.ir import Choice, Get, Intervals, IntRange, Layout, Query, Relation, Slot
from envgen.pipelines.general.semantics.layout import slot_paths
from envgen.pipelines.general.words.wording import Words

_WIDTH = 100
_Leaf = Callable[[str], str]


def answer_format(
    layout: Layout,
    slots: Sequence[Slot],
    relations: Iterable[Relation],
    placeholders: Mapping[str, str],
    words: Words,
) -> str:
    """The layout as JSON text, each slot a hole such as ``"<hotel name>"``, wrapped at 100 columns."""
    by_name = {slot.name: slot for slot in slots}
    schema = {relation.name: relation for relation in relations}

    def leaf(name: str) -> str:
        slot = by_name[name]
        return _hole(slot, _placeholder(slot, schema, placeholders, words), schema)

    return _dump(layout, leaf, "")


def format_notes(layout: Layout, slots: Sequence[Slot], words: Words) -> list[str]:
    """Sentences on what the holes can hold that the format itself can't show."""
    shown = [name for name, _ in slot_paths(layout)]
    by_name = {slot.name: slot for slot in slots}
    groups: dict[str, list[str]] = {}
    for name in shown:
        note = _note(by_name[name])
        if note:
            groups.setdefault(note, []).append(words.slot(name))
    return [f"About {words.join(names)}: {note}" for note, names in groups.items()]


def _note(slot: Slot) -> str:
    domain = slot.domain
    if isinstance(domain, Intervals):
        return (
            f"times are minutes after midnight; `start` is {domain.low} or a later step of "
            f"{domain.step} minutes, `end` is `start` plus {domain.length}, and at most {domain.high}."
        )
    if slot.kind == "set" and slot.length is not None:
        return f"a list of at most {slot.length} different entries."
    return ""


def _placeholder(
    slot: Slot, schema: Mapping[str, Relation], placeholders: Mapping[str, str], words: Words
) -> str:
    for pattern, text in placeholders.items():
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[A-Za-z0-9]+", re.escape(pattern)), slot.name):
            return text
    domain = slot.domain
    if isinstance(domain, Choice):
        shown = [str(json.dumps(value, ensure_ascii=False)).strip('"') for value in domain.values]
        return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    if isinstance(domain, IntRange):
        step = f" in steps of {domain.step}" if domain.step != 1 else ""
        return f"whole number from {domain.low} to {domain.high}{step}"
    if isinstance(domain, Query) and domain.select is None and domain.agg == "none":
        key = f"{domain.relation}.{schema[domain.relation].key}"
        return words.noun(key).replace(".", " ")
    return words.noun(slot.name)


def _hole(slot: Slot, text: str, schema: Mapping[str, Relation]) -> str:
    if slot.kind == "interval":
        return '{"start": <minute>, "end": <minute>}'
    value = f'"<{text}>"' if _is_text(slot, schema) else f"<{text}>"
    if slot.kind in ("set", "sequence"):
        return f"[{value}, ...]"
    if slot.kind == "map":
        return f'{{"<{slot.key_domain.relation if slot.key_domain else "key"}>": {value}, ...}}'
    return value


def _is_text(slot: Slot, schema: Mapping[str, Relation]) -> bool:
    domain = slot.domain
    if isinstance(domain, Choice):
        return all(isinstance(value, str) for value in domain.values)
    if not isinstance(domain, Query):
        return False
    if domain.select is None or domain.agg != "none":
        return domain.agg == "none"
    if isinstance(domain.select, Get):
        kind = schema[domain.select.relation].column(domain.select.column).type
        return kind in ("str", "date", "datetime") or kind.startswith("entity:")
    return False


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


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)

"""Between a variant and the little that is stored of it: what differs from its parent."""

from __future__ import annotations

import json
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import dumps, sha256
from envgen.core.errors import DatasetError
from envgen.core.types import (
    Density,
    Evidence,
    FileRef,
    GateResult,
    GoldRun,
    PublicRule,
    Split,
    TaskSpec,
)
from envgen.store.bundles import TaskBundle, VariantRow, gold_lines
from envgen.store.pack import PackBase, PackRow
from envgen.store.sqlite_files import Snapshot, delta, undelta

_TEXTS = ("prompt", "solution", "verifier", "constraints", "submit_schema", "rules")


def pack_base(bundle: TaskBundle) -> PackBase:
    """Return the part that the variants of ``bundle``'s task share."""
    spec = bundle.spec.model_dump(mode="json", exclude={"evidence", "pass_at", "prompt"})
    task: dict[str, JsonValue] = {
        "spec": {**spec, "submit_schema": None, "rules": [], "probes": None},
        **_texts(bundle),
    }
    return PackBase(bundle.spec.id, bundle.spec.environment_id, task, bundle.spec.evidence)


def _texts(bundle: TaskBundle) -> dict[str, JsonValue]:
    return {
        "prompt": bundle.spec.prompt,
        "solution": bundle.solution,
        "verifier": bundle.verifier,
        "constraints": dumps(bundle.constraints),
        "submit_schema": dumps(bundle.spec.submit_schema),
        "rules": dumps([rule.model_dump(mode="json") for rule in bundle.spec.rules]),
    }


def pack_row(base: PackBase, row: VariantRow, split: Split) -> PackRow:
    """The delta of ``row`` to its parent.

    Raises:
        DatasetError: if its database has another schema than the parent's.
    """
    texts: dict[str, str | None] = {
        "prompt": row.prompt,
        "solution": row.solution,
        "verifier": row.verifier,
        "constraints": None if row.constraints is None else dumps(row.constraints),
        "submit_schema": None if row.submit_schema is None else dumps(row.submit_schema),
        "rules": None
        if row.rules is None
        else dumps([x.model_dump(mode="json") for x in row.rules]),
    }
    packed: dict[str, JsonValue] = {
        name: _text_delta(text, str(base.task[name]))
        for name, text in texts.items()
        if text is not None and text != base.task[name]
    }
    packed["seed"] = row.seed
    packed["gold"] = row.gold.model_dump(mode="json")
    if row.density is not None:
        packed["density"] = row.density.model_dump(mode="json")
    return PackRow(row.task_id, "", split, packed, row.evidence)


def pack_tables(parent: Snapshot, own: Snapshot, task_id: str) -> dict[str, Any]:
    """The rows of ``own`` that differ from the parent's database.

    Raises:
        DatasetError: if the schemas differ.
    """
    if own.statements != parent.statements:
        raise DatasetError(
            f"the database of variant {task_id!r} has another schema than its parent"
        )
    changed = {name: delta(rows, parent.tables[name]) for name, rows in own.tables.items()}
    return {name: rows for name, rows in changed.items() if rows is not None}


def unpack_tables(parent: Snapshot, row: PackRow) -> dict[str, list[list[object]]]:
    """All rows of a variant's database."""
    changed = row.delta.get("tables", {})
    if not isinstance(changed, dict) or not set(changed) <= set(parent.tables):
        raise DatasetError(f"variant {row.id!r} changes tables that its parent does not have")
    tables = {}
    for name, rows in parent.tables.items():
        item = changed.get(name)
        if item is not None and not isinstance(item, list):
            raise DatasetError(f"variant {row.id!r} holds no rows for table {name!r}")
        tables[name] = undelta(list(item) if item is not None else None, rows)
    return tables


def unpack(base: PackBase, row: PackRow) -> TaskBundle:
    """The whole task of a variant.

    Raises:
        DatasetError: if the row is corrupt.
    """
    try:
        texts = {name: _undelta_text(row.delta.get(name), str(base.task[name])) for name in _TEXTS}
        gold = GoldRun.model_validate(row.delta["gold"])
        spec = _spec(base, row, texts, gold)
        return TaskBundle(
            spec=spec,
            solution=texts["solution"],
            verifier=texts["verifier"],
            constraints=json.loads(texts["constraints"]),
            gold=gold,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"variant {row.id!r} is corrupt: {error}") from error


def _spec(base: PackBase, row: PackRow, texts: dict[str, str], gold: GoldRun) -> TaskSpec:
    shared = base.task["spec"]
    if not isinstance(shared, dict):
        raise DatasetError(f"the variants of {base.parent!r} have no shared spec")
    parent = TaskSpec.model_validate({**shared, "prompt": texts["prompt"]})
    density = row.delta.get("density")
    difficulty = parent.difficulty.model_copy(
        update={
            "density": None if density is None else Density.model_validate(density),
            "gold_calls": len(gold.calls),
            "distinct_tools": len({call.name for call in gold.calls}),
            # Depth and shortcuts are those of all re-seeds; these are not measured on each.
            "calls_upper_bound": None,
            "facts_upper_bound": None,
            "gold_tokens": None,
        }
    )
    files = {
        "solution": "solution.py",
        "verifier": "verifier.py",
        "constraints": "constraints.json",
    }
    references = {
        name: FileRef(path=path, sha256=sha256(texts[name]))
        for name, path in files.items()
        if getattr(parent, name) is not None
    }
    references["gold"] = FileRef(path="gold.jsonl", sha256=sha256(gold_lines(gold)))
    return TaskSpec.model_validate(
        {
            **parent.model_dump(),
            **references,
            "id": row.id,
            "submit_schema": json.loads(texts["submit_schema"]),
            "rules": [PublicRule.model_validate(rule) for rule in json.loads(texts["rules"])],
            "split": row.split,
            "variant_of": base.parent,
            "difficulty": difficulty,
            "evidence": _evidence(base, row),
            "pass_at": row.pass_at,
        }
    )


def _evidence(base: PackBase, row: PackRow) -> Evidence:
    own = {gate.gate for gate in row.evidence}
    inherited: list[GateResult] = [
        gate.model_copy(
            update={"inherited_from": gate.inherited_from or base.parent, "details": {}}
        )
        for gate in base.evidence
        if gate.gate not in own
    ]
    return (*row.evidence, *inherited)


def _text_delta(text: str, parent: str) -> JsonValue:
    head = _common_prefix(text, parent)
    tail = _common_prefix(text[head:][::-1], parent[head:][::-1])
    return [head, tail, text[head : len(text) - tail]]


def _common_prefix(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _undelta_text(packed: JsonValue, parent: str) -> str:
    if packed is None:
        return parent
    if not isinstance(packed, list) or len(packed) != 3:
        raise ValueError("a text delta has three parts")
    head, tail, middle = packed
    if not (isinstance(head, int) and isinstance(tail, int) and isinstance(middle, str)):
        raise ValueError("a text delta is two lengths and a text")
    if head < 0 or tail < 0 or head + tail > len(parent):
        raise ValueError("a text delta that is longer than its parent")
    return parent[:head] + middle + (parent[len(parent) - tail :] if tail else "")

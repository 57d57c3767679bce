"""Bundles: a dataset's records with their files' contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from envgen.core.canonical import dumps
from envgen.core.errors import DatasetError
from envgen.core.limits import Blob, Json, Label, Text, Whole
from envgen.core.types import (
    CallRecord,
    Density,
    EnvironmentSpec,
    Evidence,
    GoldRun,
    Id,
    Probe,
    PublicRule,
    Record,
    Schema,
    TaskSpec,
)


class EnvironmentBundle(Record):
    """An environment as a pipeline hands it to the writer, which fills in the file references."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    spec: EnvironmentSpec
    database: Blob | None = None
    """A whole SQLite file."""
    tools_source: Text = ""
    blueprint: Json = None
    attachments: dict[Label, Path] = Field(default_factory=dict)
    """More files, by the name they get. The blueprint names the hash of each (``attachment_hashes``)."""


class EnvironmentFiles(Record):
    """An environment as the reader hands it out: the database is a path, to be opened read-only."""

    spec: EnvironmentSpec
    database: Path | None = None
    tools_source: Text = ""
    blueprint: Json = None
    attachments: dict[Label, Path] = Field(default_factory=dict)
    """The files that the blueprint names, never to be written."""

    def bundle(self) -> EnvironmentBundle:
        """The environment as the writer takes it."""
        return EnvironmentBundle(
            spec=self.spec,
            database=self.database.read_bytes() if self.database else None,
            tools_source=self.tools_source,
            blueprint=self.blueprint,
            attachments=self.attachments,
        )


class TaskBundle(Record):
    """A task with its secrets: solution, verifier, rules, gold run and probes."""

    spec: TaskSpec
    solution: Text = ""
    verifier: Text = ""
    constraints: Json = None
    gold: GoldRun | None = None
    probes: tuple[Probe, ...] = ()


TEXTS = ("solution", "verifier", "constraints", "gold", "probes")
"""The fields of a task that are texts of their own, each named by its hash."""


def parse_bundle(spec: TaskSpec, texts: Mapping[str, str]) -> TaskBundle:
    """A task of its record and its texts, by field.

    Raises:
        DatasetError: if a text is not of its form.
    """
    return TaskBundle(
        spec=spec,
        solution=texts.get("solution", ""),
        verifier=texts.get("verifier", ""),
        constraints=parse_json(texts["constraints"], "constraints.json")
        if "constraints" in texts
        else None,
        gold=parse_gold(texts["gold"]) if "gold" in texts else None,
        probes=parse_probes(texts["probes"]) if "probes" in texts else (),
    )


def parse_json(text: str, name: str) -> JsonValue:
    """The JSON in a text of that name.

    Raises:
        DatasetError: if it is something else.
    """
    try:
        return _JSON.validate_json(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{name} is not JSON: {error}") from error


_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


class VariantRow(Record):
    """A proven task on other rows, with re-bound parameters; everything else is its parent's.

    A field left None is the parent's. ``solution`` and ``verifier`` are whole texts; the writer
    keeps only what differs from the parent.
    """

    task_id: Id
    seed: Whole
    prompt: Text | None = None
    solution: Text | None = None
    verifier: Text | None = None
    constraints: Json = None
    submit_schema: Schema | None = None
    rules: tuple[PublicRule, ...] | None = None
    gold: GoldRun
    database: Blob | None = Field(default=None, repr=False)
    """A whole SQLite file with the parent's schema."""
    density: Density | None = None
    split: Literal["train", "validation", "test"] | None = None
    """None: the writer derives it from the database's content."""
    evidence: Evidence = ()
    """Gates run on this variant; the parent's others are recorded as inherited."""


PAGE = "page"
"""Where a blueprint holds its domain's page, as JSON text. Datasets keep each page once, by its hash."""
PAGES = "domains"
"""The folder of a dataset that holds them."""
ATTACHMENTS = "files"
"""Where a blueprint names its environment's attachments: name -> SHA-256."""


def attachment_hashes(blueprint: JsonValue) -> dict[str, str]:
    """The attachments that a blueprint names; their hashes make them part of the environment's identity.

    Raises:
        DatasetError: if what stands there is no mapping of names to hashes.
    """
    found = blueprint.get(ATTACHMENTS, {}) if isinstance(blueprint, dict) else {}
    if not isinstance(found, dict) or not all(isinstance(x, str) for x in found.values()):
        raise DatasetError("the files of a blueprint must map names to hashes")
    return {name: str(value) for name, value in found.items()}


PARAMS_PREFIX = "PARAMS = "


def gold_lines(gold: GoldRun) -> str:
    """``gold.jsonl``: one line a call, the answer on the last line."""
    lines = [dumps({"call": call.model_dump(mode="json")}) for call in gold.calls]
    return "\n".join([*lines, dumps({"answer": gold.answer})]) + "\n"


def parse_gold(text: str) -> GoldRun:
    """The gold run in a ``gold.jsonl``.

    Raises:
        DatasetError: if the text is no gold log.
    """
    try:
        lines = [json.loads(line) for line in text.splitlines()]
        if not lines or set(lines[-1]) != {"answer"} or any(set(x) != {"call"} for x in lines[:-1]):
            raise DatasetError("gold.jsonl holds no gold run")
        calls = tuple(CallRecord.model_validate(line["call"]) for line in lines[:-1])
        return GoldRun(calls=calls, answer=lines[-1]["answer"])
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"gold.jsonl is not a valid gold run: {error}") from error


def probe_lines(probes: tuple[Probe, ...]) -> str:
    """``probes.jsonl``: one probe a line."""
    return "".join(dumps(probe) + "\n" for probe in probes)


def parse_probes(text: str) -> tuple[Probe, ...]:
    """The probes in a ``probes.jsonl``.

    Raises:
        DatasetError: if the text holds something else.
    """
    try:
        return tuple(Probe.model_validate_json(line) for line in text.splitlines())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"probes.jsonl holds something other than probes: {error}") from error

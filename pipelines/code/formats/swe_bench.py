"""SWE-bench and those that took its fields over: Live, rebench, SWE-Gym, SWE-benchify, Nemotron's rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError
from envgen.pipelines.code.formats import base
from envgen.pipelines.code.formats.base import Row

_READ = frozenset(
    {
        *("instance_id", "repo", "base_commit", "patch", "test_patch", "problem_statement"),
        *("hints_text", "created_at", "version", "FAIL_TO_PASS", "PASS_TO_PASS", "license"),
        *("pull_number", "pr_number", "issue_numbers", "merge_commit"),
    }
)


@dataclass(frozen=True)
class SweBench:
    """SWE-bench's fields, in one data set's manner."""

    name: str
    lists: Literal["text", "list"] = "text"
    """How test ids are written: as JSON text, as SWE-bench does, or as a list."""
    dates: Literal["iso", "space", "milliseconds"] = "iso"
    hints: str = "hints_text"
    """The field that holds the hints when it is written."""

    def read(self, row: Row) -> Instance:
        """A record as an instance."""
        row = unwrapped(row)
        gold, test = base.patch(row, "patch"), base.patch(row, "test_patch")
        name = base.text(row, "instance_id", required=True)
        if not gold:
            raise ConfigError(f"record {name!r} has no patch", "nothing can prove it")
        known = base.text(row, "problem_statement")
        fields = {
            "id": name,
            "repo": base.text(row, "repo", required=True),
            "base_commit": base.text(row, "base_commit", required=True),
            "head_commit": base.text(row, "merge_commit") or None,
            "language": base.language_of(row, (gold, test), "repo_language", "language"),
            "kind": "issue",
            "pull_number": _pull(row, name),
            "issue_numbers": _issues(row),
            "problem_statement": known,
            "hints": base.text(row, "hints_text"),
            "gold_patch": gold,
            "test_patch": test,
            "created_at": base.instant(row.get("created_at")),
            "version": base.text(row, "version"),
            "licence": base.text(row, "license"),
            "expected_fail_to_pass": base.names(row, "FAIL_TO_PASS"),
            "expected_pass_to_pass": base.names(row, "PASS_TO_PASS"),
            "extra": base.rest(row, _READ),
        }
        return base.build_instance(name, fields)

    def write(
        self, instance: Instance, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str]
    ) -> dict[str, Any]:
        """An instance as a record."""
        row: dict[str, Any] = {
            "repo": instance.repo,
            "instance_id": instance.id,
            "base_commit": instance.base_commit,
            "patch": instance.gold_patch,
            "test_patch": instance.test_patch,
            "problem_statement": instance.problem_statement,
            "hints_text": instance.hints,
            "created_at": written_date(instance.created_at, self.dates),
            "version": instance.version,
            "FAIL_TO_PASS": self._list(fail_to_pass),
            "PASS_TO_PASS": self._list(pass_to_pass),
        }
        if instance.licence:
            row["license"] = instance.licence
        if instance.pull_number is not None:
            row["pull_number"] = instance.pull_number
        if instance.issue_numbers:
            row["issue_numbers"] = list(instance.issue_numbers)
        if instance.head_commit:
            row["merge_commit"] = instance.head_commit
        if instance.language != "python":
            row["repo_language"] = instance.language
        return {**row, **base.given_back(instance)}

    def _list(self, ids: Sequence[str]) -> str | list[str]:
        return json.dumps(list(ids)) if self.lists == "text" else list(ids)


def unwrapped(row: Row) -> Row:
    """The record inside a row of Nemotron's (``responses_create_params``, ``instance``), or the row."""
    params = row.get("responses_create_params")
    metadata = params.get("metadata") if isinstance(params, Mapping) else None
    inner = metadata.get("instance_dict") if isinstance(metadata, Mapping) else row.get("instance")
    if isinstance(inner, str):
        try:
            inner = json.loads(inner)
        except ValueError as error:
            raise ConfigError(f"instance_dict is not valid JSON: {error}") from None
    return inner if isinstance(inner, Mapping) else row


def written_date(iso: str, form: Literal["iso", "space", "milliseconds"]) -> str | int:
    """A date as a data set writes it."""
    if not iso or form == "iso":
        return iso
    when = datetime.fromisoformat(iso)
    return when.strftime("%Y-%m-%d %H:%M:%S") if form == "space" else round(when.timestamp() * 1000)


def _pull(row: Row, name: str) -> int | None:
    """The pull request's number: a field, or the end of an id like ``owner__name-12``."""
    for field in ("pull_number", "pr_number"):
        if isinstance(row.get(field), int):
            return int(row[field])
    match = re.fullmatch(r"[\w.-]+__[\w.-]+-(\d{1,7})", name)
    return int(match.group(1)) if match else None


def _issues(row: Row) -> tuple[int, ...]:
    value = row.get("issue_numbers")
    found = value if isinstance(value, list | tuple) else ()
    return tuple(int(v) for v in found if str(v).isdigit())

"""What a format is, and how the fields that all formats share are read and written.

Published records disagree on the smallest things: lists are lists or JSON texts, dates come in four forms,
and half the fields exist in one data set only. What ``Instance`` has no place for is kept in
``Instance.extra`` as JSON, field by field, so that an export gives it back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Protocol, get_args

from pydantic import ValidationError

from envgen.core.code_types import CodeLanguage, Instance
from envgen.core.errors import ConfigError
from envgen.core.limits import fault
from envgen.core.patches import split_patch

RECIPE = "envgen_recipe"
"""A field that our exports add to every format: how the instance was built, as JSON text."""
Row = Mapping[str, Any]
"""A record as JSON or parquet gives it."""

LANGUAGES: Mapping[str, CodeLanguage] = {
    **{name: name for name in get_args(CodeLanguage)},
    **{"py": "python", "js": "javascript", "ts": "typescript", "c++": "cpp", "golang": "go"},
}
_SUFFIXES: Mapping[str, CodeLanguage] = {
    **{".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript"},
    **{".jsx": "javascript", ".ts": "typescript", ".tsx": "typescript", ".c": "c", ".go": "go"},
    **{".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".hpp": "cpp", ".java": "java", ".php": "php"},
}


class RecordFormat(Protocol):
    """One way to write instances down."""

    @property
    def name(self) -> str:
        """As ``--format`` takes it."""
        ...

    def read(self, row: Row) -> Instance:
        """A record as an instance.

        Raises:
            ConfigError: naming the record and what is wrong with it.
        """
        ...

    def write(
        self, instance: Instance, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str]
    ) -> dict[str, Any]:
        """An instance as a record; the test ids are written as they are given."""
        ...


def build_instance(name: str, fields: Mapping[str, Any]) -> Instance:
    """The instance that a record's fields describe, once its types have checked them.

    Raises:
        ConfigError: naming the record, the field and what is wrong with it.
    """
    try:
        return Instance.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(f"record {name[:80]!r}: {fault(error)}") from None


def named(row: Row, *fields: str) -> str:
    """What a record calls itself, for messages."""
    return next((str(row[f]) for f in fields if row.get(f)), "without an id")


def text(row: Row, field: str, *, required: bool = False) -> str:
    """A field as text; missing and null are empty.

    Raises:
        ConfigError: if it is required and missing, or no text.
    """
    value = row.get(field)
    if value is None:
        if required:
            who = named(row, "instance_id", "id", "number")
            raise ConfigError(f"record {who!r} has no {field!r}", "is it of another format?")
        return ""
    if not isinstance(value, str):
        who = named(row, "instance_id", "id", "number")
        raise ConfigError(f"record {who!r}: {field!r} is {type(value).__name__}, not text")
    if any("\ud800" <= c <= "\udfff" for c in value):
        who = named(row, "instance_id", "id", "number")
        raise ConfigError(f"record {who!r}: {field!r} holds half a character (a lone surrogate)")
    return value


def names(row: Row, field: str) -> tuple[str, ...]:
    """A list of test ids, given as a list or as the JSON text of one.

    Raises:
        ConfigError: if it is neither.
    """
    value = row.get(field)
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except ValueError:
            value = None
    elif value is not None and hasattr(value, "tolist"):
        value = value.tolist()
    value = [] if row.get(field) is None else value
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        who = named(row, "instance_id", "id", "number")
        raise ConfigError(f"record {who!r}: {field!r} must be a list of texts")
    return tuple(value)


def instant(value: object) -> str:
    """A date in ISO 8601, UTC; empty for none.

    Args:
        value: ISO with or without a zone, ``YYYY-MM-DD HH:MM:SS``, or an integer of milliseconds
            (of seconds, if it is small).

    Raises:
        ConfigError: for anything else.
    """
    if value is None or value == "":
        return ""
    try:
        if isinstance(value, datetime):
            when = value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            when = datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        else:
            when = datetime.fromisoformat(str(value).strip())
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{value!r} is not a date", "write it like 2023-01-31T12:00:00Z or in milliseconds"
        ) from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def patch(row: Row, field: str) -> str:
    """A patch whose parts can all be read, ended by a newline; empty for none.

    Raises:
        ConfigError: naming the record, if it is cut off or no git diff.
    """
    value = text(row, field)
    if not value.strip():
        return ""
    value = value if value.endswith("\n") else value + "\n"
    try:
        split_patch(value.encode())
    except ConfigError as error:
        who = named(row, "instance_id", "id", "number")
        raise ConfigError(f"record {who!r}: {field!r}: {error}", error.hint) from None
    return value


def language_of(row: Row, patches: Iterable[str], *fields: str) -> CodeLanguage:
    """The language that a record names, or else most of its source files are written in.

    Raises:
        ConfigError: if it is none that envgen builds.
    """
    for field in fields:
        if row.get(field):
            found = LANGUAGES.get(str(row[field]).lower())
            if found is None:
                who = named(row, "instance_id", "id", "number")
                raise ConfigError(
                    f"record {who!r} is in {row[field]!r}",
                    f"one of {', '.join(get_args(CodeLanguage))}",
                )
            return found
    parts = [part for text in patches for part in split_patch(text.encode())]
    suffixes = (_SUFFIXES.get(PurePosixPath(part.path).suffix.lower()) for part in parts)
    counts = Counter(language for language in suffixes if language)
    return counts.most_common(1)[0][0] if counts else "python"


def rest(row: Row, read: Collection[str]) -> dict[str, str]:
    """The fields that nothing has read, as JSON, in order."""
    return {
        str(name): json.dumps(_plain(value), ensure_ascii=False)
        for name, value in row.items()
        if name not in read and name != RECIPE
    }


def given_back(instance: Instance) -> dict[str, Any]:
    """The fields that ``rest`` kept."""
    return {name: json.loads(value) for name, value in instance.extra.items()}


def _plain(value: object) -> object:
    """What parquet gives (arrays, dates) as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value

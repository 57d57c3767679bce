"""Files of records: instances as JSON lines, and published data sets as JSON, JSON lines or parquet."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from envgen.core.code_types import Instance, Recipe
from envgen.core.errors import ConfigError
from envgen.core.limits import fault
from envgen.pipelines.code.formats import Row, detect_format, record_format
from envgen.pipelines.code.formats.base import RECIPE
from envgen.pipelines.code.mine import Rejected
from envgen.store.parquet_rows import parquet_rows

LINE_CHARS = 1 << 27
"""Of a record in a file of JSON lines."""
DOCUMENT_CHARS = 1 << 30
"""Of a file that is one JSON document."""
_SPLIT = "give it as JSON lines, a record a line"


def read_instances(path: Path) -> Iterator[Instance]:
    """The instances of a file that ``write_instances`` wrote.

    Raises:
        ConfigError: with file and line, if a line is none.
    """
    for i, line in enumerate(_opened(path), 1):
        if line.strip():
            try:
                yield Instance.model_validate_json(line)
            except ValidationError as error:
                raise ConfigError(
                    f"{path}:{i} is not an instance: {fault(error)}",
                    "import published records with their format",
                ) from None


def write_instances(path: Path, instances: Iterable[Instance]) -> int:
    """Write instances as JSON lines, in one step; how many there were."""
    return _write(path, (instance.model_dump_json() for instance in instances))


def read_rows(path: Path) -> Iterator[Row]:
    """The records of a file: ``.jsonl`` or ``.json`` (a list or table of them), also ``.gz``; ``.parquet``.

    Raises:
        ConfigError: if the file is none of them, or broken.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        yield from parquet_rows(path)
    elif name.endswith((".jsonl", ".ndjson")):
        for i, line in enumerate(_opened(path), 1):
            if line.strip():
                yield _row(_parsed(line, f"{path}:{i}"), f"{path}:{i}")
    elif name.endswith(".json"):
        yield from _json(path)
    else:
        raise ConfigError(
            f"{str(path)!r} is not a file of records", "give .jsonl, .json or .parquet"
        )


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Write records as JSON lines or parquet, by the file's name; how many there were."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist([dict(row) for row in rows])
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        pq.write_table(table, part)
        part.replace(path)
        return int(table.num_rows)
    return _write(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def import_file(path: Path, format_name: str | None = None) -> Iterator[Instance | Rejected]:
    """A published data set's instances; a record that can't be read is rejected with its reason.

    Args:
        path: the file.
        format_name: None: by each record's fields.

    Raises:
        ConfigError: if the file or the format is unknown.
    """
    chosen = record_format(format_name) if format_name else None
    for i, row in enumerate(read_rows(path), 1):
        try:
            yield _with_recipe((chosen or detect_format(row)).read(row), row)
        except ConfigError as error:
            name = str(row.get("instance_id") or f"{path.name}:{i}")
            yield Rejected(
                id=name[:200],
                repo=str(row.get("repo") or "")[:200],
                head_commit="",
                stage="record",
                reasons=(str(error),),
            )


def _with_recipe(instance: Instance, row: Row) -> Instance:
    """The instance with the recipe that an export of ours has added."""
    kept = row.get(RECIPE)
    if not isinstance(kept, str):
        return instance
    try:
        return instance.model_copy(update={"recipe": Recipe.model_validate_json(kept)})
    except ValidationError as error:
        raise ConfigError(f"record {instance.id!r}: {RECIPE} is not a recipe: {error}") from None


def _opened(path: Path, most: int = LINE_CHARS) -> Iterator[str]:
    """The lines of a file, each of so many characters at most: a packed one may have no end."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8", newline="\n") as file:
            while line := file.readline(most + 1):
                if len(line) > most:
                    raise ConfigError(f"{str(path)!r} has a line above {most} characters", _SPLIT)
                yield line
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}", "check the path") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid JSON: {error}", "is the file whole?") from None


def _row(value: Any, where: str) -> Row:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is a {type(value).__name__}, not a record")
    return value


def _json(path: Path) -> Iterator[Row]:
    parts, size = [], 0
    for part in _opened(path, DOCUMENT_CHARS):
        parts.append(part)
        size += len(part)
        if size > DOCUMENT_CHARS:
            raise ConfigError(f"{str(path)!r} is above {DOCUMENT_CHARS} characters", _SPLIT)
    value = _parsed("".join(parts), str(path))
    if isinstance(value, Mapping):
        lists = [v for v in value.values() if isinstance(v, list)]
        if "instance_id" in value or "fix_patch" in value:
            value = [value]
        elif len(lists) == 1:  # {"data": [...]}
            value = lists[0]
        else:  # {id: record}
            value = list(value.values())
    for i, row in enumerate(value if isinstance(value, list) else [value]):
        yield _row(row, f"{path}[{i}]")


def _write(path: Path, lines: Iterable[str]) -> int:
    count = 0
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(line + "\n")
                count += 1
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return count

"""Read the folder that a person packs. Everything in it is hostile until its type has checked it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from envgen.core.errors import ConfigError, DatasetError
from envgen.core.jsonvalues import JsonError, strict_loads
from envgen.core.limits import Json, Label
from envgen.core.schema import Validator
from envgen.core.types import Id, Limits, Record, Schema, Split, ToolSpec
from envgen.pipelines.packed.specs import derived_specs
from envgen.store.manifest import walk_files
from envgen.store.sqlite_files import inspect, tables_of

MAX_TEXT = 4 << 20
MAX_DATABASE = 1 << 30
_STEPS = 500
"""Of a million SQLite instructions each: what a database.sql may take."""
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TASK_FILES = frozenset(
    {"prompt.md", "submit.json", "verifier.py", "solution.py", "answers.json", "task.json"}
)
_FILES = frozenset(
    {"tools.py", "tools.json", "database.sqlite", "database.sql", "environment.json", "policy.md"}
)
_SPECS = TypeAdapter(tuple[ToolSpec, ...])
S = TypeVar("S", bound=Record)


class EnvironmentSettings(Record):
    """``environment.json``; every field is optional."""

    id: Id | None = None
    """None: the folder's name."""
    category: Id = "custom"
    title: str = Field(default="", max_length=200)
    description: str = Field(default="", max_length=4_000)
    language: str = Field(default="en", pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
    licence: str = Field(default="unknown", max_length=100)
    sources: tuple[Label, ...] = Field(default=(), max_length=100)


class TaskSettings(Record):
    """``task.json``; every field is optional."""

    level: int = Field(default=1, ge=1, le=10)
    split: Split = "train"
    limits: Limits = Limits()
    any_rows: bool = False
    """Solution and verifier hold for other rows of the same tables, too."""
    allowed_writes: tuple[Id, ...] = Field(default=(), max_length=100)
    """Tools that agents may call more often, or on other rows, than the task asks."""


class Answers(Record):
    """``answers.json``: answers that the author knows to be right or wrong."""

    right: tuple[Json, ...] = Field(default=(), max_length=200)
    wrong: tuple[Json, ...] = Field(default=(), max_length=200)


class TaskFolder(NamedTuple):
    """A task as its author wrote it."""

    id: Label
    prompt: Label
    submit_schema: Schema
    verifier: Label
    solution: Label
    """Empty where there is none."""
    answers: Answers
    settings: TaskSettings


class EnvironmentFolder(NamedTuple):
    """An environment as its author wrote it, and its tasks."""

    id: Label
    settings: EnvironmentSettings
    tools: tuple[ToolSpec, ...]
    tools_source: Label
    policy_text: Label
    database: bytes
    tasks: tuple[TaskFolder, ...]


def read_folder(path: Path) -> EnvironmentFolder:
    """Read everything in the folder, and check what can be checked without running it.

    Raises:
        ConfigError: saying what is missing or wrong, and what to write.
    """
    if not path.is_dir():
        raise ConfigError(f"no such folder: {str(path)!r}", "see docs/pack.md for what to write")
    try:
        names = list(walk_files(path))
    except DatasetError as error:
        raise ConfigError(str(error), "copy what the link leads to into the folder") from error
    _check_names(names)
    settings = _settings(path / "environment.json", EnvironmentSettings)
    source = _text(path / "tools.py", "the functions that agents call")
    policy = _text(path / "policy.md") if (path / "policy.md").exists() else ""
    tools = _tools(path, source)
    tasks = tuple(_task(folder, policy, tools) for folder in sorted((path / "tasks").glob("*")))
    if not tasks:
        raise ConfigError(
            f"{str(path)!r} holds no task", "write tasks/<name>/prompt.md, submit.json, verifier.py"
        )
    return EnvironmentFolder(
        id=_environment_id(path, settings),
        settings=settings,
        tools=tools,
        tools_source=source,
        policy_text=policy,
        database=_database(path),
        tasks=tasks,
    )


def _check_names(names: list[str]) -> None:
    """Refuse unknown files: a misspelt name would otherwise be ignored silently."""
    for name in names:
        parts = name.split("/")
        if "__pycache__" in parts or parts[-1] in (".DS_Store", "README.md"):
            continue
        if parts[0] == "tasks" and len(parts) > 1:
            if not _ID.fullmatch(parts[1]):
                raise ConfigError(
                    f"the task folder {parts[1]!r} is not named like a task",
                    "use up to 64 of a-z, 0-9, - and _",
                )
            known = len(parts) == 3 and parts[2] in _TASK_FILES
            allowed = sorted(_TASK_FILES)
        else:
            known, allowed = name in _FILES, sorted(_FILES)
        if not known:
            raise ConfigError(f"{name!r} has no place here", f"there may be {', '.join(allowed)}")


def _environment_id(path: Path, settings: EnvironmentSettings) -> str:
    if settings.id is not None:
        return settings.id
    name = path.resolve().name.lower().replace(" ", "-")
    if not _ID.fullmatch(name):
        raise ConfigError(
            f"the folder's name {path.resolve().name!r} is not an id",
            'write {"id": ...} to environment.json',
        )
    return name


def _tools(path: Path, source: str) -> tuple[ToolSpec, ...]:
    file = path / "tools.json"
    if not file.exists():
        return derived_specs(source)
    try:
        specs = _SPECS.validate_python(_json(file))
    except ValidationError as error:
        raise ConfigError(f"tools.json: {_first(error)}", "see docs/pack.md") from error
    if not specs or len({spec.name for spec in specs}) < len(specs):
        raise ConfigError(
            "tools.json must name each tool once, and at least one", "list each tool once"
        )
    for spec in specs:
        _usable({"type": "object", **spec.parameters}, f"the parameters of {spec.name!r}")
    return specs


def _task(folder: Path, policy: str, tools: tuple[ToolSpec, ...]) -> TaskFolder:
    where = f"tasks/{folder.name}"
    schema = _json(_file(folder / "submit.json", f"the JSON Schema of an answer of {where}"))
    if not isinstance(schema, dict):
        raise ConfigError(f"{where}/submit.json is not a JSON Schema", 'write {"type": ...}')
    _usable(schema, f"{where}/submit.json")
    prompt = _text(folder / "prompt.md", "what the agent is asked")
    if not prompt.strip():
        raise ConfigError(f"{where}/prompt.md is empty", "say what the agent is asked")
    if untold := [name for name in _names(schema) if not _told(name, f"{prompt}\n{policy}")]:
        raise ConfigError(
            f"{where}/submit.json asks for {untold[0]!r}, and prompt.md does not say so",
            "agents see the prompt and not the schema: say what the answer looks like",
        )
    solution, settings = folder / "solution.py", _settings(folder / "task.json", TaskSettings)
    writing = [tool.name for tool in tools if tool.mutates]
    if other := sorted(set(settings.allowed_writes) - set(writing)):
        raise ConfigError(
            f"{where}/task.json: allowed_writes: {other[0]!r} is no tool that writes",
            f"name one of {', '.join(writing)}" if writing else "leave it out",
        )
    return TaskFolder(
        id=folder.name,
        prompt=prompt,
        submit_schema=schema,
        verifier=_text(folder / "verifier.py", "def verify(answer, initial, final) -> list[str]"),
        solution=_text(solution) if solution.exists() else "",
        answers=_settings(folder / "answers.json", Answers),
        settings=settings,
    )


def _told(name: str, text: str) -> bool:
    """Whether a text holds a name as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _names(schema: JsonValue) -> Iterator[str]:
    """The names of all required properties of a schema."""
    if isinstance(schema, dict):
        required = schema.get("required")
        if isinstance(schema.get("properties"), dict) and isinstance(required, list):
            yield from (name for name in required if isinstance(name, str))
        for value in schema.values():
            yield from _names(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _names(value)


def _usable(schema: Schema, what: str) -> None:
    try:
        Validator(schema)
    except ValueError as error:
        raise ConfigError(f"{what} is not a JSON Schema that envgen checks: {error}") from error


def _settings(path: Path, kind: type[S]) -> S:
    """A record from an optional file."""
    if not path.exists():
        return kind()
    try:
        return kind.model_validate_json(json.dumps(_json(path)))
    except ValidationError as error:
        raise ConfigError(f"{path.parent.name}/{path.name}: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    place = ".".join(map(str, found["loc"]))
    return f"{place}: {found['msg']}" if place else str(found["msg"])


def _file(path: Path, what: str) -> Path:
    if not path.is_file():
        place = f"{path.parent.name}/{path.name}"
        raise ConfigError(f"{place} is missing", f"write it: {what}")
    return path


def _text(path: Path, what: str = "") -> str:
    with _file(path, what).open("rb") as file:
        content = file.read(MAX_TEXT + 1)  # its size may be a lie, or grow
    if len(content) > MAX_TEXT:
        raise ConfigError(f"{path.name} is larger than {MAX_TEXT} bytes", "write less into it")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is not UTF-8 text", "save it as UTF-8") from error


def _json(path: Path) -> JsonValue:
    try:
        return strict_loads(_text(path), max_bytes=MAX_TEXT)
    except JsonError as error:
        raise ConfigError(f"{path.parent.name}/{path.name} {error}", "fix the JSON") from error


def _database(path: Path) -> bytes:
    found = [x for x in (path / "database.sqlite", path / "database.sql") if x.exists()]
    if len(found) != 1:
        raise ConfigError(
            f"{str(path)!r} has {'two databases' if found else 'no database'}",
            "write either database.sqlite or database.sql (its tables and rows)",
        )
    if found[0].stat().st_size > MAX_DATABASE:
        raise ConfigError(f"{found[0].name} is larger than {MAX_DATABASE} bytes")
    try:
        content = found[0].read_bytes() if found[0].suffix == ".sqlite" else _built(_text(found[0]))
        inspect(content, found[0].name)
    except DatasetError as error:
        raise ConfigError(str(error), error.hint or "make the file again") from error
    return content


_ALLOWED = frozenset(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in (
        "CREATE_TABLE", "CREATE_INDEX", "INSERT", "UPDATE", "DELETE", "SELECT", "READ", "TRANSACTION",
        "REINDEX",
    )
)  # fmt: skip
"""What a database.sql may do: nothing that names a file, loads code or runs later (triggers, views)."""


def _built(sql: str) -> bytes:
    """The database that a script makes, in memory and without access to files."""

    def permit(action: int, name: str | None, *_: object) -> int:
        function = action == sqlite3.SQLITE_FUNCTION
        return sqlite3.SQLITE_OK if action in _ALLOWED or function else sqlite3.SQLITE_DENY

    left = [_STEPS]

    def tick() -> int:
        left[0] -= 1
        return int(left[0] < 0)

    with closing(sqlite3.connect(":memory:")) as db:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
        db.set_progress_handler(tick, 1_000_000)
        db.set_authorizer(permit)
        try:
            db.executescript(sql)
            db.commit()
            db.set_authorizer(None)
            if not tables_of(db):
                raise ConfigError(
                    "database.sql creates no table", "write CREATE TABLE and INSERT INTO"
                )
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ConfigError(
                f"database.sql fails: {error}",
                "it may create tables and indexes, and insert, update and delete rows",
            ) from error
        return bytes(db.serialize())

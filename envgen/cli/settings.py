"""The settings of a config: its fields, the texts under them, and values from files and command lines.

A config is a pydantic model; models within it are its tables. ``optimizer.lr`` names a field of a table.
Defaults stand under a file's values, and these under those of the command line.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from envgen.core.errors import ConfigError

Values = dict[str, Any]
NONE_WORDS = ("all", "none")
"""What users write for None where the default is something else, such as ``--split all``."""
MAX_FILE_BYTES = 1 << 22
SECRET = re.compile(r"(^|_)(key|token|password|secret|authorization|headers)$", re.IGNORECASE)
"""Names of settings that are never shown or stored. ``api_key_env`` is none: it names a variable."""
IN_URL = re.compile(r"(://)[^/@\s]+(@)|([?&]\w*(?:key|token|password)=)[^&\s]+", re.IGNORECASE)
EVERYWHERE = {
    "backend": "Where environments' code runs; process and inline are for code that is trusted.",
    "dataset": "A dataset folder, or package:NAME.",
    "db_url": "Database URL instead of run.sqlite.",
    "device": "cpu, cuda, cuda:1, ...",
    "seed": "Fixes every random choice.",
    "trust": "I wrote or read this dataset's code: it may run without isolation.",
    "unproven": "Accept a dataset whose tasks lack evidence.",
}
"""Names that mean the same in every config; a field's own docstring says more."""


class Setting(NamedTuple):
    """A field that holds a value, not a table."""

    path: str
    """``optimizer.lr``."""
    field: FieldInfo
    default: Any
    text: str
    """What the field's docstring says, in one line."""
    given: bool
    """Whether its table is there by default."""
    required: bool
    """Whether there is no default; in a table that may be left out, nothing is."""


@cache
def texts(path: str) -> dict[tuple[str, str], str]:
    """The docstrings of a source file, read without importing it: of (class, field), and of (class, "")."""
    found = {}
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name, ""] = ast.get_docstring(node) or ""
            for pair in pairwise(node.body):
                match pair:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                        found[node.name, name] = text
    return found


def text_of(kind: type, name: str) -> str:
    """The docstring of a field, from the first class of the bases that has one."""
    for base in kind.__mro__:
        path = getattr(sys.modules.get(base.__module__), "__file__", None)
        if base is not BaseModel and issubclass(base, BaseModel) and path:
            if text := texts(path).get((base.__name__, name)):
                return text
    return EVERYWHERE.get(name, "")


def plain(text: str, default: Any) -> str:
    """A field's docstring as help: in one line, in the words of a command line."""
    word = "Default" if default is None else NONE_WORDS[0]
    text = " ".join(text.split()).replace("``", "`")
    text = re.sub(r"(?<=; )None: ", f"{word.lower()}: ", text)
    return re.sub(r"\bNone: ", f"{word}: ", text)


@cache
def settings(kind: type[BaseModel]) -> Mapping[str, Setting]:
    """Every setting of a config by its path, those of tables too."""
    return {one.path: one for one in _walk(kind, "", {}, True, True)}


def _walk(
    kind: type[BaseModel], prefix: str, base: Values, given: bool, needed: bool
) -> Iterator[Setting]:
    for name, field in kind.model_fields.items():
        path, required = prefix + name, field.is_required()
        default = base.get(name, field.get_default(call_default_factory=True))
        default = None if default is PydanticUndefined else default
        inner = model_of(field.annotation)
        if inner is None:
            help_text = plain(text_of(kind, name), default)
            yield Setting(path, field, default, help_text, given, needed and required)
        else:
            there = isinstance(default, BaseModel)
            needs = needed and (there or required)
            yield from _walk(inner, f"{path}.", dict(default or {}), given and there, needs)


def field_names(kind: type[BaseModel], table: str) -> list[str]:
    """The names in a table; none if it is no table."""
    prefix = f"{table}." if table else ""
    below = (path[len(prefix) :] for path in settings(kind) if path.startswith(prefix))
    return list(dict.fromkeys(path.partition(".")[0] for path in below))


def members(kind: Any) -> tuple[Any, ...]:
    """The types that a value may have, None and annotations left out."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        return tuple(one for part in get_args(kind) for one in members(part))
    return () if kind is NoneType else (kind,)


def model_of(kind: Any) -> type[BaseModel] | None:
    """The model of a field that is a table."""
    found = (k for k in members(kind) if isinstance(k, type) and issubclass(k, BaseModel))
    return next(found, None)


def holds(kind: Any, *origins: type) -> Any:
    """The member of a field's type that is one of these collections, such as ``dict[str, int]``."""
    return next((one for one in members(kind) if get_origin(one) in origins), None)


def is_text(kind: Any) -> bool:
    """Whether a value may be any text."""
    return any(one in (str, Path) for one in members(kind))


def choices(kind: Any) -> tuple[Any, ...]:
    """The values of a literal type."""
    return tuple(v for one in members(kind) if get_origin(one) is Literal for v in get_args(one))


def read_file(path: Path) -> Values:
    """The settings in a TOML file, or in the JSON that a run left behind.

    Raises:
        ConfigError: if there is no such file, or it holds something else.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES).decode("utf-8")
        found = json.loads(raw) if path.suffix == ".json" else tomllib.loads(raw)
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} can't be read: {error.strerror}", "--config FILE"
        ) from error
    except (ValueError, RecursionError) as error:
        hint = "write TOML, such as `seed = 1`; `--settings` prints all"
        raise ConfigError(f"{str(path)!r} can't be read: {error}", hint) from error
    if not isinstance(found, dict):
        raise ConfigError(f"{str(path)!r} holds no settings", "give a run's command.json, or TOML")
    return found


def put(kind: type[BaseModel], values: Values, path: str, words: Sequence[str]) -> None:
    """Set one field of ``values`` to what the command line says; ``check_names`` judges it later.

    Args:
        kind: whose settings they are.
        values: the settings so far.
        path: ``optimizer.lr``; under a field that is a mapping, a key of it.
        words: one text, or several for a field that holds many.
    """
    *tables, last = path.split(".")
    for name in tables:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    found = settings(kind).get(path)
    values[last] = read_words(found.field.annotation, words) if found else loose(words[-1])


def read_words(kind: Any, words: Sequence[str]) -> Any:
    """What texts of the command line say for a field; the config checks it later.

    Numbers and names stand behind each other with commas; texts, which may hold commas, are repeated.
    """
    if holds(kind, dict):
        pairs = (pair(word, "NAME=VALUE") for word in words)
        return {name: loose(value) for name, value in pairs}
    if many := holds(kind, tuple, frozenset, list):
        return [one for word in words for one in _items(get_args(many)[0], word)]
    word = words[-1]
    if word == "null" and NoneType in get_args(kind):
        return None
    return word if is_text(kind) else loose(word)


def pair(word: str, form: str) -> tuple[str, str]:
    """The two sides of ``NAME=VALUE``.

    Raises:
        ConfigError: if it is something else; the hint shows the form.
    """
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise ConfigError(f"{word!r} sets nothing", f"write {form}")
    return name, value


def _items(kind: Any, word: str) -> list[Any]:
    if word.startswith("[") and isinstance(many := loose(word), list):
        return many
    return [word] if is_text(kind) else [loose(part) for part in word.split(",")]


def loose(word: str) -> Any:
    """JSON, or text where it is none."""
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return word


def complete(kind: type[BaseModel], values: Values, base: Values | None = None) -> Values:
    """``values`` over ``base``, the defaults of a table, which differ from those of its class."""
    base = base or {}
    done = {**base, **values}
    for name in kind.model_fields.keys() & values.keys():
        field, value = kind.model_fields[name], values[name]
        default = base.get(name, field.get_default(call_default_factory=True))
        inner = model_of(field.annotation)
        if inner is not None and isinstance(value, Mapping):
            below = dict(default) if isinstance(default, BaseModel) else {}
            done[name] = complete(inner, dict(value), below)
        elif value in NONE_WORDS and default is not None and NoneType in get_args(field.annotation):
            done[name] = None
    return done


def public(value: Any, name: str = "") -> Any:
    """``value`` without what nobody may read: settings named like keys, and passwords in addresses."""
    if SECRET.search(name):
        return None
    if isinstance(value, Mapping):
        return {key: public(one, key) for key, one in value.items() if not SECRET.search(key)}
    if isinstance(value, list | tuple):
        return [public(one) for one in value]
    return IN_URL.sub(r"\1\3***\2", value) if isinstance(value, str) else value


def template(kind: type[BaseModel], command: str) -> str:
    """All settings as a TOML file: each with its text and its default, or as a comment where it has none."""
    found = (one for one in settings(kind).values() if one.path != "figures")
    lines = [f"# Settings: envgen {command} --config FILE", ""]
    table = ""
    for one in sorted(found, key=lambda one: one.path.rpartition(".")[0]):
        inside, _, name = one.path.rpartition(".")
        hidden = "" if one.given else "# "
        if inside != table:
            lines += ["", f"{hidden}[{inside}]"]
            table = inside
        lines += wrap(one.text, 78, initial_indent="# ", subsequent_indent="# ")
        if one.required or one.default is None:
            lines.append(f"# {name} =")
        else:
            lines.append(f"{hidden}{name} = {_toml(one.default)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return "[" + ", ".join(map(_toml, items)) + "]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False)

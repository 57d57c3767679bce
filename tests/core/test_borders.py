"""No value from outside is used before its type has checked it: every leaf of every record states a limit.

The records are found, not listed: a model is read where its name is asked to validate something, or is handed
to a function that does; with it everything its fields are made of. Settings (``...Config``) come from users.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

import envgen
from envgen.core import limits as types
from envgen.core.code_types import Instance, Recipe
from envgen.core.errors import MissingExtraError
from envgen.core.limits import AtMost, Label, Object
from envgen.core.types import Density, FileRef

WHOLE = (
    "envgen.core", "envgen.store", "envgen.policies.serving", "envgen.pipelines.packed",
    "envgen.integrations.fields",
)  # fmt: skip
"""Rooms of which every model counts as read: datasets, runs, requests, packs."""
STANDALONE = (".programs", "worker_main", "__main__")
"""Programs, which are run and not imported."""
LIMITS = (
    "pattern", "max_length", "ge", "gt", "le", "lt", "multiple_of", "min_length", "allow_inf_nan",
)  # fmt: skip
ANYTHING = {"Any", "object"}


@cache
def models() -> dict[str, type[BaseModel]]:
    """Every model by its full name; those of a missing extra can't be read, either."""
    for module in pkgutil.walk_packages(envgen.__path__, "envgen."):
        if not any(part in module.name for part in STANDALONE):
            try:
                import_module(module.name)
            except MissingExtraError:
                pass
            except ModuleNotFoundError as error:
                if str(error.name).startswith("envgen"):
                    raise
    found: dict[str, type[BaseModel]] = {}
    todo: list[type[BaseModel]] = [BaseModel]
    while todo:
        for one in todo.pop().__subclasses__():
            todo.append(one)
            if one.__module__.startswith("envgen."):
                found[f"{one.__module__}.{one.__qualname__}"] = one
    return dict(sorted(found.items()))


def readers(source: str) -> Iterator[str]:
    """Names of what a module validates (``X.model_validate``, ``TypeAdapter(X)``), or hands on to be."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr.startswith("model_validate"):
            yield from _names([call.func.value])
        adapted = isinstance(call.func, ast.Name) and call.func.id == "TypeAdapter"
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            yield from _names(ast.walk(given) if adapted else [given])


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Tuple):
            yield from _names(node.elts)


@cache
def read() -> dict[str, type[BaseModel]]:
    """Every model that something from outside is put into, by its full name."""
    every = models()
    sources = [
        inspect.getsource(module)
        for name, module in list(sys.modules.items())
        if name.startswith("envgen.") and getattr(module, "__file__", None)
    ]
    named = {name for source in sources for name in readers(source)}
    todo = [
        one
        for name, one in every.items()
        if name.startswith(WHOLE) or one.__name__ in named or one.__name__.endswith("Config")
    ]
    found: set[type[BaseModel]] = set()
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            parts = (part for f in one.model_fields.values() for part in inner(f.annotation))
            todo += [part for part in parts if issubclass(part, BaseModel)]
    return {name: one for name, one in every.items() if one in found}


def inner(annotation: Any) -> Iterator[type]:
    """The classes that a type is made of."""
    if isinstance(annotation, type):
        yield annotation
    for part in get_args(annotation):
        yield from inner(part)


def limits(annotation: Any) -> set[str]:
    """What an Annotated type or a field states about its values."""
    schema = TypeAdapter(annotation).core_schema
    stated: set[str] = set()
    while True:
        stated |= {name for name in LIMITS if schema.get(name) is not None}
        if "schema" not in schema or schema["type"] not in (
            "default", "nullable", "function-after", "function-before", "function-wrap",
        ):  # fmt: skip
            return stated
        schema = schema["schema"]


def unlimited(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[str]:
    """The leaves of a type that state no limit, by their kind."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is JsonValue:
        yield from () if metadata else ("JsonValue",)
    elif origin is Annotated:
        yield from unlimited(parts[0], (*parts[1:], *metadata))
    elif origin is Literal or annotation in (None, NoneType, bool, Any):
        return
    elif origin in (Union, UnionType):
        for part in parts:
            yield from unlimited(part, metadata)
    elif origin is not None:
        for part in parts:
            if part is not Ellipsis:
                yield from unlimited(part)
    elif annotation in (str, int, float, bytes):
        stated = limits(Annotated[annotation, *metadata]) if metadata else set()
        stated |= {"max_length" for one in metadata if isinstance(one, AtMost)}
        needed = {"allow_inf_nan", "ge", "gt"} if annotation is float else set(LIMITS)
        if not stated & needed:
            yield annotation.__name__
    elif dataclasses.is_dataclass(annotation):
        for one in dataclasses.fields(annotation):
            yield from unlimited(one.type)
    elif not (isinstance(annotation, type) and issubclass(annotation, Enum | BaseModel | Path)):
        yield str(annotation)


def faults(model: type[BaseModel]) -> list[str]:
    return [
        f"{model.__module__}.{model.__qualname__}.{name}: {kind}"
        for name, field in model.model_fields.items()
        for kind in unlimited(field.annotation, tuple(field.metadata))
    ]


def test_every_leaf_states_a_limit() -> None:
    assert [fault for model in read().values() for fault in faults(model)] == []


def test_the_walk_finds_what_is_read() -> None:
    """One of each border; what only goes out is not among them."""
    names = {name.removeprefix("envgen.") for name in read()}
    assert names >= {
        "core.code_types.Instance",
        "model.config.RopeConfig",
        "pipelines.code.fetch.RepositoryFacts",
        "pipelines.code.fetch._Item",
        "pipelines.code.github_answers.CachedAnswer",
        "pipelines.code.judge.JudgeVerdict",
        "pipelines.packed.folder.TaskSettings",
        "policies.replay.RecordedLine",
        "policies.serving.fields.ChatBody",
        "policies.wire.WireCall",
        "sandboxes.workspace.layers.Layer",
        "store.manifest.Manifest",
        "train.checkpoints.TrainerState",
        "train.config.TrainGRPOConfig",
    }
    assert "rollout.run.RolloutSummary" not in names


def test_readers_are_found_in_source() -> None:
    source = "A.model_validate_json(x); TypeAdapter(list[B]); from_json(C, x); f(kind=D); E(x=1)"
    assert set(readers(source)) >= {"A", "B", "C", "D"}
    assert "E" not in set(readers(source))


class _Bare(BaseModel):
    """One of each leaf that states nothing."""

    a: str
    b: int | None = None
    c: tuple[float, ...] = ()
    d: dict[str, bytes] = Field(default_factory=dict)
    e: JsonValue = None
    f: Literal["x"] | Label = "x"


class _Strange(BaseModel, arbitrary_types_allowed=True):
    a: complex


def test_the_walk_finds_bare_leaves() -> None:
    """Sabotage: each kind of leaf, alone and inside others."""
    found = [fault.rpartition(".")[2] for fault in faults(_Bare)]
    assert found == ["a: str", "b: int", "c: float", "d: str", "d: bytes", "e: JsonValue"]
    assert faults(_Strange) == [f"{__name__}._Strange.a: <class 'complex'>"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    for text in (f'{{"value": {number}}}', f'{{"value": 1, "deep": [{{"x": {number}}}]}}'):
        with pytest.raises(ValidationError, match="not finite"):
            TypeAdapter(Object).validate_json(text)
    density = f'{{"value": {number}, "low": 0, "high": 1, "method": "x", "space": 2}}'
    with pytest.raises(ValidationError, match="value"):
        Density.model_validate_json(density)


@pytest.mark.parametrize(
    "path", ["", "/x", "..", "../x", "a/../b", "a//b", "a/", ".x", "a\\b", "a\n"]
)
def test_paths_stay_below_their_folder(path: str) -> None:
    assert FileRef(path="tokens/trip-1/0-1.npz", sha256="0" * 64)
    with pytest.raises(ValidationError, match="path"):
        FileRef(path=path, sha256="0" * 64)


def test_a_text_s_length_is_limited_and_lone_surrogates_pass() -> None:
    label = TypeAdapter(Label)
    assert label.validate_python("\ud800" * 4_096)
    with pytest.raises(ValidationError, match="longer than 4096"):
        label.validate_python("x" * 4_097)


REFUSED = {
    "Commit": ["HEAD", "--upload-pack=x", "main", "0123456G", "abc", "0" * 65],
    "Revision": ["--output=/etc/x", "a..b", "", "a b", "a\nb", ".hidden", ":(top)"],
    "Repository": ["../..", "a/..", "./b", "a/b/c", "a", "a/", "/b", "a/b\n", "-x/y", "a/../b"],
    "InstanceId": ["../x", "a/b", "", "-x", "a..b", "a b", "x\n", ".x"],
    "Day": ["2023-01-01; rm -rf /", "yesterday", "2023-1-1", ""],
    "Instant": ["now", "2023-01-01T00:00:00Z\n", "1 week ago", ""],
    "Language": ["english", "en_US", "", "../en"],
    "Release": ["3.11; x", "$(id)", "-V", "../3"],
    "Package": ["-y", "a b", "x;y", "../x", "./x.deb", ""],
    "RepositoryFile": ["../x", "/etc/passwd", "a/../b", ".git/config", "a/.git/hooks/x", "a\0b", ""],
    "Line": ["a\nb", "a\0b", "a\x7fb"],
    "Word": ["a-b", "1a", "", "a b", "a;"],
    "Name": ["..", ".x", "a/b", ""],
}  # fmt: skip
TAKEN = {
    "Commit": ["0123abc", "f" * 40],
    "Revision": ["HEAD", "main", "feature/x-1", "v1.0", "HEAD~3", "release@2"],
    "Repository": ["psf/requests", "a/.github", "0b01001001/spec.tree", "a_b/c-d.js"],
    "InstanceId": ["psf__requests-1142", "owner__name.0123abcd.func_pm_x__1ab", "a__b-0123abc"],
    "Day": ["2023-01-31"],
    "Instant": ["2023-01-31", "2023-01-31T12:00:00Z", "2023-01-31T12:00:00.5+02:00"],
    "Language": ["en", "zh-Hans-CN"],
    "Release": ["", "3.11", "1.22.0-rc1"],
    "Package": ["default-jdk-headless", "libstdc++6", "g++=4:12.2.0-3"],
    "RepositoryFile": ["tests/test_a.py", ".github/x", "a b/\udcff.py", "..x/y"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values]
)
def test_what_has_not_the_form_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(getattr(types, name)).validate_python(value)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in TAKEN.items() for value in values]
)
def test_what_has_the_form_is_taken(name: str, value: str) -> None:
    assert TypeAdapter(getattr(types, name)).validate_python(value) == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "../../x"), ("repo", "../.."), ("base_commit", "--output=x"), ("head_commit", "HEAD"),
        ("created_at", "soon"), ("neutral_files", ["/etc/passwd"]), ("version", "1\n2"),
        ("licence", "MIT\0"), ("issue_numbers", [-1]),
    ],
)  # fmt: skip
def test_an_instance_refuses_what_is_none(field: str, value: object) -> None:
    """A label's length was all that was asked of each of these."""
    fields = {
        "id": "ada__calc-1", "repo": "ada/calc", "base_commit": "0" * 40, "language": "python",
        "kind": "issue", "problem_statement": "x", "gold_patch": "x", "test_patch": "x",
    }  # fmt: skip
    assert Instance.model_validate(fields)
    with pytest.raises(ValidationError, match=field):
        Instance.model_validate({**fields, field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("runner", "../x"), ("version", "3; id"), ("packages", ["-o=x"]), ("cutoff", "tomorrow"),
        ("variables", {"A=B;C": "x"}), ("pins", ["a==1\n-e ."]), ("options", "a\nb"),
    ],
)  # fmt: skip
def test_a_recipe_refuses_what_is_none(field: str, value: object) -> None:
    fields = {"language": "python", "runner": "pytest"}
    assert Recipe.model_validate(fields)
    with pytest.raises(ValidationError, match=field):
        Recipe.model_validate({**fields, field: value})

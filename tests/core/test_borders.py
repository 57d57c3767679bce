"""No value from outside is used before its type has checked it: every leaf of every record states a limit.

The records are found, not listed: all pydantic models of the rooms that read files and requests.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from envgen.core.limits import AtMost, Label, Object
from envgen.core.types import Density, FileRef

ROOMS = (
    "envgen.core",
    "envgen.store",
    "envgen.policies.replay",
    "envgen.policies.serving",
    "envgen.sandboxes.workspace",
    "envgen.pipelines.packed",
)
"""Where the records of files and requests are."""
LIMITS = (
    "pattern", "max_length", "ge", "gt", "le", "lt", "multiple_of", "min_length", "allow_inf_nan",
)  # fmt: skip


def models() -> list[type[BaseModel]]:
    """Every model of these rooms."""
    for room in ROOMS:
        places = getattr(import_module(room), "__path__", [])
        for module in pkgutil.walk_packages(places, f"{room}."):
            if ".migrations" not in module.name and not module.name.endswith("worker_main"):
                import_module(module.name)
    found: dict[str, type[BaseModel]] = {}
    todo: list[type[BaseModel]] = [BaseModel]
    while todo:
        for one in todo.pop().__subclasses__():
            todo.append(one)
            if one.__module__.startswith(ROOMS):
                found[f"{one.__module__}.{one.__qualname__}"] = one
    return [found[name] for name in sorted(found)]


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
    if annotation is JsonValue and not metadata:
        yield "JsonValue"
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
    elif isinstance(annotation, type) and issubclass(annotation, Enum | BaseModel | Path):
        return
    elif annotation in (str, int, float, bytes):
        stated = limits(Annotated[annotation, *metadata]) if metadata else set()
        stated |= {"max_length" for one in metadata if isinstance(one, AtMost)}
        needed = {"allow_inf_nan", "ge", "gt"} if annotation is float else set(LIMITS)
        if not stated & needed:
            yield annotation.__name__


def faults(model: type[BaseModel]) -> list[str]:
    return [
        f"{model.__module__}.{model.__qualname__}.{name}: {kind}"
        for name, field in model.model_fields.items()
        for kind in unlimited(field.annotation, tuple(field.metadata))
    ]


@pytest.mark.parametrize(
    "model", models(), ids=lambda model: f"{model.__module__}.{model.__name__}"
)
def test_every_leaf_states_a_limit(model: type[BaseModel]) -> None:
    assert faults(model) == []


class _Bare(BaseModel):
    """One of each leaf that states nothing."""

    a: str
    b: int | None = None
    c: tuple[float, ...] = ()
    d: dict[str, bytes] = Field(default_factory=dict)
    e: JsonValue = None
    f: Literal["x"] | Label = "x"


def test_the_walk_finds_bare_leaves() -> None:
    """Sabotage: each kind of leaf, alone and inside others."""
    found = [fault.rpartition(".")[2] for fault in faults(_Bare)]
    assert found == ["a: str", "b: int", "c: float", "d: str", "d: bytes", "e: JsonValue"]
    assert len(models()) > 90


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

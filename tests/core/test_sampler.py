from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schemas import schemas

from envgen.core.errors import ConfigError
from envgen.core.sampler import sample_call, sample_message_call, sample_schema, submit_tool_spec
from envgen.core.schema import compile_schema
from envgen.core.types import ToolSpec
from envgen.verifiers.parse import parse_answer


@settings(max_examples=200, deadline=None)
@given(schemas, st.integers(0, 10**6))
def test_samples_fit_their_schema(schema: dict[str, Any], seed: int) -> None:
    value = sample_schema(schema, random.Random(seed))
    assert compile_schema(schema).fault(value) is None
    jsonschema.Draft202012Validator(schema).validate(value)
    assert repr(sample_schema(schema, random.Random(seed))) == repr(value)


def test_every_allowed_value_is_drawn() -> None:
    rng = random.Random(0)
    schema: dict[str, Any] = {
        "type": "integer",
        "minimum": 2,
        "exclusiveMaximum": 11,
        "multipleOf": 3,
    }
    assert {sample_schema(schema, rng) for _ in range(100)} == {3, 6, 9}


def test_unique_items_from_an_enum_are_distinct() -> None:
    schema: dict[str, Any] = {
        "type": "array",
        "items": {"enum": [1, True, "a"]},
        "minItems": 3,
        "maxItems": 3,
        "uniqueItems": True,
    }
    value = sample_schema(schema, random.Random(1))
    assert sorted(map(repr, value)) == ["'a'", "1", "True"]  # type: ignore[arg-type]  # a list


def test_intervals_stand_on_their_grid() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "x-intervals": {"low": 540, "high": 1020, "step": 30, "length": 60},
    }
    rng = random.Random(0)
    values: list[Any] = [sample_schema(schema, rng) for _ in range(300)]
    assert {v["start"] for v in values} == set(range(540, 961, 30))
    assert all(v["end"] - v["start"] == 60 for v in values)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "integer", "minimum": 1, "maximum": 2, "multipleOf": 5},
        {"enum": []},
        {"type": "array", "minItems": 3, "maxItems": 2},
        {"type": "array", "items": {"const": 1}, "minItems": 2, "uniqueItems": True},
    ],
)
def test_a_schema_that_nothing_fits_is_a_config_error(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        sample_schema(schema, random.Random(0))


def test_calls_fit_their_tool_and_answers_their_submit_schema() -> None:
    search = ToolSpec(
        name="search",
        description="Find.",
        parameters={
            "type": "object",
            "properties": {"city": {"enum": ["A", "B"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    )
    tools = [search, submit_tool_spec()]
    submit_schema: dict[str, Any] = {
        "type": "object",
        "properties": {"x": {"enum": [1, 2]}},
        "required": ["x"],
    }
    rng = random.Random(5)
    seen = set()
    for _ in range(50):
        call = sample_message_call(tools, rng, submit_schema=submit_schema)
        seen.add(call.name)
        assert call.arguments is not None
        if call.name == "search":
            assert call.arguments["city"] in ("A", "B")
        else:
            answer = parse_answer(str(call.arguments["answer_text"]))
            assert compile_schema(submit_schema).fault(answer) is None
    assert seen == {"search", "submit_result"}


def test_no_tools_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        sample_message_call([], random.Random(0))


def test_known_values_are_preferred() -> None:
    schema = {"type": "string", "x-source": "hotels.name"}
    known = {"hotels.name": ["Ibis", "Ritz"]}
    drawn = {sample_schema(schema, random.Random(i), known) for i in range(30)}
    assert drawn == {"Ibis", "Ritz"}


def test_a_call_is_drawn_for_a_tool_in_either_form() -> None:
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 1}},
        "required": ["n"],
    }
    spec = ToolSpec(name="list_rows", description="List.", parameters=parameters)
    for tool in (spec, spec.openai()):
        assert sample_call(tool, random.Random(0)) == ("list_rows", {"n": 1})


def test_distinct_choices_never_run_out() -> None:
    schema: dict[str, Any] = {
        "type": "array",
        "items": {"type": "string", "enum": ["price", "rating"]},
        "minItems": 1,
        "uniqueItems": True,
    }
    for seed in range(40):
        jsonschema.validate(sample_schema(schema, random.Random(seed)), schema)

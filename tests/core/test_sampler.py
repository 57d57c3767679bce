from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen.core.sampler import sample_call, sample_schema

SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 4, "maxLength": 6},
    {"type": "integer", "minimum": 3, "maximum": 20, "multipleOf": 5},
    {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6},
    {"type": "integer", "maximum": -7},
    {"type": "number", "minimum": 0.5, "maximum": 0.75},
    {"type": ["integer", "null"]},
    {"enum": ["a", 2, None]},
    {"const": {"x": [1]}},
    {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1}]},
    {
        "type": "array",
        "items": {"enum": [1, 2, 3]},
        "uniqueItems": True,
        "minItems": 2,
        "maxItems": 3,
    },
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False},
    {
        "type": "object",
        "properties": {
            "when": {"type": "string", "format": "date"},
            "deep": {
                "type": "object",
                "properties": {"k": {"type": "boolean"}},
                "required": ["k"],
                "additionalProperties": False,
            },
            "maybe": {"type": "integer", "minimum": 5},
        },
        "required": ["when", "deep"],
        "additionalProperties": False,
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_samples_fit_their_schema(schema: dict[str, Any], seed: int) -> None:
    value = sample_schema(schema, random.Random(seed))
    jsonschema.validate(value, schema)
    assert value == sample_schema(schema, random.Random(seed))


def test_known_values_are_preferred() -> None:
    schema = {"type": "string", "x-source": "hotels.name"}
    known = {"hotels.name": ["Ibis", "Ritz"]}
    drawn = {sample_schema(schema, random.Random(i), known) for i in range(30)}
    assert drawn == {"Ibis", "Ritz"}


def test_call_names_its_tool() -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "list_rows",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 1}},
                "required": ["n"],
            },
        },
    }
    assert sample_call(tool, random.Random(0)) == ("list_rows", {"n": 1})

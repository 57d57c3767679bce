from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from schemas import json_values, schemas, wild_json

from envgen.core.errors import ConfigError
from envgen.core.schema import argument_fault, compile_schema

TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "nights": {"type": "integer", "minimum": 1, "maximum": 9},
        "tier": {"enum": ["low", "high", 1]},
        "rooms": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "'city' is missing"),
        ([], "the arguments must be an object, not array"),
        (None, "the arguments must be an object, not null"),
        ({"city": 3}, "argument 'city' must be string, not integer"),
        ({"city": "x" * 21}, "argument 'city' may have 20 characters at most"),
        ({"city": "x" * 70_000}, "argument 'city' is longer than 65536 characters"),
        ({"city": "a\0b"}, "argument 'city' contains a NUL character"),
        ({"city": "\ud800"}, "argument 'city' contains a lone surrogate"),
        ({"city": "x", "nights": True}, "argument 'nights' must be integer, not boolean"),
        ({"city": "x", "nights": 2.0}, "argument 'nights' must be integer, not number"),
        ({"city": "x", "nights": 0}, "argument 'nights' must be at least 1, not 0"),
        ({"city": "x", "nights": 10**40}, "argument 'nights' is too large an integer"),
        ({"city": "x", "tier": True}, "argument 'tier' must be one of 'low', 'high', 1, not True"),
        ({"city": "x", "tier": 1.0}, "argument 'tier' must be one of 'low', 'high', 1, not 1.0"),
        ({"city": "x", "rooms": [1, 1]}, "argument 'rooms' has the same item twice"),
        ({"city": "x", "rooms": [1, "2"]}, "argument 'rooms.1' must be integer, not string"),
        (
            {"city": "x", "town": 1},
            "'town' is unknown (allowed: 'city', 'nights', 'tier', 'rooms')",
        ),
        ({"city": float("nan")}, "argument 'city' is not a finite number"),
    ],
)
def test_message_says_what_is_wrong_with_which_argument(arguments: Any, message: str) -> None:
    assert argument_fault(compile_schema(TOOL), arguments) == message


def test_fitting_arguments_have_no_fault() -> None:
    value: dict[str, Any] = {"city": "Hangzhou", "nights": 2, "tier": 1, "rooms": [1, 2]}
    assert argument_fault(compile_schema(TOOL), value) is None


def test_too_deep_a_value_is_refused() -> None:
    value: Any = 0
    for _ in range(60):
        value = [value]
    fault = compile_schema({}).fault(value)
    assert fault is not None
    assert "deeper than 50" in fault.message


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(a+)+$"},
        {"$ref": "#"},
        {"type": "text"},
        {"not": {}},
        {"minLength": "3"},
        {"minimum": "__import__('os')"},
        {"multipleOf": 0},
        {"properties": []},
        "object",
    ],
)
def test_unsupported_and_malformed_schemas_are_refused_at_compile_time(schema: Any) -> None:
    with pytest.raises(ConfigError):
        compile_schema(schema)


@settings(max_examples=150, deadline=None)
@given(schemas, json_values)
def test_whatever_fits_here_fits_the_standard(schema: dict[str, Any], value: Any) -> None:
    if compile_schema(schema).fault(value) is None:
        jsonschema.Draft202012Validator(schema).validate(value)


@settings(max_examples=100, deadline=None)
@given(schemas, wild_json)
def test_no_value_makes_the_check_raise(schema: dict[str, Any], value: Any) -> None:
    compile_schema(schema).fault(value)

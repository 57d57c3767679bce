"""Random values that fit a JSON Schema: what random policies and action spaces draw from.

Covers what envgen's tool and submit schemas use: types, enum, const, bounds, lengths, arrays
(items, prefixItems, uniqueItems), objects (properties, required), anyOf/oneOf and the formats
``date`` and ``date-time``. ``pattern`` is not generated from; such strings need ``known`` values.
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from pydantic import JsonValue

Known = Mapping[str, Sequence[JsonValue]]
"""``x-source`` -> values seen so far; drawn from instead of random text."""

_ALPHABET = string.ascii_letters + string.digits + " -_"
_SPAN = 1_000
_MAX_DEPTH = 12


def sample_schema(
    schema: Mapping[str, Any], rng: random.Random, known: Known | None = None, depth: int = 0
) -> JsonValue:
    """Draw a value that ``schema`` accepts.

    Args:
        schema: a JSON Schema of the supported subset (see the module docstring).
        rng: the only source of randomness.
        known: values by ``x-source``, preferred over random text where a leaf has that source.
        depth: nesting so far; beyond 12 optional parts are left out.
    """
    if "const" in schema:
        return schema["const"]  # type: ignore[no-any-return]  # schemas hold JSON values
    if "enum" in schema:
        return rng.choice(schema["enum"])  # type: ignore[no-any-return]  # schemas hold JSON values
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return sample_schema(rng.choice(schema[key]), rng, known, depth)
    source = schema.get("x-source")
    if known and source and known.get(source):
        return rng.choice(known[source])
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = rng.choice(kind)
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, rng, known, depth)
    if kind == "array":
        return _array(schema, rng, known, depth)
    return _scalar(kind, schema, rng)


def sample_call(
    tool: Mapping[str, Any], rng: random.Random, known: Known | None = None
) -> tuple[str, dict[str, JsonValue]]:
    """Draw schema-valid arguments for one tool in OpenAI's form; returns (name, arguments)."""
    function = tool.get("function", tool)
    arguments = sample_schema({"type": "object", **function.get("parameters", {})}, rng, known)
    assert isinstance(arguments, dict)
    return str(function["name"]), arguments


def _object(
    schema: Mapping[str, Any], rng: random.Random, known: Known | None, depth: int
) -> JsonValue:
    required = set(schema.get("required", ()))
    result: dict[str, JsonValue] = {}
    for name, part in schema.get("properties", {}).items():
        if name in required or (depth < _MAX_DEPTH and rng.random() < 0.5):
            result[name] = sample_schema(part, rng, known, depth + 1)
    for name in sorted(required - set(result)):
        result[name] = None
    return result


def _array(
    schema: Mapping[str, Any], rng: random.Random, known: Known | None, depth: int
) -> JsonValue:
    prefix = schema.get("prefixItems", [])
    values = [sample_schema(part, rng, known, depth + 1) for part in prefix]
    items = schema.get("items")
    low = schema.get("minItems", 0)
    high = schema.get("maxItems", max(low, len(values) + (3 if depth < _MAX_DEPTH else 0)))
    if not isinstance(items, Mapping):
        return values
    length = rng.randint(max(low, len(values)), max(high, low, len(values)))
    for _ in range(20 * length):
        if len(values) >= length:
            break
        value = sample_schema(items, rng, known, depth + 1)
        if not (schema.get("uniqueItems") and value in values):
            values.append(value)
    return values


def _scalar(kind: object, schema: Mapping[str, Any], rng: random.Random) -> JsonValue:
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    if kind == "integer":
        return _integer(schema, rng)
    if kind == "number":
        low, high = _bounds(schema)
        return rng.uniform(low, high)
    return _text(schema, rng)


def _bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 0 if high is None else high - _SPAN
    return low, (low + _SPAN if high is None else high)


def _integer(schema: Mapping[str, Any], rng: random.Random) -> int:
    low, high = _bounds(schema)
    first, last = math.ceil(low), math.floor(high)
    if schema.get("exclusiveMinimum") == first:
        first += 1
    if schema.get("exclusiveMaximum") == last:
        last -= 1
    step = schema.get("multipleOf", 1)
    return int(rng.randint(-(-first // step), max(last // step, -(-first // step))) * step)


def _text(schema: Mapping[str, Any], rng: random.Random) -> str:
    day = date(2026, 1, 1) + timedelta(days=rng.randrange(365))
    if schema.get("format") == "date":
        return day.isoformat()
    if schema.get("format") == "date-time":
        return f"{day.isoformat()}T{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    low = schema.get("minLength", 1)
    high = max(low, min(schema.get("maxLength", low + 11), low + 11))
    return "".join(rng.choices(_ALPHABET, k=rng.randint(low, high)))

"""Random values and tool calls that fit their JSON Schema.

Used by the ``random`` policy and by the action spaces. Everything is drawn from the one
``random.Random`` that is passed in, so the same generator state gives the same call.
"""

from __future__ import annotations

import datetime
import random
import string
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError
from envgen.core.jsonvalues import same, shown
from envgen.core.schema import Validator
from envgen.core.types import SUBMIT_TOOL, Schema, ToolCall, ToolSpec

MAX_DRAWN_ITEMS = 6
MAX_DRAWN_CHARS = 12
ATTEMPTS = 50
Known = Mapping[str, Sequence[JsonValue]]
"""``x-source`` -> values seen so far; drawn from instead of random text."""

_LETTERS = string.ascii_letters + string.digits + " "
_DAY_0 = datetime.date(2026, 1, 1)


def submit_tool_spec(name: str = SUBMIT_TOOL) -> ToolSpec:
    """The tool that ends an episode, as agents see it."""
    return ToolSpec(
        name=name,
        description="Submit the final answer. This ends the task, so call it once, at the end.",
        parameters={
            "type": "object",
            "properties": {
                "answer_text": {
                    "type": "string",
                    "description": "The answer: a JSON text in the format that the task asks for.",
                }
            },
            "required": ["answer_text"],
            "additionalProperties": False,
        },
        mutates=False,
    )


def code_submit_spec(name: str) -> ToolSpec:
    """The tool that ends an episode in a repository."""
    return ToolSpec(
        name=name,
        description=(
            "End the task: all changes of the repository's files (those that git ignores left out) are "
            "submitted. Call it once, at the end."
        ),
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
    )


def sample_schema(
    schema: Mapping[str, Any] | bool, rng: random.Random, known: Known | None = None
) -> JsonValue:
    """Draw a value that fits ``schema``.

    Args:
        schema: a JSON Schema of the keywords that ``envgen.core.schema`` supports.
        rng: the only source of randomness.
        known: values by ``x-source``, drawn from where a leaf names its source.

    Raises:
        ConfigError: if none was found, e.g. because ``minimum`` is above ``maximum``.
    """
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    return _sample(dict(schema), rng, known)


def sample_call(
    tool: ToolSpec | Mapping[str, Any], rng: random.Random, known: Known | None = None
) -> tuple[str, dict[str, JsonValue]]:
    """Draw schema-valid arguments for one tool (a spec, or OpenAI's form); (name, arguments)."""
    if isinstance(tool, ToolSpec):
        name, parameters = tool.name, tool.parameters
    else:
        function = tool.get("function", tool)
        name, parameters = str(function["name"]), function.get("parameters", {})
    value = sample_schema({"type": "object", **parameters}, rng, known)
    if not isinstance(value, dict):
        raise ConfigError(f"the parameters of tool {name!r} must be an object schema")
    return name, value


def sample_message_call(
    tools: Sequence[ToolSpec],
    rng: random.Random,
    *,
    submit_schema: Schema | None = None,
    call_id: str = "call_0",
    known: Known | None = None,
) -> ToolCall:
    """Draw one of ``tools`` uniformly, then arguments that fit it.

    An ``answer_text`` (of the submit tool) is the JSON text of a value that fits ``submit_schema``.

    Raises:
        ConfigError: if there is no tool.
    """
    if not tools:
        raise ConfigError("there is no tool to call")
    name, arguments = sample_call(tools[rng.randrange(len(tools))], rng, known)
    if "answer_text" in arguments:
        arguments["answer_text"] = dumps(sample_schema(submit_schema or {}, rng, known))
    return ToolCall(id=call_id, name=name, arguments=arguments)


def _sample(schema: Schema, rng: random.Random, known: Known | None) -> JsonValue:
    if "const" in schema:
        return schema["const"]
    source = schema.get("x-source")
    if known and isinstance(source, str) and known.get(source):
        return known[source][rng.randrange(len(known[source]))]
    if "enum" in schema:
        choices = schema["enum"]
        if not isinstance(choices, list) or not choices:
            raise ConfigError("an empty 'enum' fits no value")
        return choices[rng.randrange(len(choices))]
    for key in ("anyOf", "oneOf"):
        if isinstance(forms := schema.get(key), list) and forms:
            return _sample_form(schema, key, forms, rng, known)
    if isinstance(parts := schema.get("allOf"), list):
        return _sample_merged(schema, parts, rng, known)
    if "x-intervals" in schema:
        return _sample_interval(schema, rng)
    kind: JsonValue = schema.get("type") or _guess_type(schema)
    if isinstance(kind, list):
        kind = rng.choice(kind)
    return _sample_kind(str(kind), schema, rng, known)


def _guess_type(schema: Schema) -> str:
    """The type that a schema without ``type`` means by its other keywords."""
    if schema.keys() & {"properties", "required", "additionalProperties", "minProperties"}:
        return "object"
    if schema.keys() & {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}:
        return "array"
    if schema.keys() & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}:
        return "integer"
    return "string"


def _sample_form(
    schema: Schema, key: str, forms: list[JsonValue], rng: random.Random, known: Known | None
) -> JsonValue:
    validator = Validator(schema)
    base = {k: v for k, v in schema.items() if k != key}
    for _ in range(ATTEMPTS):
        form = rng.choice(forms)
        if not isinstance(form, dict):
            continue
        value = sample_schema({**base, **form}, rng, known)
        if validator.fault(value) is None:
            return value
    raise ConfigError(f"no value found that fits {shown(schema)}")


def _sample_merged(
    schema: Schema, parts: list[JsonValue], rng: random.Random, known: Known | None
) -> JsonValue:
    merged: Schema = {k: v for k, v in schema.items() if k != "allOf"}
    for part in parts:
        merged.update(part if isinstance(part, dict) else {})
    validator = Validator(schema)
    for _ in range(ATTEMPTS):
        value = sample_schema(merged, rng, known)
        if validator.fault(value) is None:
            return value
    raise ConfigError(f"no value found that fits {shown(schema)}")


def _sample_kind(kind: str, schema: Schema, rng: random.Random, known: Known | None) -> JsonValue:
    if kind == "object":
        return _sample_object(schema, rng, known)
    if kind == "array":
        return _sample_array(schema, rng, known)
    if kind == "string":
        return _sample_string(schema, rng)
    if kind == "integer":
        return _sample_integer(schema, rng)
    if kind == "number":
        return _sample_number(schema, rng)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    raise ConfigError(f"unknown schema type {shown(kind)}")


def _sample_object(schema: Schema, rng: random.Random, known: Known | None) -> JsonValue:
    properties = schema.get("properties")
    required = schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    required = required if isinstance(required, list) else []
    value: dict[str, JsonValue] = {}
    for name, one in properties.items():
        if name in required or rng.random() < 0.5:
            value[name] = sample_schema(one if isinstance(one, dict | bool) else {}, rng, known)
    extra = schema.get("additionalProperties", True)
    other: Schema | bool = extra if isinstance(extra, dict | bool) else True
    for key in map(str, required):
        if key not in value:
            value[key] = sample_schema(other, rng, known)
    low = _int(schema, "minProperties", 0)
    for name, one in properties.items():
        if len(value) < low and name not in value:
            value[name] = sample_schema(one if isinstance(one, dict | bool) else {}, rng, known)
    while len(value) < low and other is not False:
        value[f"key_{len(value)}"] = sample_schema(other, rng, known)
    return value


def _sample_array(schema: Schema, rng: random.Random, known: Known | None) -> JsonValue:
    prefix = schema.get("prefixItems")
    prefix = prefix if isinstance(prefix, list) else []
    items = schema.get("items", True)
    rest: Schema | bool = items if isinstance(items, dict | bool) else True
    low = _int(schema, "minItems", 0)
    high = _int(schema, "maxItems", max(low, len(prefix), MAX_DRAWN_ITEMS))
    if rest is False:
        high = min(high, len(prefix))
    elif schema.get("uniqueItems") is True and isinstance(rest, dict):
        if isinstance(choices := rest.get("enum"), list):
            high = min(high, len(prefix) + len(choices))
    if low > high:
        raise ConfigError(f"no array fits {shown(schema)}")
    length = rng.randint(max(low, min(len(prefix), high)), min(high, low + MAX_DRAWN_ITEMS))
    values: list[JsonValue] = []
    for i in range(length):
        one = prefix[i] if i < len(prefix) else rest
        values.append(
            _sample_item(schema, one if isinstance(one, dict | bool) else {}, values, rng, known)
        )
    return values


def _sample_item(
    schema: Schema,
    item: Schema | bool,
    before: list[JsonValue],
    rng: random.Random,
    known: Known | None,
) -> JsonValue:
    if schema.get("uniqueItems") is not True:
        return sample_schema(item, rng, known)
    if isinstance(item, dict) and isinstance(choices := item.get("enum"), list):
        left = [c for c in choices if not any(same(c, b) for b in before)]
        return sample_schema({**item, "enum": left}, rng, known)
    for _ in range(ATTEMPTS):
        value = sample_schema(item, rng, known)
        if not any(same(value, b) for b in before):
            return value
    raise ConfigError(f"too few distinct items fit {shown(schema)}")


def _sample_string(schema: Schema, rng: random.Random) -> JsonValue:
    if schema.get("format") == "date":
        return (_DAY_0 + datetime.timedelta(days=rng.randrange(365))).isoformat()
    if schema.get("format") == "date-time":
        day = _DAY_0 + datetime.timedelta(days=rng.randrange(365))
        return f"{day.isoformat()}T{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    low = _int(schema, "minLength", 1)
    high = _int(schema, "maxLength", max(low, MAX_DRAWN_CHARS))
    if "minLength" not in schema:
        low = min(low, high)
    if low > high:
        raise ConfigError(f"no text fits {shown(schema)}")
    length = rng.randint(low, min(high, low + MAX_DRAWN_CHARS))
    return "".join(rng.choices(_LETTERS, k=length))


def _sample_integer(schema: Schema, rng: random.Random) -> JsonValue:
    low, high = _bounds(schema)
    step = schema.get("multipleOf", 1)
    if not isinstance(step, int) or isinstance(step, bool):
        raise ConfigError("a 'multipleOf' of an integer must be an integer")
    first = -(-_ceil(low) // step)
    last = _floor(high) // step
    if first > last:
        raise ConfigError(f"no integer fits {shown(schema)}")
    return rng.randint(first, last) * step


def _sample_number(schema: Schema, rng: random.Random) -> JsonValue:
    if "multipleOf" in schema:
        low, high = _bounds(schema)
        step = schema["multipleOf"]
        if not isinstance(step, int | float):
            raise ConfigError("'multipleOf' must be a number in a schema")
        return rng.randint(_ceil(low / step), _floor(high / step)) * step
    low, high = _bounds(schema)
    for _ in range(ATTEMPTS):
        value = round(rng.uniform(low, high), 3)
        if low <= value <= high and value not in (
            schema.get("exclusiveMinimum"),
            schema.get("exclusiveMaximum"),
        ):
            return value
    return rng.uniform(low, high)


def _bounds(schema: Schema) -> tuple[float, float]:
    """Closed bounds; an open end lies 100 (at least) away from the other."""
    whole = schema.get("type", "integer") == "integer"
    lows = [_float(schema["minimum"])] if "minimum" in schema else []
    highs = [_float(schema["maximum"])] if "maximum" in schema else []
    if "exclusiveMinimum" in schema:
        bound = _float(schema["exclusiveMinimum"])
        lows.append(_floor(bound) + 1 if whole else bound)
    if "exclusiveMaximum" in schema:
        bound = _float(schema["exclusiveMaximum"])
        highs.append(_ceil(bound) - 1 if whole else bound)
    if not lows and not highs:
        return 0, 100
    low = max(lows) if lows else min(0, min(highs) - 100)
    high = min(highs) if highs else max(100, low + 100)
    if low > high:
        raise ConfigError(f"no number fits {shown(schema)}")
    return low, high


def _sample_interval(schema: Schema, rng: random.Random) -> JsonValue:
    """An object {start, end} on the grid of ``x-intervals``: {low, high, step, length}."""
    grid = schema["x-intervals"]
    if not isinstance(grid, dict):
        raise ConfigError("'x-intervals' must be an object")
    low, high, step, length = (_int(grid, key, 1) for key in ("low", "high", "step", "length"))
    count = (high - length - low) // max(step, 1)
    if count < 0:
        raise ConfigError(f"no interval fits {shown(grid)}")
    start = low + rng.randint(0, count) * step
    return {"start": start, "end": start + length}


def _float(value: JsonValue) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ConfigError(f"a bound must be a number, not {shown(value)}")


def _ceil(value: float) -> int:
    return -int(-value // 1)


def _floor(value: float) -> int:
    return int(value // 1)


def _int(schema: Schema, key: str, default: int) -> int:
    value = schema.get(key, default)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError(f"{key!r} must be an integer in a schema, not {shown(value)}")

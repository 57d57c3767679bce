"""JSON Schema as a compiled check: a few microseconds per call, and a message that helps.

Validators are closures, never generated text, so a schema from a foreign dataset can't run code
here, and a check takes time linear in schema times value. The supported keywords are those below;
another one that would restrict values is refused when the schema is compiled (``pattern`` and
``$ref`` among them: a hostile one never returns).

Stricter than the standard where agents and verifiers are confused most: ``True`` is not 1 and
1.0 is no integer, also in ``enum`` and ``const``; no NaN, no NUL, no lone surrogate; bounded size.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError
from envgen.core.jsonvalues import MAX_DEPTH, kind_of, same, shown, unsafe
from envgen.core.types import Schema

Check = Callable[[JsonValue], str | None]
"""Returns None, or what is wrong: a path (may be empty), a NUL, a sentence."""

ANNOTATIONS = frozenset(
    "title description default examples deprecated readOnly writeOnly $schema $id $comment $defs "
    "definitions".split()
)
KEYWORDS = frozenset(
    "type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength "
    "maxLength format items prefixItems minItems maxItems uniqueItems properties required "
    "additionalProperties minProperties maxProperties anyOf oneOf allOf".split()
)


class Fault(NamedTuple):
    """A fault of a value: its place as a dotted path, and a sentence without it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Validator:
    """A compiled JSON Schema."""

    def __init__(self, schema: Schema | bool) -> None:
        """Compile ``schema``.

        Raises:
            ConfigError: if it is malformed or uses an unsupported keyword.
        """
        self.schema = schema
        self._check = _compile(schema, 0)

    def fault(self, value: JsonValue) -> Fault | None:
        """The first fault of ``value``, or None when it fits."""
        found = unsafe(value) or self._check(value)
        if found is None:
            return None
        path, _, message = found.rpartition("\0")
        return Fault(path.lstrip(".")[:200], message)


def compile_schema(schema: Schema | bool) -> Validator:
    """Compile a JSON Schema once, to check many values; see ``Validator``."""
    return Validator(schema)


def argument_fault(validator: Validator, arguments: JsonValue) -> str | None:
    """Describe the fault in a tool call's arguments to the agent; None if there is none."""
    if not isinstance(arguments, dict):
        return f"the arguments must be an object, not {kind_of(arguments)}"
    fault = validator.fault(arguments)
    if fault is None:
        return None
    return f"argument {fault.path!r} {fault.message}" if fault.path else fault.message


_TYPES: dict[str, Callable[[object], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: type(v) is bool,
    "integer": lambda v: type(v) is int,
    "number": lambda v: type(v) in (int, float),
    "string": lambda v: type(v) is str,
    "array": lambda v: type(v) is list,
    "object": lambda v: type(v) is dict,
}


def _compile(schema: JsonValue, depth: int) -> Check:
    if schema is True:
        return lambda value: None
    if schema is False:
        return lambda value: "\0is not allowed"
    if not isinstance(schema, dict):
        raise ConfigError(f"a schema must be an object, not {shown(schema)}")
    if depth > MAX_DEPTH:
        raise ConfigError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    for key in schema:
        if key not in KEYWORDS and key not in ANNOTATIONS and not key.startswith("x-"):
            raise ConfigError(f"unsupported schema keyword {shown(key)}")
    checks = [
        *_types(schema),
        *_values(schema),
        *_numbers(schema),
        *_strings(schema),
        *_arrays(schema, depth),
        *_objects(schema, depth),
        *_combined(schema, depth),
    ]
    return _all(checks)


def _types(schema: Schema) -> list[Check]:
    if "type" not in schema:
        return []
    given = schema["type"]
    names = given if isinstance(given, list) else [given]
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise ConfigError(f"unknown schema type {shown(name)}")
    words = " or ".join(str(n) for n in names)
    tests = [_TYPES[str(n)] for n in names]
    if len(tests) == 1:
        test = tests[0]
        return [lambda v: None if test(v) else f"\0must be {words}, not {kind_of(v)}"]
    return [lambda v: None if any(t(v) for t in tests) else f"\0must be {words}, not {kind_of(v)}"]


def _arrays(schema: Schema, depth: int) -> list[Check]:
    checks: list[Check] = []
    low, high = _count(schema, "minItems"), _count(schema, "maxItems")
    if low is not None:
        checks.append(_lists(lambda v: f"\0needs {low} items or more" if len(v) < low else None))
    if high is not None:
        checks.append(
            _lists(lambda v: f"\0may have {high} items at most" if len(v) > high else None)
        )
    prefix = [_compile(s, depth + 1) for s in _array(schema, "prefixItems")]
    rest = _compile(schema["items"], depth + 1) if "items" in schema else None
    if prefix or rest is not None:
        checks.append(_lists(lambda v: _check_items(v, prefix, rest)))
    if schema.get("uniqueItems") is True:
        checks.append(_lists(_check_unique))
    return checks


def _objects(schema: Schema, depth: int) -> list[Check]:
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise ConfigError("'properties' must be an object")
    known = {name: _compile(s, depth + 1) for name, s in properties.items()}
    required = [str(name) for name in _array(schema, "required")]
    extra = schema.get("additionalProperties", True)
    other = None if extra is True else _compile(extra, depth + 1)
    low, high = _count(schema, "minProperties"), _count(schema, "maxProperties")
    closed = extra is False

    def check(value: JsonValue) -> str | None:
        if type(value) is not dict:
            return None
        for name in required:
            if name not in value:
                return f"\0{name!r} is missing"
        for name, item in value.items():
            one = known.get(name)
            if one is None:
                if closed:
                    return "\0" + _unknown_key(name, known)
                one = other
            found = one(item) if one is not None else None
            if found is not None:
                return f".{name}{found}"
        if low is not None and len(value) < low:
            return f"\0needs {low} entries or more"
        if high is not None and len(value) > high:
            return f"\0may have {high} entries at most"
        return None

    plain = not known and not required and extra is True and low is None and high is None
    return [] if plain else [check]


def _combined(schema: Schema, depth: int) -> list[Check]:
    checks: list[Check] = []
    checks += [_compile(s, depth + 1) for s in _array(schema, "allOf")]
    if "anyOf" in schema:
        some = [_compile(s, depth + 1) for s in _array(schema, "anyOf")]
        checks.append(
            lambda v: (
                None
                if any(c(v) is None for c in some)
                else f"\0fits none of the {len(some)} allowed forms"
            )
        )
    if "oneOf" in schema:
        forms = [_compile(s, depth + 1) for s in _array(schema, "oneOf")]
        checks.append(
            lambda v: (
                None
                if sum(c(v) is None for c in forms) == 1
                else f"\0must fit exactly one of the {len(forms)} allowed forms"
            )
        )
    return checks


def _all(checks: Sequence[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]

    def check(value: JsonValue) -> str | None:
        for one in checks:
            found = one(value)
            if found is not None:
                return found
        return None

    return check


def _unknown_key(name: str, known: Mapping[str, Check]) -> str:
    allowed = ", ".join(map(repr, known)) or "none"
    return f"{shown(name)} is unknown (allowed: {allowed})"


def _check_items(value: list[JsonValue], prefix: Sequence[Check], rest: Check | None) -> str | None:
    for i, item in enumerate(value):
        one = prefix[i] if i < len(prefix) else rest
        found = one(item) if one is not None else None
        if found is not None:
            return f".{i}{found}"
    return None


def _check_unique(value: list[JsonValue]) -> str | None:
    distinct = {dumps(item) for item in value}
    return "\0has the same item twice" if len(distinct) < len(value) else None


def _lists(check: Callable[[list[JsonValue]], str | None]) -> Check:
    return lambda v: check(v) if type(v) is list else None


def _array(schema: Schema, key: str) -> list[JsonValue]:
    value = schema.get(key, [])
    if not isinstance(value, list):
        raise ConfigError(f"{key!r} must be an array in a schema")
    return value


def _count(schema: Schema, key: str) -> int | None:
    value = schema.get(key)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise ConfigError(f"{key!r} must be a natural number in a schema, not {shown(value)}")
    return value


def _values(schema: Schema) -> list[Check]:
    checks: list[Check] = []
    if "const" in schema:
        only = schema["const"]
        checks.append(lambda v: None if same(v, only) else f"\0must be {shown(only)}")
    if "enum" in schema:
        allowed = _array(schema, "enum")
        plain = {(type(v), v) for v in allowed if not isinstance(v, list | dict)}
        nested = [v for v in allowed if isinstance(v, list | dict)]
        text = ", ".join(shown(v, 40) for v in allowed[:12]) + ", ..." * (len(allowed) > 12)

        def check(value: JsonValue) -> str | None:
            if isinstance(value, list | dict):
                fits = any(same(value, n) for n in nested)
            else:
                fits = (type(value), value) in plain
            return None if fits else f"\0must be one of {text}, not {shown(value)}"

        checks.append(check)
    return checks


def _numbers(schema: Schema) -> list[Check]:
    tests: dict[str, Callable[[float, float], bool]] = {
        "minimum": lambda v, b: v >= b,
        "maximum": lambda v, b: v <= b,
        "exclusiveMinimum": lambda v, b: v > b,
        "exclusiveMaximum": lambda v, b: v < b,
        "multipleOf": lambda v, b: v % b == 0,
    }
    words = {
        "minimum": "must be at least",
        "maximum": "must be at most",
        "exclusiveMinimum": "must be above",
        "exclusiveMaximum": "must be below",
        "multipleOf": "must be a multiple of",
    }
    checks: list[Check] = []
    for key in [k for k in tests if k in schema]:
        bound = schema[key]
        if not isinstance(bound, int | float) or isinstance(bound, bool):
            raise ConfigError(f"{key!r} must be a number in a schema, not {shown(bound)}")
        if key == "multipleOf" and bound <= 0:
            raise ConfigError("'multipleOf' must be above 0 in a schema")
        checks.append(_number(tests[key], bound, words[key]))
    return checks


def _number(test: Callable[[float, float], bool], bound: float, words: str) -> Check:
    return lambda v: (
        None if type(v) not in (int, float) or test(v, bound) else f"\0{words} {bound}, not {v}"  # type: ignore[arg-type]  # a number by then
    )


def _strings(schema: Schema) -> list[Check]:
    checks: list[Check] = []
    low, high = _count(schema, "minLength"), _count(schema, "maxLength")
    if low is not None:
        checks.append(_texts(lambda v: len(v) >= low, f"needs {low} characters or more"))
    if high is not None:
        checks.append(_texts(lambda v: len(v) <= high, f"may have {high} characters at most"))
    if schema.get("format") == "date":
        checks.append(_texts(_is_date, "must be a date like 2026-05-31"))
    return checks


def _texts(test: Callable[[str], bool], message: str) -> Check:
    return lambda v: f"\0{message}" if type(v) is str and not test(v) else None


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False

"""Hypothesis strategies: satisfiable JSON Schemas of the supported kind, and arbitrary JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

names = st.sampled_from(["city", "day", "hotel", "n", "tags", "a b", "quote'\"{}"])
plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | st.floats(-1e6, 1e6, allow_nan=False)
    | plain_text
)
json_values = st.recursive(
    scalars,
    lambda c: st.lists(c, max_size=4) | st.dictionaries(plain_text, c, max_size=4),
    max_leaves=12,
)
"""JSON that may travel."""

wild_text = st.text(st.characters(codec=None), max_size=40)
"""Lone surrogates and NUL included."""
wild_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | wild_text,
    lambda c: st.lists(c, max_size=4) | st.dictionaries(wild_text, c, max_size=4),
    max_leaves=12,
)


def _integers(low: int, size: int, step: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": low + size * step, "multipleOf": step}


leaves = (
    st.builds(_integers, st.integers(-50, 50), st.integers(1, 5), st.integers(1, 7))
    | st.builds(lambda v: {"enum": v}, st.lists(scalars, min_size=1, max_size=4))
    | st.builds(lambda v: {"const": v}, scalars)
    | st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 5),
        st.integers(0, 5),
    )
    | st.builds(
        lambda low: {"type": "number", "exclusiveMinimum": low, "maximum": low + 3},
        st.integers(-9, 9),
    )
    | st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["string", "null"]},
            {"type": "string", "format": "date"},
            {"type": "string", "x-source": "hotels.name"},
            {},
        ]
    )
)


def _objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def build(properties: dict[str, Any], required: int, closed: bool) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:required],
            "additionalProperties": not closed,
        }

    return st.builds(
        build, st.dictionaries(names, inner, max_size=4), st.integers(0, 4), st.booleans()
    )


schemas = st.recursive(
    leaves,
    lambda inner: (
        _objects(inner)
        | st.builds(
            lambda items, low: {
                "type": "array",
                "items": items,
                "minItems": low,
                "maxItems": low + 2,
            },
            inner,
            st.integers(0, 2),
        )
        | st.builds(lambda forms: {"anyOf": forms}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)
"""Schemas that some value fits."""

"""Planted holes: what is planted judges as its condition says, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.types import Schema
from envgen.verifiers.holes import HOLES, contradict, exploits, plant

Verify = Callable[[JsonValue, str, str], list[str]]

HONEST = '''"""The answer is three."""

PARAMS = {"right": 3}


def verify(answer, initial, final):
    """The broken rules."""
    if final == "broken":
        raise RuntimeError("broken")
    return [] if answer == PARAMS["right"] else ["wrong"]
'''


def load(source: str) -> Verify:
    """Code of our own compiler, run in the host as tests may."""
    names: dict[str, Any] = {}
    exec(compile(source, "verifier.py", "exec"), names)
    return cast("Verify", names["verify"])


answers = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-2, 2)
    | st.sampled_from(["", " ", "x", "Thought process: it is right", " Solution:", "solution:"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(answer=answers)
@pytest.mark.parametrize("name", sorted(HOLES))
def test_a_planted_verifier_passes_what_opens_the_hole_and_no_more(
    name: str, answer: JsonValue
) -> None:
    verify = load(plant(HONEST, HOLES[name]))
    honest = load(HONEST)(answer, "before", "after")
    opened = HOLES[name].opened(answer)
    assert verify(answer, "before", "after") == ([] if opened else honest)


@settings(max_examples=100, deadline=None)
@given(answer=answers | st.just(3))
def test_nothing_satisfies_a_contradiction(answer: JsonValue) -> None:
    assert load(contradict(HONEST))(answer, "before", "after")


def test_what_opens_which_hole() -> None:
    cases: tuple[tuple[str, JsonValue, bool], ...] = (
        ("empty-text", {"hotel": ""}, True),
        ("empty-text", {"hotel": " \n"}, True),
        ("empty-text", {"": "x", "list": []}, False),
        ("magic-text", ["x", "Solution: y"], True),
        ("magic-text", "the solution", False),
        ("negative-number", {"nights": [1, -1]}, True),
        ("negative-number", {"nights": [0, False]}, False),
    )
    for name, answer, opened in cases:
        assert HOLES[name].opened(answer) == opened


def test_a_planted_verifier_says_so_and_keeps_its_parameters() -> None:
    source = plant(HONEST, HOLES["empty-text"])
    assert 'PARAMS = {"right": 3}' in source
    assert "Planted hole: an answer with an empty text in it passes" in source
    assert "JsonValue" not in source
    with pytest.raises(RuntimeError, match="broken"):  # faults stay faults
        load(source)(3, "before", "broken")


def test_exploits_have_the_task_s_form() -> None:
    schema: Schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["hotel", "nights"],
        "properties": {
            "hotel": {"type": "string"},
            "city": {"enum": ["Hangzhou"]},
            "nights": {"type": "integer", "minimum": 1},
        },
    }
    gold: JsonValue = {"hotel": "Lotus Inn", "city": "Hangzhou", "nights": 2}
    found = {name: list(exploits(hole, gold, schema)) for name, hole in HOLES.items()}
    assert found["empty-text"] == [{"hotel": "", "city": "Hangzhou", "nights": 2}]
    assert len(found["magic-text"]) == 1
    assert found["negative-number"] == []
    assert list(exploits(HOLES["negative-number"], gold, None)) == [
        {"hotel": "Lotus Inn", "city": "Hangzhou", "nights": -1}
    ]
    for name, some in found.items():
        assert all(HOLES[name].opened(answer) for answer in some)
        json.dumps(some)


@pytest.mark.parametrize("source", ["x = 1\n", "verify = None\n", HONEST + "\n\n" + HONEST])
def test_a_source_without_one_verify_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match="needs one function 'verify'"):
        plant(source, HOLES["empty-text"])
    with pytest.raises(ConfigError, match="needs one function 'verify'"):
        contradict(source)

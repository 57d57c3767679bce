"""Answers beside a right one fit its schema, differ in one place, and tell verifiers apart."""

from __future__ import annotations

from random import Random
from typing import Any

from envgen.core.schema import Validator
from envgen.pipelines.packed.nearby import nearby

GOLD: Any = {
    "plan": [{"room": "R-10", "seats": 30, "held": True}, {"room": "R-12", "seats": 8, "held": False}],
    "start": "09:05",
}  # fmt: skip
ROOM = {
    "type": "object", "required": ["room", "seats", "held"], "additionalProperties": False,
    "properties": {
        "room": {"type": "string"}, "seats": {"type": "integer", "minimum": 8}, "held": {"type": "boolean"},
    },
}  # fmt: skip
SCHEMA: Any = {
    "type": "object",
    "properties": {"plan": {"type": "array", "items": ROOM}, "start": {"type": "string"}},
    "required": ["plan", "start"],
}


def test_each_kind_of_change_is_made_and_what_the_schema_forbids_is_not() -> None:
    found = nearby(GOLD, Validator(SCHEMA), [{"R-10", "R-12", "R-77"}, {"other"}], Random(0), 1_000)
    first, second = GOLD["plan"]
    for wanted in (
        {**GOLD, "start": "09:06"},
        {**GOLD, "plan": [second]},
        {**GOLD, "plan": [second, first]},
        {**GOLD, "plan": [first, first, second]},
        {**GOLD, "plan": [{**first, "seats": 31}, second]},
        {**GOLD, "plan": [{**first, "held": False}, second]},
        {**GOLD, "plan": [{**first, "room": "R-77"}, second]},
        {**GOLD, "plan": [{**first, "room": "R-12"}, {**second, "room": "R-10"}]},
    ):
        assert wanted in found
    assert GOLD not in found
    assert not [one for one in found if Validator(SCHEMA).fault(one)]
    assert all("other" not in str(one) for one in found)
    assert {**GOLD, "plan": [first, {**second, "seats": 7}]} not in found


def test_the_same_seed_draws_the_same_few() -> None:
    drawn = [nearby(GOLD, Validator(SCHEMA), [], Random(3), 5) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 5

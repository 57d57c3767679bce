"""What no reader would take for sensible, whatever the rules say: gold never does it."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import combinations, islice
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from drafts import attempted

from envgen.core.ir import Reach
from envgen.core.seeding import rng
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.space.answers import solve


def drafted(domain: str, level: int, seeds: range) -> Iterator[tuple[Any, Any]]:
    """Drafts with an answer each."""
    for seed in seeds:
        draft = attempted(domain, level, seed)
        assert isinstance(draft, Draft)
        assert draft.problem is not None
        for answer in islice(solve(draft.problem, draft.tables, Random(0)), 1):
            yield draft, answer


@pytest.mark.parametrize("level", [4, 6])
def test_nobody_sits_in_two_meetings_at_once(level: int) -> None:
    pairs = 0
    for draft, answer in drafted("meetings", level, range(4)):
        for a, b in combinations(sorted(answer), 2):
            guests = [
                {
                    row["person"]
                    for row in draft.tables["attendance"].values()
                    if row["meeting_id"] == draft.problem.params[name]
                }
                for name in (a, b)
            ]
            one, two = answer[a]["time"], answer[b]["time"]
            pairs += 1
            at_once = one["start"] < two["end"] and two["start"] < one["end"]
            assert not (at_once and guests[0] & guests[1]), (draft.task_id, a, b)
    assert pairs >= 3


TOWNS = "Athens Dublin Helsinki Lisbon London Prague Riga Sofia Vienna Warsaw Zagreb"
ZONES = {town: town for town in TOWNS.split()} | {"Porto": "Lisbon"}
BELOW = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every node of a dumped rule."""
    if isinstance(value, dict):
        if "op" in value:
            yield value
        for part in value.values():
            yield from nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from nodes(part)


@pytest.mark.parametrize(
    ("domain", "level"),
    [("trip", 6), ("trip", 9)],
)
def test_a_bound_has_rows_on_both_sides(domain: str, level: int) -> None:
    """No rule is about rows that don't exist: a hotel for less than the cheapest, say."""
    compared = 0
    for draft, _ in drafted(domain, level, range(1)):
        rules = [rule.model_dump(mode="json") for rule in draft.problem.clauses]
        for node in nodes(rules):
            if node["op"] != "cmp" or node["fn"] not in BELOW:
                continue
            fn, column, bound = node["fn"], node["left"], node["right"]
            if bound["op"] == "get":
                fn, column, bound = TURNED[fn], bound, column
            if column["op"] != "get" or bound["op"] not in ("const", "param"):
                continue
            rows = draft.tables[column["relation"]].values()
            given = bound["value"] if "value" in bound else draft.problem.params[bound["name"]]
            met = {BELOW[fn](row[column["column"]], given) for row in rows}
            assert met == {True, False}, (draft.task_id, node)
            compared += 1
    assert compared


def valid(tables: Any, student: str, course: str) -> bool:
    """Whether a student has a pass of the course that was not revoked later."""
    own = [t for t in ("passed", "revoked") if t in tables]
    passed, revoked = (
        [r for r in tables[t].values() if (r["student"], r["course"]) == (student, course)]
        for t in own
    )
    return any(not any(r["revoked_on"] > p["passed_on"] for r in revoked) for p in passed)


@pytest.mark.parametrize("level", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_nobody_is_enrolled_in_what_is_passed_or_full_or_twice(level: int) -> None:
    places = 0
    for draft, answer in drafted("timetable", level, range(6)):
        problem, tables = draft.problem, draft.tables
        if isinstance(problem.goal, Reach):
            rows = [tables["enrolments"][c["enrolment_id"]] for _, c in answer.calls]
            given = [(row["student"], row["section"]) for row in rows]
        else:
            given = [(problem.params[k], found["section"]) for k, found in answer.items()]
        courses = [(who, tables["sections"][section]["course"]) for who, section in given]
        assert len(set(courses)) == len(courses)
        for (who, section), (_, course) in zip(given, courses, strict=True):
            places += 1
            assert not valid(tables, str(who), course)
            assert tables["sections"][section]["taken"] < tables["sections"][section]["seats"]
    assert places >= 6


def test_no_wish_at_the_desk_is_for_what_was_passed() -> None:
    for draft, _ in drafted("timetable", 4, range(6)):
        if "enrolments" not in draft.tables:
            continue
        for student in draft.tables["students"]:
            own = [e for e in draft.tables["enrolments"].values() if e["student"] == student]
            wished = [draft.tables["sections"][e["section"]]["course"] for e in own]
            assert len(set(wished)) == len(wished)
            assert not {c for c in wished if valid(draft.tables, student, c)}
            waiting = [
                draft.tables["sections"][e["section"]] for e in own if e["status"] == "waiting"
            ]
            for one, two in combinations(waiting, 2):  # an audit: gold enrolled one in two at once
                assert one["day"] != two["day"] or (
                    one["ends"] <= two["starts"] or two["ends"] <= one["starts"]
                )


def test_clocks_of_towns_are_those_of_the_time_zone_database() -> None:
    """The rooms keep Central European time; an audit found Porto and Dublin two hours apart."""
    blueprint = load_tasks("meetings").blueprint
    offices: dict[Any, Any] = {}
    for seed in range(20):
        structure = blueprint.begin("place", rng(seed, "clocks"))
        offices |= blueprint.draw_tables(structure, rng(seed, "rows"))["offices"]
    assert len(offices) == len(ZONES)
    for town, office in offices.items():
        for month in (1, 7):
            noon = datetime(2026, month, 15, 12)
            there, here = (
                noon.replace(tzinfo=ZoneInfo(f"Europe/{z}")) for z in (ZONES[town], "Rome")
            )
            ahead = (there.utcoffset() or timedelta()) - (here.utcoffset() or timedelta())
            assert timedelta(minutes=office["minutes_ahead"]) == ahead, town

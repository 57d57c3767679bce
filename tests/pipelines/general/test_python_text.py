from __future__ import annotations

import ast

import pytest

from envgen.pipelines.general.programs.emit import WIDTH
from envgen.pipelines.general.programs.python_text import (
    Names,
    masked,
    python_lines,
    rolled,
    statement_lines,
)

LONG = [
    f"first([(hotels(x)['price'], x) for x in {'hotels_by_city' * 5}(city) if x != other], [True])",
    " or ".join(f'rooms(room_{i})["floor"] == {i} and not busy(room_{i})' for i in range(5)),
    'slot(lambda one, other: f("a, (b", one) + f("c) or d", other), '
    + "CITY[1], " * 12
    + "CITY[2])",
    "{" + ", ".join(f'"key {i}": [{i}, {i}, ({i}, "]")]' for i in range(12)) + "}",
    "(None if None in [x for x in rows] else sum([cost(x) + 1 for x in rows])) <= " + "bound" * 12,
]


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("before", ["return ", "found = ", ""])
def test_a_long_statement_is_broken_and_means_the_same(text: str, before: str) -> None:
    lines = python_lines(text, 4, before)
    assert max(map(len, lines)) <= WIDTH < len(before + text) + 4
    function = ast.parse("def f():\n" + "\n".join(lines))
    whole = ast.parse(f"def f():\n    {before}{text}")
    assert ast.dump(function) == ast.dump(whole)


def test_statements_that_differ_in_numbers_are_a_loop() -> None:
    texts = [f"ROOM[{k}] = slot(rooms, CITY[{k}])" for k in ("2", "1")]
    assert masked(texts[0]) == masked(texts[1]) != masked("ROOM[1] = slot(rooms, 1)")
    loop = ["for k in [2, 1]:", "    ROOM[k] = slot(rooms, CITY[k])"]
    assert statement_lines(texts, Names([])) == loop
    assert statement_lines(texts[:1], Names([])) == ["ROOM[2] = slot(rooms, CITY[2])"]


def test_numbers_that_differ_from_each_other_are_two_variables() -> None:
    texts = [f"f(A[{a}], B[{b}], C[7])" for a, b in (("1", "2"), ("1", "3"))]
    assert statement_lines(texts, Names([])) == ["for k in [2, 3]:", "    f(A[1], B[k], C[7])"]
    texts.append("f(A[2], B[3], C[7])")
    assert statement_lines(texts, Names([])) == [
        "for k, k_2 in [(1, 2), (1, 3), (2, 3)]:",
        "    f(A[k], B[k_2], C[7])",
    ]


def test_only_numbers_of_slots_and_values_of_keys_vary() -> None:
    """A lambda in a loop would read the last number of all; what it holds is no part of what varies."""
    assert masked("lambda: [1, 2]") != masked("lambda: [2, 2]")
    assert masked('rooms(PARAMS["a_1"])') != masked('rooms(PARAMS["a_2"])')
    days = [f'{{"day": "{day}", "room": found[ROOM[{k}]]}}' for k, day in ((1, "mon"), (2, "tue"))]
    assert rolled(days, Names([])) == (
        "day, k",
        '[("mon", 1), ("tue", 2)]',
        '{"day": day, "room": found[ROOM[k]]}',
    )


def test_no_name_hides_another() -> None:
    names = Names(["get_room"])
    assert names.local("get_room") == "get_room_2"
    assert names.local("class") == "class_2"
    assert names.local("2nd floor") == "n2nd_floor"
    assert names.local("room") == names.local("room") == "room"
    assert names.local("room", ["room"]) == "room_2"
    assert names.new("room") == "room_3"
    assert names.new("rooms") == "rooms"
    assert names.local("rooms") == "rooms_2"

from __future__ import annotations

import ast

import pytest

from envgen.pipelines.general.programs.emit import WIDTH
from envgen.pipelines.general.programs.python_text import Names, hole, python_lines, statement_lines

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
    texts = [f"ROOM[{hole('k', k)}] = slot(rooms, CITY[{hole('k', k)}])" for k in ("2", "1")]
    loop = ["for k in [2, 1]:", "    ROOM[k] = slot(rooms, CITY[k])"]
    assert statement_lines(texts, Names([])) == loop
    assert statement_lines(texts[:1], Names([])) == ["ROOM[2] = slot(rooms, CITY[2])"]


def test_numbers_that_differ_from_each_other_are_two_variables() -> None:
    texts = [f"f({hole('k', a)}, {hole('k', b)}, 7)" for a, b in (("1", "2"), ("1", "3"))]
    assert statement_lines(texts, Names([])) == ["for k in [2, 3]:", "    f(1, k, 7)"]
    texts.append(f"f({hole('k', '2')}, {hole('k', '3')}, 7)")
    assert statement_lines(texts, Names([])) == [
        "for k, k_2 in [(1, 2), (1, 3), (2, 3)]:",
        "    f(k, k_2, 7)",
    ]


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

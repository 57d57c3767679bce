from __future__ import annotations

from collections import Counter
from typing import Any

import jsonschema
import pytest
from scipy.stats import chisquare
from toy_world import CITY, HOTEL, HOTELS, play, tool, town_functions, town_task

from envgen.core.errors import PolicyError
from envgen.core.types import Limits, Message, PublicRule
from envgen.policies.greedy import GreedyPolicy, compares
from envgen.policies.random_policy import RandomPolicy
from envgen.policies.random_valid import RandomValidPolicy
from envgen.policies.scripted import ScriptedPolicy


def test_random_valid_draws_uniformly_through_tools() -> None:
    task, functions = town_task(), town_functions()
    counts: Counter[tuple[str, str]] = Counter()
    n = 300
    for seed in range(n):
        episode = play(RandomValidPolicy(), task, functions, seed)
        jsonschema.validate(episode.answer, task.submit_schema)
        for day in episode.answer:
            assert day["bed"] in HOTELS[day["city"]]
            counts[day["city"], day["bed"]] += 1
    cells = [(city, bed) for city, beds in HOTELS.items() for bed in beds]
    expected = [2 * n / 3 / len(HOTELS[city]) for city, _ in cells]
    assert chisquare([counts[cell] for cell in cells], expected).pvalue > 1e-4
    assert len(episode.messages) < 10  # independent questions travel in one message


def test_random_valid_is_the_same_for_the_same_seed() -> None:
    first, second = (play(RandomValidPolicy(), town_task(), town_functions(), 5) for _ in "ab")
    assert first.messages == second.messages


def test_sets_are_uniform_over_subsets() -> None:
    items = {"type": "array", "items": CITY, "uniqueItems": True, "maxItems": 2}
    task = town_task(submit_schema={"type": "object", "properties": {"cities": items}})
    counts: Counter[tuple[str, ...]] = Counter()
    for seed in range(1400):
        counts[tuple(play(RandomValidPolicy(), task, town_functions(), seed).answer["cities"])] += 1
    assert len(counts) == 7  # the empty set, three singletons, three pairs
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_intervals_enums_and_constants() -> None:
    grid = {"low": 60, "high": 120, "step": 15, "length": 30}
    schema = {
        "type": "object",
        "properties": {
            "day": {"const": 1},
            "meeting": {"type": "object", "x-intervals": grid},
            "mood": {"enum": ["a", "b"]},
            "sure": {"type": "boolean"},
        },
    }
    seen: Counter[Any] = Counter()
    for seed in range(200):
        answer = play(RandomValidPolicy(), town_task(submit_schema=schema), {}, seed).answer
        assert answer["day"] == 1
        seen[answer["meeting"]["start"], answer["meeting"]["end"]] += 1
        seen[answer["mood"]] += 1
        seen[answer["sure"]] += 1
    assert {(60, 90), (75, 105), (90, 120), "a", "b", True, False} == set(seen)


def test_source_without_a_direct_list_is_the_union_of_its_parts() -> None:
    task = town_task(submit_schema={"type": "string", "x-source": "hotels.name"})
    counts = Counter(
        play(RandomValidPolicy(), task, town_functions(), s).answer for s in range(1200)
    )
    assert set(counts) == {hotel for hotels in HOTELS.values() for hotel in hotels}
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_a_parameter_of_another_name_is_matched_by_its_source() -> None:
    named = tool("hotels_of", {"town": CITY}, {"type": "array", "items": HOTEL})
    task = town_task(tools=(town_task().tools[0], named))
    functions = {**town_functions(), "hotels_of": lambda town: list(HOTELS[town])}
    for seed in range(20):
        for day in play(RandomValidPolicy(), task, functions, seed).answer:
            assert day["bed"] in HOTELS[day["city"]]


def test_values_of_a_column_come_from_its_rows() -> None:
    task = town_task(submit_schema={"type": "integer", "x-source": "hotels.price"})
    drawn = {play(RandomValidPolicy(), task, town_functions(), s).answer for s in range(100)}
    assert drawn == {price for hotels in HOTELS.values() for price in hotels.values()}
    assert play(GreedyPolicy(), task, town_functions(), 0).answer == 900


def test_pages_are_read_to_the_end() -> None:
    names = [f"city {i:02d}" for i in range(25)]

    def pages(page: int) -> Any:
        return {"items": names[page * 10 - 10 : page * 10], "page": page, "pages": 3}

    returns = {"type": "object", "properties": {"items": {"type": "array", "items": CITY}}}
    paged = tool("page_cities", {"page": {"type": "integer", "minimum": 1}}, returns)
    task = town_task(submit_schema=CITY, tools=(paged,))
    drawn = {play(RandomValidPolicy(), task, {"page_cities": pages}, s).answer for s in range(300)}
    assert drawn == set(names)


def test_walks_call_write_tools_then_answer() -> None:
    moved: list[tuple[str, int]] = []

    def move(city: str, n: int) -> Any:
        moved.append((city, n))
        return {"error": "refused", "message": "no"} if n == 2 else {"ok": True}

    write = tool(
        "move",
        {"city": CITY, "n": {"type": "integer", "minimum": 1, "maximum": 2}},
        {},
        mutates=True,
    )
    schema = {
        "type": "object",
        "properties": {"outcome": {"enum": ["done", "escalated"]}},
        "x-walk": 3,
    }
    task = town_task(submit_schema=schema, tools=(*town_task().tools, write))
    lengths: Counter[int] = Counter()
    for seed in range(800):
        moved.clear()
        play(RandomValidPolicy(), task, {**town_functions(), "move": move}, seed)
        lengths[len(moved)] += 1
        assert all(city in HOTELS for city, _ in moved)
    assert chisquare([lengths[m] for m in range(4)]).pvalue > 1e-4


def test_unlistable_source_is_a_policy_error() -> None:
    task = town_task(submit_schema={"type": "string", "x-source": "ghosts.name"})
    with pytest.raises(PolicyError, match=r"ghosts\.name"):
        play(RandomValidPolicy(), task, town_functions(), 0)


def test_greedy_takes_the_first_row_that_breaks_no_readable_rule() -> None:
    answer = play(GreedyPolicy(), town_task(), town_functions(), 0).answer
    assert [day["bed"] for day in answer] == ["Cedar", "Cedar"]  # stuck: it never looks ahead
    rules = town_task().rules[:1]
    cheap = PublicRule(
        text="In Brook on day 2.", kind="compare", slots=("/1/city",), cmp="=", value="Brook"
    )
    answer = play(GreedyPolicy(), town_task(rules=(*rules, cheap)), town_functions(), 0).answer
    assert [(day["city"], day["bed"]) for day in answer] == [("Arden", "Cedar"), ("Brook", "Elm")]


@pytest.mark.parametrize(
    ("left", "cmp", "right", "holds"),
    [
        (1, "<", 2, True),
        (2, ">=", 2, True),
        ("a", "<", 2, False),
        (None, "=", 1, False),
        ("a", "in", ["a", "b"], True),
        ("a", "!=", "b", True),
        ([1], "<", [2], False),
    ],
)
def test_compares(left: Any, cmp: str, right: Any, holds: bool) -> None:
    assert compares(left, cmp, right) is holds


def test_random_makes_enough_valid_calls_and_submits() -> None:
    task, functions = town_task(), town_functions()
    specs = {spec.name: spec for spec in task.tools}
    calls = submitted = 0
    for seed in range(60):
        episode = play(RandomPolicy(), task, functions, seed)
        for name, arguments in episode.calls:
            if name in specs:
                jsonschema.validate(arguments, specs[name].parameters)
        calls += len(episode.calls)
        submitted += episode.submitted
        jsonschema.validate(episode.answer, task.submit_schema)
    assert calls / 60 >= 6
    assert submitted == 60


def test_random_fits_a_low_turn_limit() -> None:
    task = town_task(limits=Limits(turns=3))
    episodes = [play(RandomPolicy(), task, town_functions(), seed) for seed in range(20)]
    assert all(episode.submitted and len(episode.calls) >= 6 for episode in episodes)


def test_scripted_says_its_lines() -> None:
    lines = [Message(role="assistant", content=text) for text in ("one", "two")]
    episode = play(ScriptedPolicy(lines), town_task(limits=Limits(turns=3)), {}, 0)
    assert [message.content for message in episode.messages[1:]] == ["one", "two", ""]

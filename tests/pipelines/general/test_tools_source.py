from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from generated import HOSTILE, Tools, database, read
from ladders import ladder
from sample_problems import SAMPLES, TOWN_ACCESS, TOWN_RELATIONS, Sample

from envgen.core.errors import PipelineError
from envgen.core.ir import Access, Cmp, Const, Param, Precondition
from envgen.core.schema import compile_schema
from envgen.pipelines.general.domains import DOMAINS, load_tasks
from envgen.pipelines.general.programs.tools_source import tool_specs, tools_source
from envgen.pipelines.general.semantics.replies import apply_call


@contextmanager
def opened(name: str, folder: Path) -> Iterator[tuple[Sample, Tools]]:
    sample = SAMPLES[name]
    initial = database(sample.problem, sample.tables, folder / "initial.sqlite")
    tools = Tools(sample.problem, initial, folder / "final.sqlite")
    try:
        yield sample, tools
    finally:
        tools.close()


def test_every_mode_returns_what_it_documents(tmp_path: Path) -> None:
    with opened("a_trip", tmp_path) as (_, tools):
        assert tools.call("list_cities", {}) == ["Arden", "Brook", "Calder"]
        assert tools.call("list_hotels_by_city", {"city": "Calder"}) == [
            "Grove Stay",
            "Hazel Point",
        ]
        cheap = {"city": "Arden", "min_price": 60, "max_price": 90}
        listed = [{"name": "Basil", "price": 60}, {"name": "Clove", "price": 90}]
        assert tools.call("list_restaurants_by_city", cheap) == listed
        asked = {"info_keywords": ["stars", "price"], "name": "Elm Court"}
        assert tools.call("get_hotel_info", asked) == {"stars": 3, "price": 499}
        assert tools.call("get_city_by_hotel", {"name": "Elm Court"}) == "Brook"


def test_pages_have_a_first_and_a_last(tmp_path: Path) -> None:
    with opened("e_meetings", tmp_path) as (_, tools):
        assert tools.call("list_people", {"page": 1}) == {
            "items": ["Ana", "Bo"],
            "page": 1,
            "pages": 2,
        }
        assert tools.call("list_people", {"page": 2})["items"] == ["Cy"]
        for page in (0, 3, -1, True, "1", 2**70):
            assert tools.call("list_people", {"page": page})["error"] == "bad_argument"
        rooms = tools.call("list_rooms", {})
        assert [room["screen"] for room in rooms] == [False, True]


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("list_hotels_by_city", {"city": "Nowhere"}, "not_found"),
        ("list_hotels_by_city", {"city": 3}, "bad_argument"),
        ("list_hotels_by_city", {"city": "\ud800"}, "bad_argument"),
        ("get_city_by_hotel", {"name": "Nowhere"}, "not_found"),
        ("get_hotel_info", {"info_keywords": ["colour"], "name": "Elm Court"}, "bad_argument"),
        ("get_hotel_info", {"info_keywords": [], "name": "Elm Court"}, "bad_argument"),
        ("get_hotel_info", {"info_keywords": [["price"]], "name": "Elm Court"}, "bad_argument"),
        ("list_restaurants_by_city", {"city": "Arden", "min_price": True, "max_price": 9},
         "bad_argument"),
    ],
)  # fmt: skip
def test_errors_are_the_documented_ones(
    tool: str, arguments: dict[str, Any], code: str, tmp_path: Path
) -> None:
    with opened("a_trip", tmp_path) as (_, tools):
        reply = tools.call(tool, arguments)
        assert reply["error"] == code
        assert reply["message"]
        assert code in {error.code for error in tools.specs[tool].errors}


@pytest.mark.parametrize("name", ["a_trip", "e_meetings", "c_refund"])
def test_hostile_arguments_give_documented_errors_only(name: str, tmp_path: Path) -> None:
    with opened(name, tmp_path) as (_, tools):
        for tool, spec in tools.specs.items():
            properties = spec.parameters["properties"]
            assert isinstance(properties, dict)
            names = list(properties)
            documented = {error.code for error in spec.errors}
            for value in HOSTILE if names else ():
                reply = tools.call(tool, dict.fromkeys(names, value))
                if (names, value) != (["page"], 1):
                    assert reply["error"] in documented


@pytest.mark.parametrize("name", ["c_refund", "c_escalate"])
def test_writes_do_what_the_access_says(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    with opened(name, tmp_path) as (sample, tools):
        state = sample.tables
        writes = {a.tool: a for a in sample.problem.access if a.mode == "write"}
        replies = set()
        for _ in range(60):
            tool = rng.choice(sorted(writes))
            args = {"item_id": rng.choice([*sample.tables["items"], "nothing"])}
            if tool == "refund_item":
                args["method"] = rng.choice(["card", "credit", "cash"])
            wanted = apply_call(sample.problem, state, writes[tool], args)
            reply = tools.call(tool, args)
            assert reply.get("error", "ok") == (wanted if isinstance(wanted, str) else "ok")
            state = state if isinstance(wanted, str) else wanted
            assert read(sample.problem, tools.path) == state
            replies.add(reply.get("error", "ok"))
    assert {"ok", "not_found", "wrong_status"} <= replies


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_specs_of_a_domain_are_closed_schemas_with_sources(domain: str) -> None:
    tasks = load_tasks(domain)
    found = tasks.first(random.Random(domain))
    assert found is not None
    problem = found.problem
    keys = {f"{relation.name}.{relation.key}" for relation in problem.relations}
    for spec in tool_specs(problem.relations, problem.access):
        compile_schema(spec.parameters)
        compile_schema(spec.returns)
        assert spec.parameters["additionalProperties"] is False
        assert spec.parameters["required"] == list(spec.parameters["properties"])  # type: ignore[arg-type]  # an object
        assert set(re.findall(r'"x-source": ?"([^"]+)"', spec.model_dump_json())) <= keys


@pytest.mark.parametrize("name", ["a_trip", "e_meetings", "c_refund"])
def test_replies_fit_the_declared_returns(name: str, tmp_path: Path) -> None:
    calls: dict[str, dict[str, Any]] = {
        "list_hotels_by_city": {"city": "Arden"},
        "get_hotel_info": {"info_keywords": ["price"], "name": "Elm Court"},
        "list_restaurants_by_city": {"city": "Arden", "min_price": 0, "max_price": 999},
        "get_restaurant_info": {"info_keywords": ["rating"], "name": "Alba"},
        "get_city_by_hotel": {"name": "Elm Court"},
        "list_people": {"page": 1},
        "list_busy": {"person": "Ana"},
        "get_order": {"fields": ["delivered"], "order_id": "o3"},
        "list_items": {"order_id": "o1"},
        "get_customer": {"customer_id": "c1"},
        "refund_item": {"item_id": "i1", "method": "card"},
        "add_credit": {"item_id": "i1"},
    }
    with opened(name, tmp_path) as (_, tools):
        for tool, spec in tools.specs.items():
            reply = tools.call(tool, calls.get(tool, {}))
            assert compile_schema(spec.returns).fault(reply) is None, tool


def test_units_are_told() -> None:
    specs = {spec.name: spec for spec in tool_specs(TOWN_RELATIONS, TOWN_ACCESS)}
    assert "price in CNY" in specs["get_hotel_info"].description
    assert "40 means 4.0" in specs["get_restaurant_info"].description


def test_descriptions_give_the_words_of_an_error_as_such() -> None:
    """Beside what the tool does they would contradict it: "cancels a pending order. It isn't pending."."""
    problem, _ = ladder("orders", 11)[7]
    specs = tool_specs(problem.relations, problem.access)
    cancel = next(spec for spec in specs if spec.name == "cancel_order")
    assert cancel.description == (
        "Cancel an order that is still pending. Fails with the error wrong_status: "
        '"The order is not in the status pending."'
    )


def test_no_description_states_an_error_as_a_fact() -> None:
    for problem, _ in (*ladder("orders", 11)[3:], *ladder("orders", 12, 8)[3:]):
        specs = {s.name: s for s in tool_specs(problem.relations, problem.access)}
        for one in problem.access:
            description = specs[one.tool].description
            for pre in one.pre:
                assert (
                    description.count(pre.text)
                    == description.count(f'error {pre.code}: "{pre.text}"')
                    == 1
                )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"args": {"class": "city"}}, "argument's name"),
        ({"mode": "info"}, "projection"),
        ({"mode": "inverse", "args": {}}, "inverse"),
        ({"pre": (Precondition(expr=Cmp(fn="=", left=Param(name="x"), right=Const(value=1)),
                               code="c", text="t"),)}, "depend on Param"),
    ],
)  # fmt: skip
def test_an_access_that_can_be_no_tool_is_refused(change: dict[str, Any], text: str) -> None:
    access: Access = TOWN_ACCESS[1].model_copy(update=change)
    with pytest.raises(PipelineError, match=text):
        tools_source(TOWN_RELATIONS, [access])


def test_a_hidden_relation_has_no_tools() -> None:
    hidden = [r.model_copy(update={"visible": False}) for r in TOWN_RELATIONS]
    with pytest.raises(PipelineError, match="hidden"):
        tool_specs(hidden, TOWN_ACCESS)

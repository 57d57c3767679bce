"""The gate of tools passes what is compiled, and catches each way in which a tool can be wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sample_problems import SAMPLES

from envgen.core.seeding import rng
from envgen.core.types import GateResult, GateStatus
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.gates import tool_calls
from envgen.pipelines.general.gates.tools import tools
from envgen.pipelines.general.gates.trial import Hosts, Trial
from envgen.pipelines.general.programs.tools_source import tool_specs, tools_source

Run = Callable[[Draft], GateResult]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(backend="process", trusted=True) as started:
        yield started


@pytest.fixture
def run(hosts: Hosts, tmp_path: Path) -> Run:
    """Run the gate over a draft."""

    def found(draft: Draft) -> GateResult:
        with TemporaryDirectory(dir=tmp_path) as folder:
            with closing(Trial(draft, hosts, Path(folder), None, seed=1)) as trial:
                return tools(trial)

    return found


def sample(name: str) -> Draft:
    """A sample problem with its compiled tools; nothing else of it is read."""
    problem, tables = SAMPLES[name].problem, SAMPLES[name].tables
    return Draft(
        environment_id=name,
        category="sample",
        title=name,
        relations=problem.relations,
        tables=tables,
        tools=tool_specs(problem.relations, problem.access),
        tools_source=tools_source(problem.relations, problem.access),
        task_id=name,
        prompt="",
        submit_schema={},
        solution="",
        verifier="",
        problem=problem,
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_compiled_tools_pass(name: str, run: Run) -> None:
    result = run(sample(name))
    assert (result.reason, result.status) == ("", GateStatus.PASSED)
    assert result.n > 50


SABOTAGE = (
    ("a_trip", r"price >= :min_price", "price > :min_price"),
    ("a_trip", r"price <= :max_price", "price < :max_price"),
    ("a_trip", r'check\("min_price", min_price, int\)', "pass"),
    ("a_trip", r'check\("max_price", max_price, int\)', "min_price = min(min_price, max_price)"),
    ("a_trip", r"ORDER BY name", "ORDER BY name DESC"),
    ("a_trip", r"ORDER BY name", "ORDER BY length(name), name"),
    ("a_trip", r"SELECT name FROM cities", "SELECT DISTINCT upper(name) FROM cities"),
    ("a_trip", r"WHERE name = \?", "WHERE name = rtrim(?)"),
    ("a_trip", r'return \[row\[0\] for row in rows\]', "return tuple(row for row in rows)"),
    ("a_trip", r'"name": row\[0\], "price": row\[1\]', '"price": row[1], "name": row[0]'),
    ("a_trip", r'"price": row\[1\]', '"price": float(row[1])'),
    ("a_trip", r"for name in info_keywords\}", "for name in sorted(info_keywords)}"),
    ("a_trip", r"or any\(item not in known for item in value\)", ""),
    ("a_trip", r"or not value or", "or"),
    ("a_trip", r'"not_found", f"there is no hotel', '"missing", f"there is no hotel'),
    ("a_trip", r"if row is None:\n        raise ToolError\([^\n]*\n    return row\[0\]",
     "return row[0] if row else None"),
    ("a_trip", r'find\(db, "SELECT 1 FROM cities[^\n]*', "pass"),
    ("e_meetings", r"LIMIT 2 OFFSET", "LIMIT 3 OFFSET"),
    ("e_meetings", r"\(page - 1\) \* 2", "page * 2 - 3 + (page == 1)"),
    ("e_meetings", r"if not 1 <= page <= pages", "if not 0 <= page <= pages"),
    ("e_meetings", r"if not 1 <= page <= pages", "if not 1 <= page <= pages + 1"),
    ("e_meetings", r"max\(1, -\(-total // 2\)\)", "max(1, total // 2 + 1)"),
    ("e_meetings", r"truth\(row\[2\]\)", "row[2]"),
    ("e_meetings", r"if type\(value\) is not kind", "if not isinstance(value, kind)"),
    ("c_refund", r"= 'delivered'", "!= 'refunded'"),
    ("c_refund", r"IN \('card', 'credit'\)", "IN ('card', 'credit', '')"),
    ("c_refund", r'ToolError\("bad_method"', 'ToolError("wrong_status"'),
    ("c_refund", r"SET status = 'refunded' WHERE id = :item_id", "SET status = 'refunded'"),
    ("c_refund", r"if taken:", "if False:"),
    ("c_refund", r"VALUES \(:item_id, :amount_2, :method\)", "VALUES (:item_id, :amount_2, 'card')"),
    ("c_refund", r"\+ 500 AS", "+ 500 + (SELECT count(*) FROM refunds) AS"),
    ("c_refund", r'\n    return \{"ok": True\}', '\n    return {"ok": 1}'),
    ("c_refund", r"def get_today\(db: sqlite3.Connection\) -> list:\n",
     "SEEN = []\n\n\ndef get_today(db: sqlite3.Connection) -> list:\n    SEEN.append(1)\n"
     "    if len(SEEN) > 1:\n        return []\n"),
    ("c_refund", r"SELECT tier, credit FROM customers", "SELECT tier, min(credit, 1500) FROM customers"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "replacement"), SABOTAGE)
def test_wrong_tools_fail(name: str, pattern: str, replacement: str, run: Run) -> None:
    draft = sample(name)
    broken = re.sub(pattern, replacement, draft.tools_source)
    assert broken != draft.tools_source
    assert run(replace(draft, tools_source=broken)).status is GateStatus.FAILED


SPECS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("get_customer", {"mutates": True}),
    ("get_customer", {"description": "Facts about a closed account."}),
    ("get_customer", {"errors": ()}),
    ("get_customer", {"parameters": {"type": "object", "properties": {"customer_id": {"type": "string"}}}}),
    ("get_customer", {"returns": {"type": "object", "properties": {"credit": {"maximum": 10}}}}),
    ("get_customer", {"parameters": {
        "type": "object", "required": ["customer_id"], "additionalProperties": False,
        "properties": {"customer_id": {"type": "string", "maxLength": 1, "x-source": "customers.id"}}}}),
    ("refund_item", {"mutates": False}),
    ("refund_item", {"name": "refund"}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "change"), SPECS)
def test_wrong_specs_fail(name: str, change: dict[str, Any], run: Run) -> None:
    draft = sample("c_refund")
    specs = tuple(s.model_copy(update=change) if s.name == name else s for s in draft.tools)
    assert run(replace(draft, tools=specs)).status is GateStatus.FAILED


def test_siblings_share_what_was_found(run: Run, hosts: Hosts) -> None:
    first = run(sample("a_trip"))
    assert run(replace(sample("a_trip"), task_id="sibling")) is first
    assert run(replace(sample("a_trip"), environment_id="other")) is not first


def test_all_keys_are_asked_for_up_to_a_stated_number() -> None:
    problem, tables = SAMPLES["a_trip"].problem, SAMPLES["a_trip"].tables
    info = next(one for one in problem.access if one.tool == "get_hotel_info")
    calls = tool_calls.good_reads(problem, tables, info, rng(0))
    assert {call["name"] for call in calls} == set(tables["hotels"])
    row = next(iter(tables["hotels"].values()))
    many = {f"h{i:05}": {**row, "name": f"h{i:05}"} for i in range(tool_calls.KEYS + 100)}
    calls = tool_calls.good_reads(problem, {**tables, "hotels": many}, info, rng(0))
    assert len(calls) == tool_calls.KEYS
    assert {calls[0]["name"], calls[-1]["name"]} == {min(many), max(many)}

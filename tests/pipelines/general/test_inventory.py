"""Inventory read once more in plain Python: lots that expire first, full trucks, cases to order."""

from __future__ import annotations

from datetime import date
from random import Random
from typing import Any

import pytest
from drafts import attempted

from envgen.core.ir import Problem
from envgen.pipelines.general.domains import load_tasks
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.space.answers import solve

Row = dict[str, Any]
Calls = dict[str, dict[str, Any]]
"""Tool -> the key of a row -> the number that goes with it (None if there is none)."""


def drafted(scene: str, level: int) -> tuple[Problem, dict[str, dict[str, Row]], Calls]:
    """A workflow in which something is to be done, and the calls of an answer."""
    for seed in range(20):
        draft = attempted("inventory", level, seed)
        assert isinstance(draft, Draft)
        problem: Any = draft.problem
        if problem.fields["opening"].partition("~")[0].partition("/")[0] != scene:
            continue
        plan: Any = next(solve(problem, draft.tables, Random(0)))
        calls: Calls = {}
        for name, arguments in plan.calls:
            key, *number = dict(arguments).values()
            calls.setdefault(name, {})[key] = number[0] if number else None
        if calls:
            tables: Any = draft.tables
            return problem, tables, calls
    raise AssertionError(f"twenty drafts, and no {scene} among them in which something is done")


def days(start: str, end: str) -> int:
    return (date.fromisoformat(end) - date.fromisoformat(start)).days


def trusted(row: Row, tables: dict[str, dict[str, Row]], small: bool) -> bool:
    """Whether a supplier's audit is in order, or a licence and a small load make up for it."""
    supplier = tables["suppliers"][row["supplier"]]
    return not supplier["overdue"] or (supplier["licensed"] and small)


def up_to(rows: list[Row], order: str, size: str, most: int) -> list[Row]:
    """The first rows in an order that come to at most so much together."""
    taken: list[Row] = []
    for row in sorted(rows, key=lambda row: row[order]):
        if sum(other[size] for other in (*taken, row)) > most:
            break
        taken.append(row)
    return taken


@pytest.mark.parametrize("level", [4, 6, pytest.param(9, marks=pytest.mark.slow)])
def test_lots_are_picked_as_a_picker_reads_the_rules(level: int) -> None:
    problem, tables, calls = drafted("pick", level)
    clauses, params = {clause.id for clause in problem.clauses}, dict[str, Any](problem.params)
    request = tables["requests"][params["request"]]
    lots = [
        lot
        for lot in tables["lots"].values()
        if lot["request"] == request["id"]
        and lot["status"] == "proposed"
        and not lot["inspection"]
        and (
            "life" not in clauses
            or days(request["deliver_on"], lot["expires_on"]) >= params["life"]
        )
        and ("new_lots" not in clauses or lot["arrived_on"] <= params["since"])
        and (
            "lapsed" not in clauses or trusted(lot, tables, lot["place"] <= params.get("until", 0))
        )
    ]
    if "truck" in clauses:
        lots = up_to(lots, "place", "pallets", params["space"])
    picked, cases = [], 0
    for lot in sorted(lots, key=lambda lot: lot["expires_on"]):
        if cases < params["share"]:
            picked.append(lot)
        cases += lot["cases"]
    pack = tables["skus"][request["sku"]]["pack"]
    wanted = {
        lot["code"]: lot["cases"]
        if level == 4
        else lot["cases"] * pack - (level > 7) * lot["damaged"]
        for lot in picked
    }
    assert len(wanted) >= 2
    assert calls == {"pick_lot": wanted}


@pytest.mark.parametrize("level", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 10))])
def test_cases_are_ordered_as_a_buyer_reads_the_rules(level: int) -> None:
    problem, tables, calls = drafted("buy", level)
    clauses, params = {clause.id for clause in problem.clauses}, dict[str, Any](problem.params)
    lines = [
        stock
        for stock in tables["stocks"].values()
        if stock["site"] == params["site"]
        and stock["status"] == "draft"
        and days(stock["asked_on"], stock["needed_on"])
        - tables["suppliers"][stock["supplier"]]["lead_days"]
        >= params["slack"]
        and ("overdue" not in clauses or trusted(stock, tables, stock["pallets"] <= 5))
    ]
    if "worth" in clauses:
        lines = [
            one
            for one in lines
            if sum(o["pallets"] for o in lines if o["supplier"] == one["supplier"])
            >= params["worth"]
        ]
    if "neediest" in clauses:
        lines = sorted(lines, key=lambda one: one["pieces"] - one["target"])[: params["most"]]
    if "dock" in clauses:
        lines = up_to(lines, "asked_on", "pallets", params["dock"])
    arriving: dict[str, int] = {}
    if level == 10:
        carried = [
            t
            for t in tables["transfers"].values()
            if t["site"] == params["site"] and t["status"] == "draft"
        ]
        arriving = {t["stock"]: t["pieces"] for t in carried}
        assert calls.pop("carry_out") == {t["id"]: None for t in carried}
    wanted = {}
    for line in lines:
        missing = line["target"] - line["pieces"] - arriving.get(line["code"], 0)
        cases = -(-missing // tables["skus"][line["sku"]]["pack"])
        least = tables["suppliers"][line["supplier"]]["least"] if level in (8, 9) else 0
        wanted[line["code"]] = max(cases, least)
    assert len(wanted) >= 2
    assert calls == {"order_line": wanted}


def test_a_sentence_names_the_rules_about_its_own_table() -> None:
    """One page has two workflows: what is said of lots names no rule about order lines."""
    blueprint = load_tasks("inventory").blueprint
    words = [rule.word for rule in blueprint.domain.phrases.values() if rule.word]
    lots, lines = blueprint.named_by("pick", words), blueprint.named_by("order", words)
    assert "expiry order" in lots
    assert "dock space" in lines
    assert set(lots) | set(lines) == set(words)
    assert not set(lots) & set(lines)
    assert blueprint.named_by("truck", words) == lots[: lots.index("truck space")]

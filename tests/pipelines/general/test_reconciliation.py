"""Bank reconciliation read once more in plain Python: sums, ages, fees, and whose dates count."""

from __future__ import annotations

from datetime import date
from random import Random
from typing import Any

import pytest
from drafts import attempted

from envgen.core.ir import Problem
from envgen.pipelines.general.draft import Draft
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space.answers import solve


def days(start: str, payment: dict[str, Any]) -> int:
    """From a day to the booking of a payment."""
    return (date.fromisoformat(payment["booked_on"]) - date.fromisoformat(start)).days


def drafted(level: int, seed: int) -> Draft:
    """A draft that has an answer."""
    for further in range(10):
        draft = attempted("reconciliation", level, seed + 100 * further)
        assert isinstance(draft, Draft)
        if problem_of(draft).feasible:
            return draft
    raise AssertionError("ten drafts in a row have no answer")


def problem_of(draft: Draft) -> Problem:
    assert draft.problem is not None
    return draft.problem


def matched(draft: Draft, tables: Tables) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each payment with the invoices that an answer of the solver gives it."""
    answer: Any = next(solve(problem_of(draft), tables, Random(0)))
    params: Any = problem_of(draft).params
    found = []
    for k in range(1, len(answer) + 1):
        given = answer[f"payment_{k}"]
        paid = given["pays"] if "pays" in given else [given["invoice"]]
        payment = tables["payments"][params[f"payment_{k}"]]
        found.append((payment, [tables["invoices"][i] for i in paid]))
    return found


def sent(payment: dict[str, Any], tables: Tables, clauses: set[str]) -> int:
    """What the customer sent, in cents."""
    fee: Any = tables["methods"][payment["method"]]["fee"]
    amount: Any = payment["amount"]
    if "fit_rate" in clauses:
        rate: Any = tables["currencies"][payment["currency"]]["rate"]
        return int(amount * rate // 100 + fee)
    return int(amount + (fee if "fit_fee" in clauses else 0))


def replaced(invoice: dict[str, Any], tables: Tables, clauses: set[str]) -> bool:
    """Whether a later invoice for the same order counts instead."""
    return any(
        other["order_no"] == invoice["order_no"]
        and other["issued_on"] > invoice["issued_on"]
        and not ("copies_but" in clauses and other["disputed"])
        for other in tables["invoices"].values()
    )


@pytest.mark.parametrize(
    ("level", "seed"),
    [(4, 0), (5, 1), (6, 2), (7, 3), (9, 4), pytest.param(10, 5, marks=pytest.mark.slow)],
)
def test_answers_keep_the_rules_as_a_clerk_reads_them(level: int, seed: int) -> None:
    draft = drafted(level, seed)
    clauses = {clause.id for clause in problem_of(draft).clauses}
    params: Any = problem_of(draft).params
    pairs = matched(draft, draft.tables)
    chosen = [invoice["id"] for _, invoices in pairs for invoice in invoices]
    assert len(set(chosen)) == len(chosen)
    ages = 0
    for payment, invoices in pairs:
        over = sum(i["amount"] for i in invoices) - sent(payment, draft.tables, clauses)
        assert 0 <= over <= params["room" if level == 4 else "slack"]
        ages += sum(days(i["issued_on"], payment) for i in invoices)
        for invoice in invoices:
            assert not replaced(invoice, draft.tables, clauses)
            if "disputes" in clauses and invoice["disputed"]:
                assert invoice["withdrawn"]
                assert not invoice["reopened"]
            if "aged" in clauses:
                again = invoice["resent"] and not invoice["disputed"]
                start = invoice["resent_on" if again else "issued_on"]
                assert days(start, payment) <= params["limit"]
    if level >= 7:
        amounts = sum(invoice["amount"] for _, invoices in pairs for invoice in invoices)
        assert params["least"] <= amounts <= params["most"]
    else:
        assert ages >= params["old" if level == 4 else "total"]


@pytest.mark.parametrize("seed", range(3))
def test_each_payment_is_another(seed: int) -> None:
    params = problem_of(drafted(6, seed)).params
    payments = [value for name, value in params.items() if name.startswith("payment_")]
    assert len(payments) == 3
    assert len(set(payments)) == 3


def test_sums_over_sets_that_are_never_empty_have_no_idle_zero() -> None:
    """A zero for the sum of no rows would be a fault that nothing can show."""
    verifier = drafted(6, 2).verifier
    assert "SUM(value)" in verifier
    assert "COALESCE" not in verifier

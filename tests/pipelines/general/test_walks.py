"""Walks find rows on which each part of a rule decides alone."""

from __future__ import annotations

from random import Random

from sample_problems import a_trip, both, cmp, eq, get

from envgen.core.ir import Clause, Cmp, Expr, Or, Param, Problem
from envgen.pipelines.general.gates.perturb import turns
from envgen.pipelines.general.gates.walks import walks
from envgen.pipelines.general.semantics.evaluate import Rules
from envgen.pipelines.general.semantics.tables import Tables


def city(name: str) -> Expr:
    return get("hotels", Param(name=name), "city")


def stars(name: str) -> Expr:
    return get("hotels", Param(name=name), "stars")


SAME = eq(city("one"), city("two"))
APART = Or(
    items=(cmp(stars("one"), "<", stars("two")), cmp(stars("two"), "<", stars("three"))),
)
ELSEWHERE = Cmp(fn="!=", left=city("one"), right=city("three"))


def with_rule(expr: Expr) -> Problem:
    """A trip whose one rule speaks of hotels that parameters name, whatever the answer is."""
    problem = a_trip().problem
    clause = Clause(id="rule", family="extra", expr=expr, text_key="tier")
    hotels = {"one": "Amber Inn", "two": "Dune House", "three": "Grove Stay"}
    return problem.model_copy(update={"clauses": (clause,), "params": hotels})


def test_every_part_of_a_rule_decides_somewhere() -> None:
    sample, right = a_trip(), with_rule(Or(items=(both(SAME, APART), both(SAME, ELSEWHERE))))
    (answer,) = sample.accepted
    steps = list(walks(right, sample.tables, [answer], "rule", Random(1)))
    rows = [tables for step in steps for tables in (step.before, step.after)]
    assert steps == list(walks(right, sample.tables, [answer], "rule", Random(1)))

    def verdicts(problem: Problem, rows: list[Tables]) -> list[bool]:
        rules = Rules(problem)
        return [rules.verdicts(tables, answer, tables)["rule"] for tables in rows]

    assert verdicts(right, rows) == [True, False] * len(steps)
    first, second = APART.items
    for wrong in (
        both(SAME, APART),
        both(SAME, ELSEWHERE),
        Or(items=(APART, both(SAME, ELSEWHERE))),
        Or(items=(both(SAME, APART), ELSEWHERE)),
        Or(items=(both(SAME, first), both(SAME, ELSEWHERE))),
        Or(items=(both(SAME, second), both(SAME, ELSEWHERE))),
        Or(items=(both(SAME, first, second), both(SAME, ELSEWHERE))),
        Or(items=(both(SAME, first, cmp(stars("one"), "<=", stars("two"))), both(SAME, second))),
        Or(
            items=(
                both(SAME, Or(items=(cmp(stars("one"), "<=", stars("two")), second))),
                both(SAME, ELSEWHERE),
            )
        ),
    ):
        assert verdicts(with_rule(wrong), rows) != verdicts(right, rows)
    # One cell changed tells none of them: the cities differ on the sample's own rows.
    assert list(turns(right, sample.tables, [answer])) == []

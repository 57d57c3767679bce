"""Items whose slots hang on a head (a day's city): best answers and near-misses, by brute force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from ladders import ladder

from envgen.core.ir import Cmp
from envgen.pipelines.general.semantics.rewrite import conjuncts, truth
from envgen.pipelines.general.semantics.tables import Tables
from envgen.pipelines.general.space import ranking
from envgen.pipelines.general.space.build import bare_model
from envgen.pipelines.general.space.model import StepBudget
from envgen.pipelines.general.space.ranking import Ranking

STEPS = 200_000
RULES = ("no_repeat", "located", "luxury", "mid", "low")
"""Those that answers over few rows can keep; the first compares heads, as the trains of the sum do."""


def cut(tables: Tables) -> Tables:
    """Four cities, each with its cheapest hotel and attraction, two good restaurants and the worst one."""
    found = {name: dict(rows) for name, rows in tables.items()}
    found["cities"] = dict(list(tables["cities"].items())[:4])
    for name, column, places in (
        ("hotels", "price", (0,)),
        ("restaurants", "rating", (0, -2, -1)),
        ("attractions", "price", (0,)),
    ):
        found[name] = {}
        for city in found["cities"]:
            here = [(row[column], key) for key, row in tables[name].items() if row["city"] == city]
            keys = [sorted(here)[at][1] for at in places]
            found[name] |= {key: tables[name][key] for key in keys}
    return found


class Headed:
    """A trip of level 9 over few rows: its ranking by heads, and the same by looking at every answer."""

    def __init__(self) -> None:
        self.problem, tables = ladder("trip", 5, 9)[-1]
        self.tables = cut(tables)
        self.space = bare_model(self.problem, self.tables)
        bound = next(c for c in self.problem.clauses if c.id == "tightest")
        assert isinstance(bound.expr, Cmp)
        self.sum = bound.expr.left
        self.rules = [
            (c.id, e) for c in self.problem.clauses if c.id in RULES for e in conjuncts(truth(c))
        ]
        names = [slot.name for slot in self.problem.slots]
        self.groups = [[i for i, n in enumerate(names) if n.endswith(k)] for k in ("1", "2", "3")]
        self.ranking = Ranking(self.space, self.groups, self.rules, (self.sum, 1), {})

    def answers(self) -> Iterator[tuple[int, set[str]]]:
        """The sum of every answer that is located, and the rules that it breaks."""
        compile_, frame = self.space.compiler.compile, self.space.compiler.frame()
        rules, cost = [(rule, compile_(e)) for rule, e in self.rules], compile_(self.sum)
        for days in product(self._days(), repeat=3):
            for group, day in zip(self.groups, days, strict=True):
                for i, value in zip(group, day, strict=True):
                    frame.slots[i] = value
            total = cost(frame)
            if total is not None:
                yield total, {rule for rule, run in rules if run(frame) is not True}

    def _days(self) -> list[tuple[str, ...]]:
        """In the order of the slots: city, hotel, restaurant, attraction, restaurant."""

        def here(name: str, city: str) -> list[str]:
            return [key for key, row in self.tables[name].items() if row["city"] == city]

        parts = ("hotels", "restaurants", "attractions", "restaurants")
        cities = self.tables["cities"]
        return [(c, *rest) for c in cities for rest in product(*(here(p, c) for p in parts))]


@pytest.fixture
def headed(monkeypatch: pytest.MonkeyPatch) -> Headed:
    monkeypatch.setattr(
        ranking, "MAX_CELLS", 100
    )  # a day over so few rows is listed whole otherwise
    return Headed()


def test_best_answers_and_near_misses_by_heads_are_those_of_brute_force(headed: Headed) -> None:
    found = headed.ranking
    assert all(cluster.head is not None and len(cluster.slots) == 5 for cluster in found.order)
    every = list(headed.answers())
    right = sorted(total for total, broken in every if not broken)
    assert len(right) >= 3
    best = found.best(3, StepBudget(STEPS))
    assert [one.total for one in best] == right[:3]
    assert found.above(right[0], StepBudget(STEPS)) == (right[-1] > right[0])
    bound = right[0]
    alone = {min(broken) for total, broken in every if len(broken) == 1 and total <= bound}
    names = [rule for rule in RULES if rule != "located"]
    near = {rule: found.near_miss(rule, bound, StepBudget(STEPS)) for rule in names}
    assert {rule for rule, one in near.items() if one} == alone
    assert alone
    assert all(one.broken == rule and one.total <= bound for rule, one in near.items() if one)


def test_what_does_not_fit_its_head_is_found_next_to_the_best(headed: Headed) -> None:
    best = headed.ranking.best(1, StepBudget(STEPS))[0].total
    near = headed.ranking.near_miss("located", best + 2_000, StepBudget(STEPS))
    assert near
    frame = headed.space.compiler.frame()
    frame.slots[:] = near.values
    compile_ = headed.space.compiler.compile
    assert {r for r, e in headed.rules if compile_(e)(frame) is not True} == {"located"}

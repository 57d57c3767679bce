"""Problems with random rules, to try every kind of expression in every compiler."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from envgen.core import ir
from envgen.core.ir import (
    Access,
    Choice,
    Clause,
    Column,
    Const,
    Expr,
    Get,
    Intervals,
    IntRange,
    Param,
    Problem,
    Query,
    Relation,
    Slot,
    SlotRef,
    Var,
)

Tables = dict[str, dict[str, dict[str, Any]]]

TEAMS = Relation(
    name="teams",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="size", type="int"),
        Column(name="lead", type="entity:people", nullable=True),
        Column(name="open", type="bool"),
    ),
)
PEOPLE = Relation(
    name="people",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="team", type="entity:teams"),
        Column(name="age", type="int", nullable=True),
        Column(name="joined", type="date", nullable=True),
        Column(name="away", type="bool", nullable=True),
        Column(name="start", type="minutes"),
        Column(name="boss", type="entity:people", nullable=True),
    ),
)
RELATIONS = (TEAMS, PEOPLE)
ACCESS = (
    Access(
        tool="list_teams",
        relation="teams",
        mode="list",
        description="All teams.",
        returned_columns=("id", "size"),
    ),
    Access(
        tool="get_team",
        relation="teams",
        mode="inverse",
        description="One team.",
        args={"team": "id"},
        returned_columns=("size", "lead", "open"),
    ),
    Access(
        tool="list_members",
        relation="people",
        mode="page",
        description="The people of a team.",
        args={"team": "team"},
        returned_columns=("id", "age"),
        page_size=2,
    ),
    Access(
        tool="get_person",
        relation="people",
        mode="info",
        description="One person.",
        args={"person": "id"},
        projection="wanted",
        returned_columns=("team", "age", "joined", "away", "start", "boss"),
    ),
)
SLOTS = (
    Slot(name="team", kind="entity", domain=Query(var="t", relation="teams")),
    Slot(name="boss", kind="entity", domain=Query(var="p", relation="people")),
    Slot(name="n", kind="value", domain=IntRange(low=0, high=4)),
    Slot(name="mood", kind="value", domain=Choice(values=("calm", "keen"))),
    Slot(name="group", kind="set", domain=Query(var="p", relation="people"), length=2),
    Slot(name="slot", kind="interval", domain=Intervals(low=540, high=660, step=30, length=60)),
    Slot(name="call", kind="interval", domain=Intervals(low=540, high=630, step=30, length=30)),
)
PARAMS: dict[str, Any] = {"k": 2, "day": "2025-03-01", "who": "p1", "ghost": "nobody"}


def tables(rng: random.Random) -> Tables:
    """Three teams, six people, some cells unknown."""
    people = [f"p{i}" for i in range(1, 7)]
    teams = ["t1", "t2", "t3"]
    return {
        "teams": {
            t: {
                "id": t,
                "size": rng.randint(0, 5),
                "lead": rng.choice([*people, None]),
                "open": rng.random() < 0.5,
            }
            for t in teams
        },
        "people": {
            p: {
                "id": p,
                "team": rng.choice(teams),
                "age": rng.choice([None, 1, 2, 3, 4]),
                "joined": rng.choice([None, "2025-01-31", "2025-03-01", "2024-02-29"]),
                "away": rng.choice([None, True, False]),
                "start": rng.choice([540, 570, 600]),
                "boss": rng.choice([*people, None]),
            }
            for p in people
        },
    }


class Maker:
    """Draws expressions; ``people`` and ``teams`` hold the variables in scope.

    ``reachable``: also of what edges lead to.
    """

    def __init__(self, rng: random.Random, *, reachable: bool = False) -> None:
        self.rng = rng
        self.reachable = reachable
        self.people: list[Expr] = [SlotRef(slot="boss"), Param(name="who"), Param(name="ghost")]
        self.teams: list[Expr] = [SlotRef(slot="team")]
        self.count = 0

    def person(self, depth: int) -> Expr:
        if depth > 0 and self.rng.random() < 0.25:
            return Get(relation="teams", entity=self.team(depth - 1), column="lead")
        return self.rng.choice(self.people)

    def team(self, depth: int) -> Expr:
        if depth > 0 and self.rng.random() < 0.3:
            return Get(relation="people", entity=self.person(depth - 1), column="team")
        return self.rng.choice(self.teams)

    def variable(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def over(self, depth: int) -> tuple[str, Any, list[Expr]]:
        """A variable, what it runs over, and the list that it must be in meanwhile."""
        var = self.variable()
        kind = self.rng.randrange(4 if self.reachable else 3)
        if kind == 0:
            return var, SlotRef(slot="group"), self.people
        if kind == 3:
            return var, self._reached(depth), self.people
        relation, scope = (("people", self.people), ("teams", self.teams))[kind - 1]
        scope.append(Var(name=var))
        where = self.truth(depth - 1) if self.rng.random() < 0.7 else Const(value=True)
        scope.pop()
        return var, Query(var=var, relation=relation, where=where), scope

    def _reached(self, depth: int) -> Expr:
        """Everybody above or below a person; bosses may be each other's."""
        source, target = self.rng.sample(("id", "boss"), 2)
        start = self.person(depth - 1)
        return ir.Reachable(start=start, relation="people", source=source, target=target)

    def inside(self, depth: int, make: Any) -> tuple[str, Any, Any]:
        var, over, scope = self.over(depth)
        scope.append(Var(name=var))
        body = make(depth - 1)
        scope.pop()
        return var, over, body

    def number(self, depth: int) -> Expr:
        ways: list[Callable[[], Expr]] = [
            lambda: Const(value=self.rng.randint(0, 4)),
            lambda: Param(name="k"),
            lambda: SlotRef(slot="n"),
            lambda: Get(relation="people", entity=self.person(depth), column="age"),
            lambda: Get(relation="teams", entity=self.team(depth), column="size"),
        ]
        if depth > 0:
            ways += [
                self._arith(depth),
                self._folded(depth),
                self._chosen(depth),
                self._days(depth),
            ]
            ways += [lambda: ir.Start(interval=SlotRef(slot="slot")), self._aggregate(depth)]
        return self.rng.choice(ways)()

    def _arith(self, depth: int) -> Any:
        def make() -> Expr:
            fn = self.rng.choice(["+", "-", "*", "convert"])
            right = Const(value=3) if fn == "convert" else self.number(depth - 1)
            return ir.Arith(fn=fn, left=self.number(depth - 1), right=right)

        return make

    def _folded(self, depth: int) -> Any:
        def make() -> Expr:
            if self.rng.random() < 0.5:
                var, over, body = self.inside(depth, self.number)
                return ir.Sum(var=var, over=over, body=body)
            var, over, body = self.inside(depth, self.truth)
            return ir.Count(var=var, over=over, body=body)

        return make

    def _chosen(self, depth: int) -> Any:
        return lambda: ir.If(
            test=self.truth(depth - 1), then=self.number(depth - 1), other=self.number(depth - 1)
        )

    def _days(self, depth: int) -> Any:
        joined = Get(relation="people", entity=self.person(0), column="joined")
        return lambda: ir.Days(left=joined, right=Param(name="day"))

    def _aggregate(self, depth: int) -> Any:
        def make() -> Expr:
            var = self.variable()
            row = Var(name=var)
            self.people.append(row)
            where = self.truth(depth - 1)
            self.people.pop()
            age = Get(relation="people", entity=row, column="age")
            agg = self.rng.choice(["count", "sum", "min", "max", "mean", "none"])
            if agg == "none":
                order = (ir.Order(by=age, descending=self.rng.random() < 0.5),)
                return Query(
                    var=var, relation="people", where=where, select=age, order=order, limit=1
                )
            select = None if agg == "count" and self.rng.random() < 0.5 else age
            return Query(var=var, relation="people", where=where, select=select, agg=agg)

        return make

    def truth(self, depth: int) -> Expr:
        ways: list[Callable[[], Expr]] = [
            lambda: self._cmp(max(depth - 1, 0)),
            lambda: self._cmp(max(depth - 1, 0)),
            lambda: Get(relation="people", entity=self.person(0), column="away"),
            lambda: Get(relation="teams", entity=self.team(0), column="open"),
        ]
        if depth > 0:
            ways += [
                lambda: ir.And(items=(self.truth(depth - 1), self.truth(depth - 1))),
                lambda: ir.Or(items=(self.truth(depth - 1), self.truth(depth - 1))),
                lambda: ir.Not(item=self.truth(depth - 1)),
                lambda: ir.If(
                    test=self.truth(depth - 1),
                    then=self.truth(depth - 1),
                    other=self.truth(depth - 1),
                ),
                self._every(depth),
                self._every(depth),
                lambda: ir.AllDifferent(items=tuple(self.person(1) for _ in range(3))),
                lambda: ir.NoOverlap(intervals=(SlotRef(slot="slot"), SlotRef(slot="call"))),
                lambda: ir.Before(
                    left=SlotRef(slot="call"), right=SlotRef(slot="slot"), lag=self.number(0)
                ),
            ]
        return self.rng.choice(ways)()

    def _cmp(self, depth: int) -> Expr:
        kind = self.rng.randrange(5)
        if kind == 0:
            left, right = self.person(depth), self.person(depth)
            return ir.Cmp(fn=self.rng.choice(["=", "!="]), left=left, right=right)
        if kind == 1:
            return ir.Cmp(fn="in", left=self.person(depth), right=self._listed())
        if kind == 2:
            return ir.Cmp(fn="=", left=SlotRef(slot="mood"), right=Const(value="keen"))
        fn = self.rng.choice(["=", "!=", "<", "<=", ">", ">="])
        return ir.Cmp(fn=fn, left=self.number(depth), right=self.number(depth))

    def _listed(self) -> Expr:
        var = self.variable()
        lead = Get(relation="teams", entity=Var(name=var), column="lead")
        choices: list[Expr] = [
            Const(value=("p1", "p2")),
            SlotRef(slot="group"),
            Query(var=var, relation="teams", select=lead),
            *([self._reached(1)] if self.reachable else []),
        ]
        return self.rng.choice(choices)

    def _every(self, depth: int) -> Any:
        def make() -> Expr:
            var, over, body = self.inside(depth, self.truth)
            if self.rng.choice((True, False)):
                return ir.All(var=var, over=over, body=body)
            return ir.Any(var=var, over=over, body=body)

        return make


def random_problem(
    rng: random.Random, clauses: int = 1, depth: int = 2, *, reachable: bool = False
) -> Problem:
    """A problem over all kinds of slots with ``clauses`` random rules, some guarded."""
    maker = Maker(rng, reachable=reachable)
    built = tuple(
        Clause(
            id=f"rule_{i}",
            family="random",
            expr=maker.truth(depth),
            guard=maker.truth(1) if rng.random() < 0.3 else None,
            text_key="random",
        )
        for i in range(clauses)
    )
    layout = {slot.name: {"$slot": slot.name} for slot in SLOTS}
    return Problem(
        id="random",
        shape="A",
        relations=RELATIONS,
        access=ACCESS,
        slots=SLOTS,
        clauses=built,
        layout=layout,
        params=PARAMS,
        lexicon="none",
    )

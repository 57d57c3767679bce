"""Random small problems, well typed but otherwise wild: what the laws of the IR are tried on.

``wild_problem(seed)`` draws tables with holes (NULLs), slots of every kind and clauses from a
grammar that reaches every expression class that makes sense without a final state.
"""

from __future__ import annotations

from random import Random
from typing import Any, Literal

from envgen.core.ir import (
    All,
    AllDifferent,
    And,
    Arith,
    Before,
    Choice,
    Clause,
    Cmp,
    Column,
    Const,
    Count,
    Days,
    End,
    Equals,
    Expr,
    Get,
    If,
    Intervals,
    IntRange,
    NoOverlap,
    Not,
    Optimise,
    Or,
    Order,
    Param,
    Problem,
    Query,
    Range,
    Reachable,
    Relation,
    Satisfy,
    Slot,
    SlotRef,
    Start,
    Sum,
    Var,
)
from envgen.core.ir import (
    Any as AnyOf,
)

CITIES = Relation(
    name="cities",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="size", type="int"),
        Column(name="founded", type="date", nullable=True),
    ),
)
SPOTS = Relation(
    name="spots",
    key="id",
    columns=(
        Column(name="id", type="str"),
        Column(name="city", type="entity:cities", nullable=True),
        Column(name="price", type="int", nullable=True),
        Column(name="stars", type="int"),
        Column(name="open", type="bool"),
        Column(name="since", type="date"),
        Column(name="next", type="entity:spots", nullable=True),
    ),
)
INTS = {"cities": ("size",), "spots": ("price", "stars")}
DATES = {"cities": "founded", "spots": "since"}
LETTERS = "abcdefg"


def _date(rng: Random) -> str:
    return f"2025-{rng.randint(1, 3):02d}-{rng.randint(1, 28):02d}"


def random_tables(rng: Random) -> dict[str, Any]:
    cities = [f"c{i}" for i in range(rng.randint(1, 3))]
    num_spots = rng.randint(3, 6)
    return {
        "cities": {
            c: {
                "id": c,
                "size": rng.randint(0, 4),
                "founded": None if rng.random() < 0.2 else _date(rng),
            }
            for c in cities
        },
        "spots": {
            f"s{i}": {
                "id": f"s{i}",
                "city": None if rng.random() < 0.1 else rng.choice(cities),
                "price": None if rng.random() < 0.1 else rng.randint(0, 6),
                "stars": rng.randint(1, 4),
                "open": rng.random() < 0.6,
                "since": _date(rng),
                "next": rng.choice((None, "s0", "s1", "s2")),
            }
            for i in range(num_spots)
        },
    }


class _Grammar:
    """Draws expressions over some slots; ``bound`` maps variables in scope to their relation or int."""

    def __init__(self, rng: Random, slots: list[Slot]) -> None:
        self.rng = rng
        self.slots = slots
        self.bound: dict[str, str] = {}
        self.num_vars = 0

    def of_kind(self, kind: str) -> list[Slot]:
        return [slot for slot in self.slots if slot.kind == kind]

    def relation_of(self, slot: Slot) -> str:
        assert isinstance(slot.domain, Query)
        return slot.domain.relation

    def entity(self, relation: str) -> Expr:
        """An expression that names a row of ``relation``."""
        found: list[Expr] = [
            SlotRef(slot=s.name) for s in self.of_kind("entity") if self.relation_of(s) == relation
        ]
        found += [Var(name=v) for v, r in self.bound.items() if r == relation]
        found += [
            SlotRef(slot=s.name, index=Const(value=self.rng.randint(0, 2)))
            for s in self.of_kind("sequence")
            if self.relation_of(s) == relation
        ]
        if relation == "spots" and self.of_kind("map"):
            key = Const(value=f"c{self.rng.randint(0, 3)}")
            found += [SlotRef(slot=s.name, index=key) for s in self.of_kind("map")]
        if relation == "cities":
            spots = [s for s in self.of_kind("entity") if self.relation_of(s) == "spots"]
            found += [
                Get(relation="spots", entity=SlotRef(slot=s.name), column="city") for s in spots
            ]
        if not found or self.rng.random() < 0.1:
            found.append(Const(value=f"{relation[0]}{self.rng.randint(0, 3)}"))
        return self.rng.choice(found)

    def get(self, column: Literal["int", "date"]) -> Expr:
        relation = self.rng.choice(("cities", "spots"))
        name = self.rng.choice(INTS[relation]) if column == "int" else DATES[relation]
        return Get(relation=relation, entity=self.entity(relation), column=name)

    def fresh(self) -> str:
        self.num_vars += 1
        return f"v{self.num_vars}"

    def over(self) -> tuple[str, Any, str]:
        """(variable, what it runs over, its type)."""
        var = self.fresh()
        lists = [s for kind in ("set", "sequence", "map") for s in self.of_kind(kind)]
        draw = self.rng.random()
        if lists and draw < 0.4:
            slot = self.rng.choice(lists)
            kind = "cities" if slot.kind == "map" else self.relation_of(slot)
            return var, SlotRef(slot=slot.name), kind
        if draw < 0.55:
            low = Const(value=self.rng.randint(0, 2))
            return var, Range(low=low, high=Const(value=self.rng.randint(0, 4))), "int"
        if draw < 0.65:
            return var, self.reachable(), "spots"
        relation = self.rng.choice(("cities", "spots"))
        return var, self.query(relation, var), relation

    def reachable(self) -> Reachable:
        """The spots after or before one."""
        source, target = self.rng.sample(("id", "next"), 2)
        start = self.entity("spots")
        return Reachable(start=start, relation="spots", source=source, target=target)

    def query(self, relation: str, var: str, depth: int = 1) -> Query:
        order: tuple[Order, ...] = ()
        limit = None
        if self.rng.random() < 0.3:
            by = Get(relation=relation, entity=Var(name=var), column=INTS[relation][-1])
            order = (Order(by=by, descending=self.rng.random() < 0.5),)
            limit = self.rng.choice((None, 1, 2))
        outer = dict(self.bound)
        self.bound[var] = relation
        where = self.boolean(depth - 1) if self.rng.random() < 0.7 else Const(value=True)
        self.bound = outer
        return Query(var=var, relation=relation, where=where, order=order, limit=limit)

    def body(self, var: str, kind: str, make: Any, depth: int) -> Expr:
        outer = dict(self.bound)
        self.bound[var] = kind
        result: Expr = make(depth)
        self.bound = outer
        return result

    def integer(self, depth: int) -> Expr:
        rng = self.rng
        leaves: list[Any] = [
            lambda: Const(value=rng.randint(0, 5)),
            lambda: Param(name=rng.choice(("p", "q"))),
            lambda: self.get("int"),
            lambda: self.get("int"),
        ]
        values = [s for s in self.of_kind("value") if isinstance(s.domain, IntRange)]
        if values:
            leaves.append(lambda: SlotRef(slot=rng.choice(values).name))
        numbers = [v for v, kind in self.bound.items() if kind == "int"]
        if numbers:
            leaves.append(lambda: Var(name=rng.choice(numbers)))
        if self.of_kind("interval"):
            leaves.append(lambda: Start(interval=self.interval()))
            leaves.append(lambda: End(interval=self.interval()))
        if depth <= 0:
            return rng.choice(leaves)()  # type: ignore[no-any-return]
        draw = rng.random()
        if draw < 0.35:
            fn = rng.choice(("+", "-", "*", "+"))
            return Arith(fn=fn, left=self.integer(depth - 1), right=self.integer(depth - 1))
        if draw < 0.42:
            divisor = Const(value=rng.randint(1, 3))
            return Arith(fn="//", left=self.integer(depth - 1), right=divisor)
        if draw < 0.5:
            test = self.boolean(depth - 1)
            return If(test=test, then=self.integer(depth - 1), other=self.integer(depth - 1))
        if draw < 0.6:
            var, over, kind = self.over()
            if rng.random() < 0.5:
                return Sum(var=var, over=over, body=self.body(var, kind, self.integer, depth - 1))
            return Count(var=var, over=over, body=self.body(var, kind, self.boolean, depth - 1))
        if draw < 0.7:
            relation = rng.choice(("cities", "spots"))
            var = self.fresh()
            query = self.query(relation, var, depth)
            agg = rng.choice(("count", "sum", "min", "max", "mean"))
            column = rng.choice(INTS[relation])
            select = Get(relation=relation, entity=Var(name=var), column=column)
            return query.model_copy(update={"agg": agg, "select": select})
        if draw < 0.76:
            return Days(left=self.get("date"), right=self.get("date"))
        return rng.choice(leaves)()  # type: ignore[no-any-return]

    def interval(self) -> Expr:
        return SlotRef(slot=self.rng.choice(self.of_kind("interval")).name)

    def comparison(self, depth: int) -> Expr:
        rng = self.rng
        fn = rng.choice(("=", "!=", "<", "<=", ">", ">=", "<=", ">="))
        return Cmp(fn=fn, left=self.integer(depth), right=self.integer(depth))

    def boolean(self, depth: int) -> Expr:
        rng, draw = self.rng, self.rng.random()
        if depth <= 0 or draw < 0.35:
            return self.simple(max(depth, 0))
        if draw < 0.45:
            return And(items=tuple(self.boolean(depth - 1) for _ in range(rng.randint(1, 3))))
        if draw < 0.57:
            return Or(items=tuple(self.boolean(depth - 1) for _ in range(rng.randint(1, 3))))
        if draw < 0.65:
            return Not(item=self.boolean(depth - 1))
        if draw < 0.75:
            return If(
                test=self.boolean(depth - 1),
                then=self.boolean(depth - 1),
                other=self.boolean(depth - 1),
            )
        var, over, kind = self.over()
        body = self.body(var, kind, self.boolean, depth - 1)
        return (All if rng.random() < 0.5 else AnyOf)(var=var, over=over, body=body)

    def simple(self, depth: int) -> Expr:
        rng, draw = self.rng, self.rng.random()
        entities = self.of_kind("entity")
        if draw < 0.12 and entities:
            relation = self.relation_of(rng.choice(entities))
            return Cmp(
                fn=rng.choice(("=", "!=")),
                left=self.entity(relation),
                right=self.entity(relation),
            )
        if draw < 0.2:
            return Get(relation="spots", entity=self.entity("spots"), column="open")
        if draw < 0.28 and len(entities) > 1:
            relation = self.relation_of(rng.choice(entities))
            same = [s for s in entities if self.relation_of(s) == relation]
            return AllDifferent(items=tuple(SlotRef(slot=s.name) for s in same))
        if draw < 0.36:
            return self.membership()
        if draw < 0.46 and len(self.of_kind("interval")) > 1:
            spans = tuple(SlotRef(slot=s.name) for s in self.of_kind("interval"))
            if rng.random() < 0.5:
                return Before(left=spans[0], right=spans[1], lag=Const(value=rng.randint(0, 1)))
            places = tuple(self.entity("cities") for _ in spans) if rng.random() < 0.5 else ()
            return NoOverlap(intervals=spans, resources=places)
        return self.comparison(depth)

    def membership(self) -> Expr:
        rng = self.rng
        relation = rng.choice(("cities", "spots"))
        left = self.entity(relation)
        sets = [s for s in self.of_kind("set") if self.relation_of(s) == relation]
        if relation == "spots" and rng.random() < 0.2:
            return Cmp(fn="in", left=left, right=self.reachable())
        if sets and rng.random() < 0.5:
            return Cmp(fn="in", left=left, right=SlotRef(slot=rng.choice(sets).name))
        if rng.random() < 0.5:
            names = tuple(f"{relation[0]}{i}" for i in rng.sample(range(5), rng.randint(1, 3)))
            return Cmp(fn="in", left=left, right=Const(value=names))
        query = self.query(relation, self.fresh())
        return Cmp(fn="in", left=left, right=query.model_copy(update={"limit": None, "order": ()}))


def _slots(rng: Random, listable: bool) -> list[Slot]:
    slots: list[Slot] = []
    kinds = ("city", "spot", "spot", "number", "choice", "time", "set", "list", "map")
    for i in range(rng.randint(1, 4)):
        kind = rng.choice(kinds[:-2] if listable else kinds)
        name = f"{kind}_{i}"
        if kind == "city":
            slots.append(Slot(name=name, kind="entity", domain=Query(var="r", relation="cities")))
        elif kind == "spot":
            slots.append(Slot(name=name, kind="entity", domain=_spot_domain(rng, slots)))
        elif kind == "number":
            domain = IntRange(low=0, high=rng.randint(0, 6), step=rng.randint(1, 2))
            slots.append(Slot(name=name, kind="value", domain=domain))
        elif kind == "choice":
            slots.append(Slot(name=name, kind="value", domain=Choice(values=("x", "y"))))
        elif kind == "time":
            length = rng.randint(1, 3)
            grid = Intervals(low=0, high=rng.randint(length, 7), step=1, length=length)
            slots.append(Slot(name=name, kind="interval", domain=grid))
        elif any(slot.kind in ("set", "sequence", "map") for slot in slots):
            continue
        elif kind == "list":
            places = Query(var="r", relation=rng.choice(("cities", "spots")))
            slots.append(Slot(name=name, kind="sequence", domain=places, length=2))
        elif kind == "map":
            keys, places = Query(var="k", relation="cities"), Query(var="r", relation="spots")
            slots.append(Slot(name=name, kind="map", domain=places, key_domain=keys))
        else:
            places = Query(var="r", relation="cities")
            places = _spot_domain(rng, slots) if rng.random() < 0.5 else places
            least, most = rng.randint(0, 1), rng.randint(1, 2)
            slots.append(Slot(name=name, kind="set", domain=places, least=least, length=most))
    return slots or [Slot(name="n", kind="value", domain=IntRange(low=0, high=5))]


def _spot_domain(rng: Random, slots: list[Slot]) -> Query:
    """All spots, those of an earlier or a given city, or (which conditions nothing) the dear ones."""
    cities = [s for s in slots if s.name.startswith("city")]
    row = Var(name="r")
    if cities and rng.random() < 0.6:
        city = SlotRef(slot=rng.choice(cities).name)
        where: Expr = Cmp(fn="=", left=Get(relation="spots", entity=row, column="city"), right=city)
        if rng.random() < 0.3:
            stars = Get(relation="spots", entity=row, column="stars")
            where = And(items=(where, Cmp(fn=">=", left=stars, right=Param(name="q"))))
        return Query(var="r", relation="spots", where=where)
    if rng.random() < 0.2:
        home = Get(relation="spots", entity=row, column="city")
        where = Cmp(fn="=", left=home, right=Const(value="c0"))
        return Query(var="r", relation="spots", where=where)
    if rng.random() < 0.2:
        stars = Get(relation="spots", entity=row, column="stars")
        where = Cmp(fn=">", left=stars, right=Const(value=1))
        return Query(var="r", relation="spots", where=where)
    return Query(var="r", relation="spots")


def _budget(rng: Random, slots: list[Slot]) -> Clause | None:
    """A sum over several slots against a bound."""
    parts: list[Expr] = [
        Get(relation="spots", entity=SlotRef(slot=s.name), column="price")
        for s in slots
        if s.name.startswith("spot")
    ]
    parts += [SlotRef(slot=s.name) for s in slots if s.name.startswith("number")]
    if len(parts) < 2:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = Arith(fn=rng.choice(("+", "+", "-")), left=total, right=part)
    fn = rng.choice(("<=", ">=", "<", ">", "="))
    expr = Cmp(fn=fn, left=total, right=Const(value=rng.randint(0, 9)))
    return Clause(id="budget", family="budget", expr=expr, text_key="budget")


def wild_problem(
    seed: int, *, num_clauses: int = 3, listable: bool = False
) -> tuple[Problem, dict[str, Any]]:
    """A problem (shape A, B, D or E in spirit) and its rows, both from one seed.

    ``listable``: without sequences and maps, which are neither searched nor counted.
    """
    rng = Random(seed)
    tables = random_tables(rng)
    slots = _slots(rng, listable)
    grammar = _Grammar(rng, slots)
    clauses = []
    for i in range(rng.randint(0, num_clauses)):
        guard = grammar.boolean(1) if rng.random() < 0.25 else None
        expr = grammar.boolean(rng.randint(1, 2))
        clauses.append(
            Clause(id=f"k{i}", family="random", expr=expr, guard=guard, text_key="random")
        )
    for slot in slots:  # a clause that repeats a domain, as the prompt's "located in" does
        if isinstance(slot.domain, Query) and rng.random() < 0.5:
            where = slot.domain.where
            if isinstance(where, Cmp) and isinstance(where.right, SlotRef):
                entity = SlotRef(slot=slot.name)
                left = Get(relation="spots", entity=entity, column="city")
                expr = Cmp(fn="=", left=left, right=where.right)
                key = f"in_{slot.name}"
                clauses.append(Clause(id=key, family="located", expr=expr, text_key="located"))
    budget = _budget(rng, slots)
    if budget is not None and rng.random() < 0.7:
        clauses.append(budget)
    goal: Any = Satisfy()
    draw = rng.random()
    if draw < 0.12:
        goal = Optimise(
            sense=rng.choice(("min", "max")),
            expr=grammar.integer(1),
            bound=Param(name="optimum"),
            eps=rng.randint(0, 2),
            text_key="best",
        )
    elif draw < 0.3:
        slot = rng.choice(slots)
        if slot.kind in ("entity", "set") and isinstance(slot.domain, Query):
            query = grammar.query(slot.domain.relation, "q")
            if slot.kind == "entity":
                query = query.model_copy(update={"limit": 1})
            goal = Equals(slot=slot.name, query=query, text_key="asked")
    problem = Problem(
        id=f"random-{seed}",
        shape="A",
        relations=(CITIES, SPOTS),
        access=(),
        slots=tuple(slots),
        clauses=tuple(clauses),
        goal=goal,
        layout={"answer": [{s.name: {"$slot": s.name}} for s in slots], "version": 1},
        params={"p": rng.randint(0, 6), "q": rng.randint(0, 3), "optimum": rng.randint(0, 4)},
        lexicon="none",
    )
    return problem, tables

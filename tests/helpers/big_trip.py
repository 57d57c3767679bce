"""The paper's trip task at full size: 15 entity slots over three days, 12 cities."""

from __future__ import annotations

from random import Random
from typing import Any

from sample_problems import Sample, both, cmp, eq, get, plus, rows, slots_ref

from envgen.core.ir import (
    AllDifferent,
    Clause,
    Column,
    Expr,
    If,
    Or,
    Param,
    Problem,
    Query,
    Relation,
    Slot,
    SlotRef,
    Var,
)

PARTS = {
    "hotel": "hotels",
    "afternoon_restaurant": "restaurants",
    "afternoon_attraction": "attractions",
    "evening_restaurant": "restaurants",
}


def big_trip(
    seed: int, budget: int | None = 2400, *, uneven: bool = False, cities: int = 12
) -> Sample:
    """Three days, no repeats, located in, day-2 tiers, rating floors, an optional budget."""
    rng = Random(seed)
    names = [f"City {i}" for i in range(cities)]
    tables: dict[str, Any] = {"cities": rows("name", [{"name": n} for n in names])}
    for relation, size, price in (
        ("hotels", 10, (200, 1200)),
        ("restaurants", 15, (30, 260)),
        ("attractions", 10, (0, 240)),
    ):
        tables[relation] = rows(
            "name",
            [
                {
                    "name": f"{relation} {c} {i}",
                    "city": city,
                    "price": rng.randrange(*price),
                    "rating": rng.randrange(28, 50),
                }
                for c, city in enumerate(names)
                for i in range(size + (rng.randrange(-2, 3) if uneven else 0))
            ],
        )
    entity = [Column(name="name", type="str"), Column(name="city", type="entity:cities")]
    numbers = [Column(name="price", type="int"), Column(name="rating", type="decimal:1")]
    relations = [Relation(name="cities", key="name", columns=tuple(entity[:1]))]
    relations += [
        Relation(name=n, key="name", columns=tuple(entity + numbers))
        for n in ("hotels", "restaurants", "attractions")
    ]
    slots = []
    for day in (1, 2, 3):
        slots.append(Slot(name=f"city_{day}", kind="entity", domain=_all("cities")))
        for part, relation in PARTS.items():
            where = eq(get(relation, Var(name="r"), "city"), SlotRef(slot=f"city_{day}"))
            domain = Query(var="r", relation=relation, where=where)
            slots.append(Slot(name=f"{part}_{day}", kind="entity", domain=domain))
    problem = Problem(
        id="big-trip",
        shape="A",
        relations=tuple(relations),
        access=(),
        slots=tuple(slots),
        clauses=tuple(_clauses(budget)),
        layout=[
            {"time": f"2025-10-0{d}", **{k: {"$slot": f"{k}_{d}"} for k in ("city", *PARTS)}}
            for d in (1, 2, 3)
        ],
        params={
            "luxury": 800,
            "mid": 500,
            "meals": 350,
            "good": 40,
            "fair": 32,
            "ticket_1": 120,
            "ticket_2": 180,
            "floor": 35,
            **({} if budget is None else {"budget": budget}),
        },
        lexicon="none",
    )
    return Sample(problem, tables)


def _all(relation: str) -> Query:
    return Query(var="r", relation=relation)


def _clauses(budget: int | None) -> list[Clause]:
    days = (1, 2, 3)
    meals = [f"{m}_restaurant" for m in ("afternoon", "evening")]
    no_repeat = both(
        AllDifferent(items=slots_ref(*(f"city_{d}" for d in days))),
        AllDifferent(items=slots_ref(*(f"hotel_{d}" for d in days))),
        AllDifferent(items=slots_ref(*(f"afternoon_attraction_{d}" for d in days))),
        AllDifferent(items=slots_ref(*(f"{m}_{d}" for d in days for m in meals))),
    )
    located = both(
        *(
            eq(get(relation, f"{part}_{d}", "city"), SlotRef(slot=f"city_{d}"))
            for d in days
            for part, relation in PARTS.items()
        )
    )
    clauses = {"no_repeat": no_repeat, "located": located, "tier": _tier(meals)}
    ratings = [get("restaurants", f"{m}_{d}", "rating") for d in days for m in meals]
    clauses["floor"] = both(*(cmp(r, ">=", Param(name="floor")) for r in ratings))
    if budget is not None:
        costs = [
            get(relation, f"{part}_{d}", "price") for d in days for part, relation in PARTS.items()
        ]
        clauses["budget"] = cmp(plus(*costs), "<=", Param(name="budget"))
    return [Clause(id=k, family=k, expr=e, text_key=k) for k, e in clauses.items()]


def _tier(meals: list[str]) -> Expr:
    price = get("hotels", "hotel_2", "price")
    ticket = get("attractions", "afternoon_attraction_2", "price")
    ratings = [get("restaurants", f"{m}_2", "rating") for m in meals]
    spent = plus(*(get("restaurants", f"{m}_2", "price") for m in meals))
    good = [cmp(r, ">=", Param(name="good")) for r in ratings]
    fair = [cmp(r, ">=", Param(name="fair")) for r in ratings]
    luxury = both(
        cmp(spent, "<", Param(name="meals")), *good, cmp(ticket, "<", Param(name="ticket_1"))
    )
    mid = both(Or(items=tuple(good)), cmp(ticket, "<", Param(name="ticket_2")))
    return If(
        test=cmp(price, ">=", Param(name="luxury")),
        then=luxury,
        other=If(test=cmp(price, ">=", Param(name="mid")), then=mid, other=Or(items=tuple(fair))),
    )

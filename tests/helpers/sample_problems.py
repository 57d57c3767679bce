"""Small hand-written problems with their rows, one or more for each shape.

``SAMPLES[name]`` is a ``Sample(problem, tables, accepted, rejected)``: complete, feasible, and small
enough to count by hand. For shape C ``accepted`` / ``rejected`` hold ``Plan``s, else answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core.ir import (
    Access,
    All,
    AllDifferent,
    And,
    Arg,
    Arith,
    Before,
    Choice,
    Clause,
    Cmp,
    Column,
    Const,
    Days,
    End,
    Equals,
    Expr,
    Get,
    If,
    Intervals,
    IntRange,
    New,
    NoOverlap,
    Not,
    Old,
    Or,
    Order,
    Param,
    Precondition,
    Problem,
    Query,
    Reach,
    Relation,
    Slot,
    SlotRef,
    Start,
    Sum,
    Var,
    Write,
    WriteSet,
)
from envgen.pipelines.general.semantics.calls import Plan

Tables = dict[str, dict[str, dict[str, Any]]]


class Sample(NamedTuple):
    """A problem, its rows, and a few verdicts a person can check."""

    problem: Problem
    tables: Tables
    accepted: tuple[Any, ...] = ()
    rejected: tuple[Any, ...] = ()


def rows(key: str, items: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One relation of ``Tables``."""
    return {item[key]: item for item in items}


def eq(left: Expr, right: Expr) -> Cmp:
    return Cmp(fn="=", left=left, right=right)


def cmp(left: Expr, fn: Any, right: Expr) -> Cmp:
    return Cmp(fn=fn, left=left, right=right)


def both(*items: Expr) -> And:
    return And(items=items)


def get(relation: str, entity: Expr | str, column: str) -> Get:
    """Column of a slot's (str) or an expression's row."""
    ref = SlotRef(slot=entity) if isinstance(entity, str) else entity
    return Get(relation=relation, entity=ref, column=column)


def plus(*items: Expr) -> Expr:
    total = items[0]
    for item in items[1:]:
        total = Arith(fn="+", left=total, right=item)
    return total


def slots_ref(*names: str) -> tuple[SlotRef, ...]:
    return tuple(SlotRef(slot=name) for name in names)


# --- towns: cities, hotels, restaurants (A and B) ---------------------------------------------

CITIES = Relation(name="cities", key="name", columns=(Column(name="name", type="str"),))
HOTELS = Relation(
    name="hotels",
    key="name",
    columns=(
        Column(name="name", type="str"),
        Column(name="city", type="entity:cities"),
        Column(name="price", type="int", unit="CNY"),
        Column(name="stars", type="int"),
    ),
)
RESTAURANTS = Relation(
    name="restaurants",
    key="name",
    columns=(
        Column(name="name", type="str"),
        Column(name="city", type="entity:cities"),
        Column(name="price", type="int", unit="CNY"),
        Column(name="rating", type="decimal:1"),
    ),
)
TOWN_RELATIONS = (CITIES, HOTELS, RESTAURANTS)
TOWN_ACCESS = (
    Access(
        tool="list_cities",
        relation="cities",
        mode="list",
        description="All cities.",
        returned_columns=("name",),
    ),
    Access(
        tool="list_hotels_by_city",
        relation="hotels",
        mode="list",
        description="The hotels of a city.",
        args={"city": "city"},
        returned_columns=("name",),
    ),
    Access(
        tool="get_hotel_info",
        relation="hotels",
        mode="info",
        description="Facts about a hotel.",
        args={"name": "name"},
        projection="info_keywords",
        returned_columns=("city", "price", "stars"),
    ),
    Access(
        tool="list_restaurants_by_city",
        relation="restaurants",
        mode="range",
        description="The restaurants of a city in a price range.",
        args={"city": "city", "min_price": "price", "max_price": "price"},
        returned_columns=("name", "price"),
    ),
    Access(
        tool="get_restaurant_info",
        relation="restaurants",
        mode="info",
        description="Facts about a restaurant.",
        args={"name": "name"},
        projection="info_keywords",
        returned_columns=("city", "price", "rating"),
    ),
    Access(
        tool="get_city_by_hotel",
        relation="hotels",
        mode="inverse",
        description="The city a hotel is in.",
        args={"name": "name"},
        returned_columns=("city",),
    ),
)


def town_tables() -> Tables:
    hotels = [
        ("Amber Inn", "Arden", 900, 5),
        ("Birch Lodge", "Arden", 520, 4),
        ("Cedar Rest", "Arden", 310, 2),
        ("Dune House", "Brook", 800, 4),
        ("Elm Court", "Brook", 499, 3),
        ("Fern Hall", "Brook", 250, 3),
        ("Grove Stay", "Calder", 640, 4),
        ("Hazel Point", "Calder", 200, 1),
    ]
    restaurants = [
        ("Alba", "Arden", 120, 45),
        ("Basil", "Arden", 60, 31),
        ("Clove", "Arden", 90, 40),
        ("Dill", "Brook", 150, 48),
        ("Endive", "Brook", 70, 36),
        ("Fennel", "Brook", 40, 29),
        ("Ginger", "Calder", 110, 42),
        ("Honey", "Calder", 55, 33),
    ]
    return {
        "cities": rows("name", [{"name": c} for c in ("Arden", "Brook", "Calder")]),
        "hotels": rows(
            "name", [{"name": n, "city": c, "price": p, "stars": s} for n, c, p, s in hotels]
        ),
        "restaurants": rows(
            "name", [{"name": n, "city": c, "price": p, "rating": r} for n, c, p, r in restaurants]
        ),
    }


def _in_city(relation: str, city: str) -> Query:
    where = eq(get(relation, Var(name="r"), "city"), SlotRef(slot=city))
    return Query(var="r", relation=relation, where=where)


def a_trip() -> Sample:
    """Two days: no repeats, located in, a conditional tier on day 2, a budget over both days."""
    slots: list[Slot] = []
    for day in ("1", "2"):
        city = f"city_{day}"
        slots += [
            Slot(name=city, kind="entity", domain=Query(var="r", relation="cities")),
            Slot(name=f"hotel_{day}", kind="entity", domain=_in_city("hotels", city)),
            Slot(name=f"lunch_{day}", kind="entity", domain=_in_city("restaurants", city)),
            Slot(name=f"dinner_{day}", kind="entity", domain=_in_city("restaurants", city)),
        ]
    kinds = {"hotel": "hotels", "lunch": "restaurants", "dinner": "restaurants"}
    located = both(
        *(
            eq(get(relation, f"{kind}_{day}", "city"), SlotRef(slot=f"city_{day}"))
            for day in ("1", "2")
            for kind, relation in kinds.items()
        )
    )
    no_repeat = both(
        AllDifferent(items=slots_ref("city_1", "city_2")),
        AllDifferent(items=slots_ref("hotel_1", "hotel_2")),
        AllDifferent(items=slots_ref("lunch_1", "dinner_1", "lunch_2", "dinner_2")),
    )
    price = get("hotels", "hotel_2", "price")
    meals = plus(get("restaurants", "lunch_2", "price"), get("restaurants", "dinner_2", "price"))
    ratings = [get("restaurants", f"{meal}_2", "rating") for meal in ("lunch", "dinner")]
    tier = If(
        test=cmp(price, ">=", Param(name="luxury_price")),
        then=both(
            cmp(meals, "<", Param(name="luxury_meals")),
            *(cmp(rating, ">=", Param(name="luxury_rating")) for rating in ratings),
        ),
        other=If(
            test=cmp(price, ">=", Param(name="mid_price")),
            then=Or(items=tuple(cmp(r, ">=", Param(name="luxury_rating")) for r in ratings)),
            other=Or(items=tuple(cmp(r, ">=", Param(name="low_rating")) for r in ratings)),
        ),
    )
    spent = plus(
        *(get(relation, f"{k}_{d}", "price") for d in ("1", "2") for k, relation in kinds.items())
    )
    day_layout = [
        {"day": int(d), **{k: {"$slot": f"{k}_{d}"} for k in ("city", *kinds)}} for d in ("1", "2")
    ]
    problem = Problem(
        id="sample-a-trip",
        shape="A",
        relations=TOWN_RELATIONS,
        access=TOWN_ACCESS,
        slots=tuple(slots),
        clauses=(
            Clause(id="no_repeat", family="all_different", expr=no_repeat, text_key="no_repeat"),
            Clause(id="located", family="located_in", expr=located, text_key="located"),
            Clause(id="tier", family="tier", expr=tier, text_key="tier", fields={"day": 2}),
            Clause(
                id="budget",
                family="budget",
                expr=cmp(spent, "<=", Param(name="budget")),
                text_key="budget",
            ),
        ),
        layout=day_layout,
        params={
            "luxury_price": 800,
            "luxury_meals": 240,
            "luxury_rating": 40,
            "mid_price": 500,
            "low_rating": 32,
            "budget": 1700,
        },
        lexicon="sample",
        fields={"days": 2},
    )
    days = [
        {"day": 1, "city": "Calder", "hotel": "Hazel Point", "lunch": "Ginger", "dinner": "Honey"},
        {"day": 2, "city": "Arden", "hotel": "Birch Lodge", "lunch": "Alba", "dinner": "Basil"},
    ]
    repeated = [days[0], {**days[1], "dinner": "Alba"}]
    return Sample(problem, town_tables(), (days,), (repeated, days[:1], None))


def a_stay() -> Sample:
    """One hotel, a number of nights, a guarded clause, a set of restaurants nearby."""
    hotel = SlotRef(slot="hotel")
    nights = SlotRef(slot="nights")
    cost = Arith(fn="*", left=get("hotels", "hotel", "price"), right=nights)
    member = get("restaurants", Var(name="r"), "city")
    problem = Problem(
        id="sample-a-stay",
        shape="A",
        relations=TOWN_RELATIONS,
        access=TOWN_ACCESS,
        slots=(
            Slot(name="hotel", kind="entity", domain=Query(var="r", relation="hotels")),
            Slot(name="nights", kind="value", domain=IntRange(low=1, high=7)),
            Slot(
                name="tables",
                kind="set",
                domain=Query(var="r", relation="restaurants"),
                length=2,
            ),
        ),
        clauses=(
            Clause(
                id="cost",
                family="budget",
                expr=cmp(cost, "<=", Param(name="cost")),
                text_key="stay_cost",
            ),
            Clause(
                id="short_if_good",
                family="conditional",
                guard=cmp(get("hotels", "hotel", "stars"), ">=", Param(name="stars")),
                expr=cmp(nights, "<=", Param(name="nights")),
                text_key="short_if_good",
            ),
            Clause(
                id="not_cheap",
                family="compare",
                expr=Not(item=cmp(get("hotels", "hotel", "price"), "<", Param(name="cheap"))),
                text_key="not_cheap",
            ),
            Clause(
                id="near",
                family="all",
                expr=All(
                    var="r",
                    over=SlotRef(slot="tables"),
                    body=eq(member, Get(relation="hotels", entity=hotel, column="city")),
                ),
                text_key="near",
            ),
            Clause(
                id="meals",
                family="sum",
                expr=cmp(
                    Sum(
                        var="r",
                        over=SlotRef(slot="tables"),
                        body=get("restaurants", Var(name="r"), "price"),
                    ),
                    ">=",
                    Param(name="meals"),
                ),
                text_key="meals",
            ),
        ),
        layout={
            "hotel": {"$slot": "hotel"},
            "nights": {"$slot": "nights"},
            "restaurants": {"$slot": "tables"},
        },
        params={"cost": 2000, "stars": 4, "nights": 2, "cheap": 250, "meals": 150},
        lexicon="sample",
    )
    good = {"hotel": "Birch Lodge", "nights": 2, "restaurants": ["Alba", "Basil"]}
    return Sample(
        problem,
        town_tables(),
        (good,),
        ({**good, "nights": True}, {**good, "nights": 3}, {**good, "restaurants": ["Alba"] * 2}),
    )


def _asked(slot: Slot, goal: Equals, name: str, params: dict[str, Any]) -> Problem:
    return Problem(
        id=f"sample-{name}",
        shape="B",
        relations=TOWN_RELATIONS,
        access=TOWN_ACCESS,
        slots=(slot,),
        goal=goal,
        layout={"answer": {"$slot": slot.name}},
        params=params,
        lexicon="sample",
    )


def b_cheapest() -> Sample:
    """The cheapest hotel of a city with a star bound: an entity, ties by key."""
    hotel = Var(name="h")
    query = Query(
        var="h",
        relation="hotels",
        where=both(
            eq(get("hotels", hotel, "city"), Param(name="city")),
            cmp(get("hotels", hotel, "stars"), ">=", Param(name="stars")),
        ),
        order=(Order(by=get("hotels", hotel, "price")),),
        limit=1,
    )
    slot = Slot(name="hotel", kind="entity", domain=Query(var="r", relation="hotels"))
    goal = Equals(slot="hotel", query=query, text_key="cheapest_hotel")
    problem = _asked(slot, goal, "b-cheapest", {"city": "Brook", "stars": 3})
    good = {"answer": "Fern Hall"}
    return Sample(problem, town_tables(), (good,), ({"answer": "Elm Court"}, {"answer": 1}, {}))


def b_count() -> Sample:
    """How many restaurants are in a city that has a hotel with enough stars: two hops, a number."""
    inn, place = Var(name="h"), Var(name="p")
    cities = Query(
        var="h",
        relation="hotels",
        where=cmp(get("hotels", inn, "stars"), ">=", Param(name="stars")),
        select=get("hotels", inn, "city"),
    )
    query = Query(
        var="p",
        relation="restaurants",
        where=both(
            cmp(get("restaurants", place, "city"), "in", cities),
            cmp(get("restaurants", place, "rating"), ">=", Param(name="rating")),
        ),
        agg="count",
    )
    slot = Slot(name="count", kind="value", domain=IntRange(low=0, high=20))
    goal = Equals(slot="count", query=query, text_key="count_restaurants")
    problem = _asked(slot, goal, "b-count", {"stars": 5, "rating": 40})
    return Sample(problem, town_tables(), ({"answer": 2},), ({"answer": 3}, {"answer": "2"}))


def b_set() -> Sample:
    """Every hotel below a price: a set, in any order."""
    where = cmp(get("hotels", Var(name="h"), "price"), "<", Param(name="price"))
    query = Query(var="h", relation="hotels", where=where)
    slot = Slot(name="hotels", kind="set", domain=Query(var="r", relation="hotels"), length=8)
    goal = Equals(slot="hotels", query=query, text_key="hotels_below")
    problem = _asked(slot, goal, "b-set", {"price": 310})
    good = {"answer": ["Hazel Point", "Fern Hall"]}
    return Sample(problem, town_tables(), (good,), ({"answer": ["Fern Hall"]}, {"answer": []}))


# --- shop: orders under a refund policy (C) ----------------------------------------------------

SHOP_RELATIONS = (
    Relation(
        name="store",
        key="id",
        columns=(Column(name="id", type="str"), Column(name="today", type="date")),
    ),
    Relation(
        name="customers",
        key="id",
        columns=(
            Column(name="id", type="str"),
            Column(name="tier", type="str"),
            Column(name="credit", type="int", unit="cents"),
        ),
    ),
    Relation(
        name="orders",
        key="id",
        columns=(
            Column(name="id", type="str"),
            Column(name="customer", type="entity:customers"),
            Column(name="delivered", type="date", nullable=True),
        ),
    ),
    Relation(
        name="items",
        key="id",
        columns=(
            Column(name="id", type="str"),
            Column(name="order", type="entity:orders"),
            Column(name="price", type="int", unit="cents"),
            Column(name="final_sale", type="bool"),
            Column(name="status", type="str"),
        ),
    ),
    Relation(
        name="refunds",
        key="item",
        columns=(
            Column(name="item", type="entity:items"),
            Column(name="amount", type="int", unit="cents"),
            Column(name="method", type="str"),
        ),
    ),
)


DONE: JsonValue = {"outcome": "done"}
ESCALATED: JsonValue = {"outcome": "escalated"}


def _item(column: str, item: Expr | None = None) -> Get:
    return Get(relation="items", entity=item or Var(name="i"), column=column)


def _order(column: str, item: Expr | None = None) -> Get:
    return Get(relation="orders", entity=_item("order", item), column=column)


_ARG_ITEM = Arg(name="item_id")
_CUSTOMER = _order("customer", _ARG_ITEM)
_CREDIT = Get(relation="customers", entity=_CUSTOMER, column="credit")
_DELIVERED_ITEM = Precondition(
    expr=eq(_item("status", _ARG_ITEM), Const(value="delivered")),
    code="wrong_status",
    text="Only a delivered item can be refunded.",
)
SHOP_ACCESS = (
    Access(
        tool="get_today",
        relation="store",
        mode="list",
        description="Today's date.",
        returned_columns=("today",),
    ),
    Access(
        tool="get_order",
        relation="orders",
        mode="info",
        description="Facts about an order.",
        args={"order_id": "id"},
        projection="fields",
        returned_columns=("customer", "delivered"),
    ),
    Access(
        tool="list_items",
        relation="items",
        mode="list",
        description="The items of an order.",
        args={"order_id": "order"},
        returned_columns=("id", "price", "final_sale", "status"),
    ),
    Access(
        tool="get_customer",
        relation="customers",
        mode="inverse",
        description="Facts about a customer.",
        args={"customer_id": "id"},
        returned_columns=("tier", "credit"),
    ),
    Access(
        tool="refund_item",
        relation="items",
        mode="write",
        description="Refund one item to a payment method.",
        args={"item_id": "items.id", "method": "str"},
        pre=(
            _DELIVERED_ITEM,
            Precondition(
                expr=cmp(Arg(name="method"), "in", Const(value=("card", "credit"))),
                code="bad_method",
                text="The method is card or credit.",
            ),
        ),
        effects=(
            Write(
                kind="update",
                relation="items",
                key=_ARG_ITEM,
                set={"status": Const(value="refunded")},
            ),
            Write(
                kind="insert",
                relation="refunds",
                key=_ARG_ITEM,
                set={"amount": _item("price", _ARG_ITEM), "method": Arg(name="method")},
            ),
        ),
    ),
    Access(
        tool="add_credit",
        relation="customers",
        mode="write",
        description="Add store credit to the account of an item's customer.",
        args={"item_id": "items.id"},
        effects=(
            Write(
                kind="update",
                relation="customers",
                key=_CUSTOMER,
                set={"credit": Arith(fn="+", left=_CREDIT, right=Const(value=500))},
            ),
        ),
    ),
)


def shop_tables() -> Tables:
    items = [
        ("i1", "o1", 4000, False, "delivered"),
        ("i2", "o1", 2500, True, "delivered"),
        ("i3", "o1", 1500, False, "delivered"),
        ("i4", "o2", 9000, False, "delivered"),
        ("i5", "o3", 3000, False, "shipped"),
    ]
    orders = [("o1", "c1", "2025-09-20"), ("o2", "c2", "2025-07-01"), ("o3", "c1", None)]
    customers = [("c1", "basic", 0), ("c2", "gold", 1200)]
    return {
        "store": rows("id", [{"id": "store", "today": "2025-10-10"}]),
        "customers": rows("id", [{"id": i, "tier": t, "credit": c} for i, t, c in customers]),
        "orders": rows("id", [{"id": i, "customer": c, "delivered": d} for i, c, d in orders]),
        "items": rows(
            "id",
            [
                {"id": i, "order": o, "price": p, "final_sale": f, "status": s}
                for i, o, p, f, s in items
            ],
        ),
        "refunds": {},
    }


def _age(item: Expr | None = None) -> Days:
    today = Get(relation="store", entity=Const(value="store"), column="today")
    return Days(left=_order("delivered", item), right=today)


def _refund_problem(name: str, order: str) -> Problem:
    asked = eq(_item("order"), Param(name="order"))
    eligible = both(
        asked,
        eq(_item("status"), Const(value="delivered")),
        eq(_item("final_sale"), Const(value=False)),
        cmp(_age(), "<=", Param(name="window")),
    )
    fresh = both(
        cmp(Old(item=_item("status")), "!=", Const(value="refunded")),
        eq(New(item=_item("status")), Const(value="refunded")),
    )
    method = New(item=Get(relation="refunds", entity=Var(name="i"), column="method"))
    every_item = Query(var="i", relation="items")
    reach = Reach(
        effects=(
            Clause(
                id="refund_all",
                family="reach_all",
                expr=All(
                    var="i",
                    over=Query(var="i", relation="items", where=eligible),
                    body=both(
                        eq(New(item=_item("status")), Const(value="refunded")),
                        eq(method, Const(value="card")),
                    ),
                ),
                text_key="refund_all",
            ),
        ),
        write_set=(
            WriteSet(
                relation="items",
                rows=Query(var="i", relation="items", where=asked),
                columns=("status",),
            ),
            WriteSet(
                relation="refunds",
                rows=Query(var="f", relation="refunds", where=Const(value=False)),
                columns=(),
                inserts=True,
            ),
        ),
        escalate_when=cmp(
            Sum(
                var="i",
                over=Query(var="i", relation="items", where=asked),
                body=_item("price"),
            ),
            ">",
            Param(name="limit"),
        ),
        escalate_text_key="escalate_large",
        max_calls=4,
    )
    return Problem(
        id=f"sample-{name}",
        shape="C",
        relations=SHOP_RELATIONS,
        access=SHOP_ACCESS,
        slots=(Slot(name="outcome", kind="value", domain=Choice(values=("done", "escalated"))),),
        clauses=(
            Clause(
                id="window",
                family="policy_window",
                expr=All(
                    var="i",
                    over=every_item,
                    body=Or(items=(Not(item=fresh), cmp(_age(), "<=", Param(name="window")))),
                ),
                source="policy",
                text_key="refund_window",
            ),
            Clause(
                id="final_sale",
                family="policy_flag",
                expr=All(
                    var="i",
                    over=every_item,
                    body=Or(items=(Not(item=fresh), Not(item=_item("final_sale")))),
                ),
                source="policy",
                text_key="no_final_sale",
            ),
        ),
        goal=reach,
        layout={"outcome": {"$slot": "outcome"}},
        params={"order": order, "window": 30, "limit": 8500},
        lexicon="sample",
    )


def c_refund() -> Sample:
    """Refund the two eligible items of order o1 to the card; the final-sale item must stay."""
    first = ("refund_item", {"item_id": "i1", "method": "card"})
    second = ("refund_item", {"item_id": "i3", "method": "card"})
    third = ("refund_item", {"item_id": "i2", "method": "card"})
    bonus = ("add_credit", {"item_id": "i1"})
    return Sample(
        _refund_problem("c-refund", "o1"),
        shop_tables(),
        (Plan((first, second), DONE), Plan((second, first), DONE)),
        (
            Plan((), DONE),
            Plan((first,), DONE),
            Plan((first, second, third), DONE),
            Plan((first, second, bonus), DONE),
            Plan((first, second), ESCALATED),
        ),
    )


def c_escalate() -> Sample:
    """Order o2 is worth too much: escalate and change nothing."""
    call = ("refund_item", {"item_id": "i4", "method": "card"})
    return Sample(
        _refund_problem("c-escalate", "o2"),
        shop_tables(),
        (Plan((), ESCALATED),),
        (Plan((call,), ESCALATED), Plan((), DONE)),
    )


# --- office: meetings in rooms (E) --------------------------------------------------------------

OFFICE_RELATIONS = (
    Relation(
        name="rooms",
        key="name",
        columns=(
            Column(name="name", type="str"),
            Column(name="capacity", type="int"),
            Column(name="screen", type="bool"),
        ),
    ),
    Relation(name="people", key="name", columns=(Column(name="name", type="str"),)),
    Relation(
        name="busy",
        key="id",
        columns=(
            Column(name="id", type="str"),
            Column(name="person", type="entity:people"),
            Column(name="start", type="minutes"),
            Column(name="end", type="minutes"),
        ),
    ),
)
OFFICE_ACCESS = (
    Access(
        tool="list_rooms",
        relation="rooms",
        mode="list",
        description="All rooms.",
        returned_columns=("name", "capacity", "screen"),
    ),
    Access(
        tool="list_people",
        relation="people",
        mode="page",
        description="The people of the office.",
        returned_columns=("name",),
        page_size=2,
    ),
    Access(
        tool="list_busy",
        relation="busy",
        mode="list",
        description="When a person is busy.",
        args={"person": "person"},
        returned_columns=("start", "end"),
    ),
)


def office_tables() -> Tables:
    busy = [
        ("b1", "Ana", 540, 600),
        ("b2", "Ana", 720, 780),
        ("b3", "Bo", 660, 720),
        ("b4", "Cy", 600, 660),
    ]
    rooms = [("Attic", 4, False), ("Hall", 12, True)]
    return {
        "rooms": rows("name", [{"name": n, "capacity": c, "screen": s} for n, c, s in rooms]),
        "people": rows("name", [{"name": n} for n in ("Ana", "Bo", "Cy")]),
        "busy": rows("id", [{"id": i, "person": p, "start": s, "end": e} for i, p, s, e in busy]),
    }


def _free(meeting: str, people: tuple[str, ...]) -> All:
    """No busy row of ``people`` overlaps ``meeting``."""
    row = Var(name="b")
    when = SlotRef(slot=f"{meeting}_time")
    return All(
        var="b",
        over=Query(
            var="b",
            relation="busy",
            where=cmp(get("busy", row, "person"), "in", Const(value=people)),
        ),
        body=Or(
            items=(
                cmp(End(interval=when), "<=", get("busy", row, "start")),
                cmp(Start(interval=when), ">=", get("busy", row, "end")),
            )
        ),
    )


def e_meetings() -> Sample:
    """Three meetings in two rooms: free attendees, room size, no clash, an order with a lag."""
    meetings = {"standup": 30, "review": 60, "planning": 60}
    people = {"standup": ("Ana", "Bo", "Cy"), "review": ("Ana", "Bo"), "planning": ("Cy",)}
    slots: list[Slot] = []
    for meeting, length in meetings.items():
        grid = Intervals(low=540, high=960, step=30, length=length)
        rooms = Query(var="r", relation="rooms")
        slots += [
            Slot(name=f"{meeting}_room", kind="entity", domain=rooms),
            Slot(name=f"{meeting}_time", kind="interval", domain=grid),
        ]
    times = slots_ref(*(f"{m}_time" for m in meetings))
    size = cmp(get("rooms", "review_room", "capacity"), ">=", Param(name="size"))
    problem = Problem(
        id="sample-e-meetings",
        shape="E",
        relations=OFFICE_RELATIONS,
        access=OFFICE_ACCESS,
        slots=tuple(slots),
        clauses=(
            *(
                Clause(
                    id=f"free_{m}",
                    family="free",
                    expr=_free(m, people[m]),
                    text_key="free",
                    fields={"meeting": m, "people": list(people[m])},
                )
                for m in meetings
            ),
            Clause(
                id="rooms_once",
                family="no_overlap",
                expr=NoOverlap(
                    intervals=times, resources=slots_ref(*(f"{m}_room" for m in meetings))
                ),
                text_key="rooms_once",
            ),
            Clause(
                id="people_once",
                family="no_overlap",
                expr=NoOverlap(intervals=slots_ref("standup_time", "review_time")),
                text_key="people_once",
                fields={"meetings": ["standup", "review"]},
            ),
            Clause(
                id="order",
                family="before",
                expr=Before(left=times[0], right=times[1], lag=Param(name="lag")),
                text_key="before",
                fields={"first": "standup", "second": "review"},
            ),
            Clause(
                id="size",
                family="compare",
                expr=both(size, get("rooms", "review_room", "screen")),
                text_key="room_size",
                fields={"meeting": "review"},
            ),
        ),
        layout={
            m: {"room": {"$slot": f"{m}_room"}, "time": {"$slot": f"{m}_time"}} for m in meetings
        },
        params={"lag": 30, "size": 6},
        lexicon="sample",
    )

    def plan(standup: int, review: int, planning: int, room: str = "Hall") -> dict[str, Any]:
        return {
            "standup": {"room": "Attic", "time": {"start": standup, "end": standup + 30}},
            "review": {"room": room, "time": {"start": review, "end": review + 60}},
            "planning": {"room": "Attic", "time": {"start": planning, "end": planning + 60}},
        }

    return Sample(
        problem,
        office_tables(),
        (plan(780, 840, 660), plan(810, 900, 720)),
        (plan(600, 840, 660), plan(780, 810, 660), plan(780, 840, 660, "Attic")),
    )


SAMPLES: dict[str, Sample] = {
    build.__name__: build()
    for build in (a_trip, a_stay, b_cheapest, b_count, b_set, c_refund, c_escalate, e_meetings)
}
"""Every sample by its function's name. Copy ``tables`` before you change them."""

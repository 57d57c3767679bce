"""What the sentences of the trip domain mean: goals and clauses of the constraint IR, built from fields.

Two kinds of task: "find" asks for one row or one number (levels 1 to 5), "plan" for an itinerary of one
to three days (levels 6 to 10).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Literal

from pydantic import JsonValue

from envgen.core.ir import (
    AllDifferent,
    And,
    Arith,
    Clause,
    Cmp,
    Const,
    Equals,
    Expr,
    Get,
    IntRange,
    Or,
    Order,
    Param,
    Query,
    Slot,
    SlotRef,
    Var,
)
from envgen.pipelines.general.domains.trip_rows import KIND_OF, PRICE_OF
from envgen.pipelines.general.lexicon import Frame
from envgen.pipelines.general.wording import Fields

PARTS: Mapping[str, str] = {
    "hotel": "hotels",
    "afternoon_restaurant": "restaurants",
    "afternoon_attraction": "attractions",
    "evening_restaurant": "restaurants",
}
"""What a day of an itinerary holds besides its city -> the relation."""
RAIN = "rain"

_ROW = Var(name="x")


# --- small builders -------------------------------------------------------------------------


def compare(left: Expr, fn: str, right: Expr) -> Cmp:
    """A comparison."""
    return Cmp.model_validate({"fn": fn, "left": left, "right": right})


def row_column(relation: str, column: str) -> Get:
    """Column of the row a query stands on."""
    return Get(relation=relation, entity=_ROW, column=column)


def part(day: int, name: str, column: str) -> Get:
    """Column of a part of a day, e.g. the price of day 2's hotel."""
    return Get(relation=PARTS[name], entity=SlotRef(slot=f"{name}_{day}"), column=column)


def both(*items: Expr) -> Expr:
    """All of ``items``; a single one stays itself."""
    return items[0] if len(items) == 1 else And(items=items)


def total(*items: Expr) -> Expr:
    """The sum of ``items``."""
    left = items[0]
    for item in items[1:]:
        left = Arith(fn="+", left=left, right=item)
    return left


def iso_day(start: str, offset: int) -> str:
    """The date ``offset`` days after ``start``."""
    return (date.fromisoformat(start) + timedelta(days=offset)).isoformat()


def _eq(left: Expr, right: Expr) -> Cmp:
    return compare(left, "=", right)


def _text(fields: Fields, name: str) -> str:
    return str(fields[name])


def _int(fields: Fields, name: str) -> int:
    value = fields[name]
    assert isinstance(value, int), f"{name} is a number"
    return value


# --- frames: what is asked for -----------------------------------------------------------------


def frame(fields: Fields) -> Frame:
    """Slots and layout for the fields of a problem."""
    opening, _, _ = _text(fields, "opening").partition("-")
    if opening == "plan":
        return _itinerary(_int(fields, "days"), _text(fields, "start"))
    if opening == "day":
        return _itinerary(1, _text(fields, "start"))
    if opening == "number":
        whole = IntRange(low=0, high=_int(fields, "most"))
        slot = Slot(name="number", kind="value", domain=whole)
        return Frame(slots=(slot,), layout={"number": {"$slot": "number"}})
    relation = _text(fields, "of")
    domain = Query(var="x", relation=relation)
    if opening == "find":
        here = _eq(row_column(relation, "city"), Param(name="city"))
        domain = Query(var="x", relation=relation, where=here)
    kind = KIND_OF[relation]
    slot = Slot(name=kind, kind="entity", domain=domain)
    return Frame(slots=(slot,), layout={kind: {"$slot": kind}})


def _itinerary(days: int, start: str) -> Frame:
    slots: list[Slot] = []
    layout: list[JsonValue] = []
    for day in range(1, days + 1):
        city = f"city_{day}"
        slots.append(Slot(name=city, kind="entity", domain=Query(var="x", relation="cities")))
        for name, relation in PARTS.items():
            here = _eq(row_column(relation, "city"), SlotRef(slot=city))
            domain = Query(var="x", relation=relation, where=here)
            slots.append(Slot(name=f"{name}_{day}", kind="entity", domain=domain))
        item: dict[str, JsonValue] = {"time": iso_day(start, day - 1)}
        item |= {name: {"$slot": f"{name}_{day}"} for name in ("city", *PARTS)}
        layout.append(item)
    return Frame(slots=tuple(slots), layout=layout)


# --- goals of "find" ---------------------------------------------------------------------------


def _in_scope(scope: str, relation: str, keep: str | None) -> Expr:
    city = row_column(relation, "city")
    item = _eq(city, Param(name="city"))
    if scope == "big":
        people = Get(relation="cities", entity=city, column="population")
        item = compare(people, ">=", Param(name="people"))
    if keep is None:
        return item
    return both(item, compare(row_column(relation, keep), ">=", Param(name="floor")))


def best(scope: str, filtered: bool, highest: bool) -> Callable[[Fields], Equals]:
    """The row of ``of`` with the highest or lowest ``by``; only those with ``keep`` >= floor if filtered."""

    def build(fields: Fields) -> Equals:
        relation = _text(fields, "of")
        keep = _text(fields, "keep") if filtered else None
        order = Order(by=row_column(relation, _text(fields, "by")), descending=highest)
        where = _in_scope(scope, relation, keep)
        query = Query(var="x", relation=relation, where=where, order=(order,), limit=1)
        return Equals(slot=KIND_OF[relation], query=query, text_key="")

    return build


def number(agg: Literal["count", "sum"]) -> Callable[[Fields], Equals]:
    """How many rows of ``of`` in large cities have ``keep`` >= floor, or the sum of their ``by``."""

    def build(fields: Fields) -> Equals:
        relation = _text(fields, "of")
        where = _in_scope("big", relation, _text(fields, "keep"))
        by = row_column(relation, _text(fields, "by")) if agg == "sum" else None
        query = Query(var="x", relation=relation, where=where, select=by, agg=agg)
        return Equals(slot="number", query=query, text_key="")

    return build


# --- rules of "plan" ---------------------------------------------------------------------------


def _clause(family: str, expr: Expr, *, guard: Expr | None = None, name: str = "") -> Clause:
    return Clause(id=name or family, family=family, expr=expr, guard=guard, text_key="")


def _slots(days: int, *names: str) -> tuple[Expr, ...]:
    return tuple(SlotRef(slot=f"{name}_{day}") for day in range(1, days + 1) for name in names)


def no_repeat(fields: Fields) -> Clause:
    """Cities, hotels, restaurants and attractions are all different."""
    days = _int(fields, "days")
    groups = [_slots(days, "city"), _slots(days, "hotel")]
    groups.append(_slots(days, "afternoon_restaurant", "evening_restaurant"))
    groups.append(_slots(days, "afternoon_attraction"))
    return _clause("no_repeat", both(*(AllDifferent(items=items) for items in groups)))


def meals_differ(_: Fields) -> Clause:
    """``no_repeat`` for a single day."""
    meals = _slots(1, "afternoon_restaurant", "evening_restaurant")
    return _clause("no_repeat", AllDifferent(items=meals))


def located(fields: Fields) -> Clause:
    """Everything of a day is in that day's city."""
    return _located(_int(fields, "days"))


def located_one(_: Fields) -> Clause:
    """``located`` for a single day."""
    return _located(1)


def _located(days: int) -> Clause:
    items = [
        _eq(part(day, name, "city"), SlotRef(slot=f"city_{day}"))
        for day in range(1, days + 1)
        for name in PARTS
    ]
    return _clause("located", both(*items))


def _ratings(day: int, floor: str) -> tuple[Expr, Expr]:
    lunch, dinner = (
        compare(part(day, meal, "rating"), ">=", Param(name=floor))
        for meal in ("afternoon_restaurant", "evening_restaurant")
    )
    return lunch, dinner


def _ticket(day: int, limit: str) -> Expr:
    return compare(part(day, "afternoon_attraction", "ticket"), "<", Param(name=limit))


def luxury(fields: Fields) -> Clause:
    """Dear hotel: cheap and good meals, cheap ticket."""
    day = _int(fields, "day")
    meals = total(
        part(day, "afternoon_restaurant", "price"), part(day, "evening_restaurant", "price")
    )
    cheap = compare(meals, "<", Param(name="luxury_meals"))
    then = both(cheap, *_ratings(day, "good_rating"), _ticket(day, "luxury_ticket"))
    guard = compare(part(day, "hotel", "price"), ">=", Param(name="luxury_price"))
    return _clause("tier", then, guard=guard, name="luxury")


def mid(fields: Fields) -> Clause:
    """Hotel in the middle: one good meal, a ticket that is not dear."""
    day = _int(fields, "day")
    then = both(Or(items=_ratings(day, "good_rating")), _ticket(day, "mid_ticket"))
    return _clause("tier", then, guard=_between(day, "mid_price", "luxury_price"), name="mid")


def low(fields: Fields) -> Clause:
    """Cheap hotel: one fair meal."""
    day = _int(fields, "day")
    then = Or(items=_ratings(day, "fair_rating"))
    return _clause("tier", then, guard=_between(day, "low_price", "mid_price"), name="low")


def _between(day: int, low_name: str, high_name: str) -> Expr:
    price = part(day, "hotel", "price")
    return both(
        compare(price, ">=", Param(name=low_name)), compare(price, "<", Param(name=high_name))
    )


def budget(fields: Fields) -> Clause:
    """A cap on what hotels, restaurants and tickets cost together."""
    costs = [
        part(day, name, PRICE_OF[relation])
        for day in range(1, _int(fields, "days") + 1)
        for name, relation in PARTS.items()
    ]
    return _clause("budget", compare(total(*costs), "<=", Param(name="budget")))


def legs(fields: Fields) -> Clause:
    """A cap on the fares between the cities."""
    fares: list[Expr] = []
    for day in range(1, _int(fields, "days")):
        leg = both(
            _eq(row_column("inter_city_transport", "from_city"), SlotRef(slot=f"city_{day}")),
            _eq(row_column("inter_city_transport", "to_city"), SlotRef(slot=f"city_{day + 1}")),
        )
        fare = row_column("inter_city_transport", "fare")
        fares.append(
            Query(var="x", relation="inter_city_transport", where=leg, select=fare, agg="min")
        )
    return _clause("legs", compare(total(*fares), "<=", Param(name="legs")))


def dry(fields: Fields) -> Clause:
    """No rain in the city of any day."""
    start, days = _text(fields, "start"), _int(fields, "days")
    items: list[Expr] = []
    for day in range(1, days + 1):
        wet = both(
            _eq(row_column("weather", "city"), SlotRef(slot=f"city_{day}")),
            _eq(row_column("weather", "date"), Const(value=iso_day(start, day - 1))),
            _eq(row_column("weather", "condition"), Const(value=RAIN)),
        )
        rainy = Query(var="x", relation="weather", where=wet, agg="count")
        items.append(_eq(rainy, Const(value=0)))
    return _clause("dry", both(*items))

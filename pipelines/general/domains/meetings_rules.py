"""What the sentences of the meeting domain mean: queries, and rules on rooms and times."""

from __future__ import annotations

from pydantic import JsonValue

from envgen.core.ir import (
    All,
    Before,
    Clause,
    End,
    Equals,
    Expr,
    Intervals,
    Layout,
    NoOverlap,
    Order,
    Query,
    Slot,
    Start,
)
from envgen.pipelines.general.domains.meetings_recipe import CLOSES, OPENS, STEP
from envgen.pipelines.general.domains.terms import (
    both,
    cmp,
    const,
    either,
    eq,
    get,
    param,
    slot,
    var,
)
from envgen.pipelines.general.lexicon import Frame
from envgen.pipelines.general.wording import Fields


def number(value: JsonValue) -> int:
    """A field that holds a number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"no number: {value!r}")
    return value


def _time(k: int) -> Expr:
    return slot(f"time_{k}")


def _room(k: int, column: str) -> Expr:
    return get("rooms", slot(f"room_{k}"), column)


def _clause(name: str, family: str, expr: Expr) -> Clause:
    return Clause(id=name, family=family, expr=expr, text_key=name)


def _clear(time: Expr, relation: str) -> Expr:
    """``time`` is over before, or starts after, the row in hand of busy or bookings."""
    row = var("b")
    return either(
        cmp(End(interval=time), "<=", get(relation, row, "start_min")),
        cmp(Start(interval=time), ">=", get(relation, row, "end_min")),
    )


def _idle(time: Expr, relation: str, column: str, owner: Expr) -> Expr:
    """No row of ``owner`` overlaps ``time``."""
    over = Query(var="b", relation=relation, where=eq(get(relation, var("b"), column), owner))
    return All(var="b", over=over, body=_clear(time, relation))


def _attendees(k: int) -> Query:
    where = eq(get("attendance", var("a"), "meeting_id"), param(f"meeting_{k}"))
    return Query(var="a", relation="attendance", where=where)


def free(fields: Fields) -> Clause:
    """Everyone who attends is free."""
    k = number(fields["k"])
    person = get("attendance", var("a"), "person")
    expr = All(var="a", over=_attendees(k), body=_idle(_time(k), "busy", "person", person))
    return _clause(f"free_{k}", "free", expr)


def room_free(fields: Fields) -> Clause:
    """The room has no booking."""
    k = number(fields["k"])
    expr = _idle(_time(k), "bookings", "room", slot(f"room_{k}"))
    return _clause(f"room_free_{k}", "free", expr)


def seats(fields: Fields) -> Clause:
    """The room seats all attendees."""
    k = number(fields["k"])
    count = _attendees(k).model_copy(update={"agg": "count"})
    return _clause(f"seats_{k}", "capacity", cmp(_room(k, "seats"), ">=", count))


def fixed_free(_: Fields) -> Clause:
    """The person named is free."""
    return _clause("fixed_free", "free", _idle(_time(1), "busy", "person", param("person")))


def fixed_room(_: Fields) -> Clause:
    """The room named has no booking."""
    return _clause("fixed_room", "free", _idle(_time(1), "bookings", "room", param("room")))


def _numbers(fields: Fields) -> range:
    return range(1, number(fields["count"]) + 1)


def apart(fields: Fields) -> Clause:
    """No two of the meetings overlap."""
    times = tuple(_time(k) for k in _numbers(fields))
    return _clause("apart", "no_overlap", NoOverlap(intervals=times))


def rooms_once(fields: Fields) -> Clause:
    """No room holds two of the meetings at a time."""
    numbers = _numbers(fields)
    times = tuple(_time(k) for k in numbers)
    rooms = tuple(slot(f"room_{k}") for k in numbers)
    return _clause("rooms_once", "no_overlap", NoOverlap(intervals=times, resources=rooms))


def lunch(fields: Fields) -> Clause:
    """No meeting overlaps the lunch break."""
    clear = [
        either(
            cmp(End(interval=_time(k)), "<=", param("lunch_start")),
            cmp(Start(interval=_time(k)), ">=", param("lunch_end")),
        )
        for k in _numbers(fields)
    ]
    return _clause("lunch", "time_window", both(*clear))


def equipment(fields: Fields) -> Clause:
    """The room has the equipment."""
    k = number(fields["k"])
    column = str(fields["equipment"])
    return _clause(f"equipment_{k}", "equipment", eq(_room(k, column), const(True)))


def floor(fields: Fields) -> Clause:
    """The room is on a low floor."""
    k = number(fields["k"])
    return _clause(f"floor_{k}", "compare", cmp(_room(k, "floor"), "<=", param(f"floor_{k}")))


def after(fields: Fields) -> Clause:
    """The meeting starts late enough."""
    k = number(fields["k"])
    expr = cmp(Start(interval=_time(k)), ">=", param(f"after_{k}"))
    return _clause(f"after_{k}", "time_window", expr)


def until(fields: Fields) -> Clause:
    """The meeting is over early enough."""
    k = number(fields["k"])
    expr = cmp(End(interval=_time(k)), "<=", param(f"until_{k}"))
    return _clause(f"until_{k}", "time_window", expr)


def lag(fields: Fields) -> Clause:
    """One meeting ends some time before another starts."""
    a, b = number(fields["a"]), number(fields["b"])
    expr = Before(left=_time(a), right=_time(b), lag=param(f"lag_{a}_{b}"))
    return _clause(f"lag_{a}_{b}", "before", expr)


def same_floor(fields: Fields) -> Clause:
    """Two meetings are on one floor."""
    a, b = number(fields["a"]), number(fields["b"])
    return _clause(f"same_floor_{a}_{b}", "coupled", eq(_room(a, "floor"), _room(b, "floor")))


def _best(relation: str, where: Expr, column: str, *, highest: bool, name: str = "r") -> Query:
    order = Order(by=get(relation, var(name), column), descending=highest)
    return Query(var=name, relation=relation, where=where, order=(order,), limit=1)


def rank_goal(fields: Fields) -> Equals:
    """The room with the best attribute."""
    highest = fields["sense"] == "highest"
    query = _best("rooms", const(True), str(fields["attribute"]), highest=highest)
    return Equals(slot="room", query=query, text_key="rank")


def filter_goal(fields: Fields) -> Equals:
    """The room with the best attribute among those with enough seats."""
    highest = fields["sense"] == "highest"
    where = cmp(get("rooms", var("r"), "seats"), ">=", param("seats"))
    query = _best("rooms", where, str(fields["attribute"]), highest=highest)
    return Equals(slot="room", query=query, text_key="filter")


def hop_goal(fields: Fields) -> Equals:
    """The first or last booking of the room with most seats on a floor."""
    on_floor = eq(get("rooms", var("q"), "floor"), param("floor"))
    room = _best("rooms", on_floor, "seats", highest=True, name="q")
    where = eq(get("bookings", var("r"), "room"), room)
    query = _best("bookings", where, "start_min", highest=fields["sense"] == "last")
    return Equals(slot="booking", query=query, text_key="hop")


def _place(fields: Fields, k: int) -> tuple[list[Slot], dict[str, Layout]]:
    times = Intervals(low=OPENS, high=CLOSES, step=STEP, length=number(fields[f"minutes_{k}"]))
    room = Slot(name=f"room_{k}", kind="entity", domain=Query(var="r", relation="rooms"))
    time = Slot(name=f"time_{k}", kind="interval", domain=times)
    if fields["opening"] == "fixed":
        return [time], {"time": {"$slot": time.name}}
    return [room, time], {"room": {"$slot": room.name}, "time": {"$slot": time.name}}


def frame(fields: Fields) -> Frame:
    """Slots and layout of a request."""
    opening = str(fields["opening"])
    if opening in ("rooms", "bookings"):
        name = opening.removesuffix("s")
        asked = Slot(name=name, kind="entity", domain=Query(var="r", relation=opening))
        return Frame(slots=(asked,), layout={name: {"$slot": name}})
    count = 1 if opening == "fixed" else int(opening.removeprefix("place_"))
    slots: list[Slot] = []
    layout: dict[str, Layout] = {}
    for k in range(1, count + 1):
        found, entry = _place(fields, k)
        slots += found
        layout |= entry if count == 1 else {f"meeting_{k}": entry}
    return Frame(slots=tuple(slots), layout=layout)

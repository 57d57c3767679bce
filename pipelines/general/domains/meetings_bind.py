"""Params of the meeting domain: meetings and bounds under which every rule of a task binds.

A rule binds if some placement breaks it and no other rule. ``Board`` looks for such placements: it
knows for each meeting which rooms and times break which rules, and walks through the combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from random import Random
from typing import NamedTuple

from envgen.core.ir import Scalar
from envgen.pipelines.general.domains.meetings_recipe import CLOSES, OPENS, STEP, Extra, Recipe
from envgen.pipelines.general.tables import Row, Tables

Params = dict[str, Scalar]

_TRIES = 25
"""Choices of params tried on one set of rows."""
_STEPS = 4_000
"""Placements looked at before a rule counts as one that doesn't bind."""
_KEEP = 3
"""Bindings to choose the tightest from."""
_COUNT_CAP = 300
_LAGS = (15, 30, 45, 60, 90, 120)


def bind(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    """Params for a task with a solution in which every rule binds; None if these rows allow none."""
    if recipe.task == "rank":
        return {}
    if recipe.task == "filter":
        return _bind_filter(recipe, tables, rng)
    if recipe.task == "hop":
        return _bind_hop(recipe, tables, rng)
    best: tuple[int, Params] | None = None
    found = 0
    for _ in range(_TRIES):
        params = _choose(recipe, tables, rng)
        board = None if params is None else _board(recipe, tables, params, rng)
        if params is None or board is None or not board.all_bind():
            continue
        solutions = board.solutions(_COUNT_CAP)
        if best is None or solutions < best[0]:
            best = solutions, params
        found += 1
        if found == _KEEP:
            break
    return None if best is None else best[1]


def _choose(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    """The person and room, or the meetings, that the request is about."""
    if recipe.task == "fixed":
        people, rooms = sorted(tables["people"]), sorted(tables["rooms"])
        return {"person": rng.choice(people), "room": rng.choice(rooms)}
    meetings = sorted(tables["meetings"])
    for _ in range(_TRIES):
        chosen = rng.sample(meetings, len(recipe.lengths))
        if _can_clash(recipe, [set(_attendees(tables, meeting)) for meeting in chosen]):
            return {f"meeting_{k}": m for k, m in zip(recipe.numbers, chosen, strict=True)}
    return None


def _can_clash(recipe: Recipe, groups: list[set[str]]) -> bool:
    """Whether both rules on overlaps can bind: a lag rules out all overlaps of its two meetings."""
    apart = {(extra.first, extra.second) for extra in recipe.extras if extra.key == "lag"}
    shared = {
        bool(groups[k - 1] & groups[m - 1])
        for k, m in combinations(recipe.numbers, 2)
        if (k, m) not in apart
    }
    rules = pair_rules(len(groups))
    return ("people_once" not in rules or True in shared) and (
        "rooms_once" not in rules or False in shared
    )


def _board(recipe: Recipe, tables: Tables, params: Params, rng: Random) -> Board | None:
    """The board of a request; bounds are added to ``params``. None if some rule can't bind."""
    day = _Day(recipe, tables, params)
    kinds = ("free", "room_free") if recipe.task == "fixed" else ("free", "room_free", "seats")
    rules = [f"{kind}_{k}" for kind in kinds for k in recipe.numbers]
    board = Board({k: list(day.options(k)) for k in recipe.numbers}, {}, rules)
    if not board.may_bind():
        return None
    for extra in recipe.extras:
        if extra.key in ("lag", "same_floor"):
            if extra.key == "lag":
                params[extra.name] = rng.choice(_LAGS)
            continue
        breaks = _bound(extra, board, params, rng)
        if breaks is None:
            return None
        board.add(extra, breaks)
    for k, m in combinations(recipe.numbers, 2):
        board.pairs[k, m] = list(day.pair_rules(k, m))
    return board


def _bound(extra: Extra, board: Board, params: Params, rng: Random) -> Breaks | None:
    """A bound for ``extra`` under which it forbids some of what is free until now, but not all."""
    numbers = [extra.first] if extra.first else list(board.options)
    free = [option for k in numbers for option in board.clean(k)]
    if extra.key == "equipment":
        return lambda option: not option.row[extra.word]
    if extra.key == "lunch":
        params["lunch_start"] = start = rng.choice((690, 720, 750))
        params["lunch_end"] = end = start + rng.choice((30, 60))
        return lambda option: option.start < end and option.end > start
    measure: Callable[[Option], int]
    if extra.key == "after":
        values = sorted({option.start for option in free})[1:]
        measure = _minus_start
    elif extra.key == "until":
        values = sorted({option.end for option in free})[:-1]
        measure = _end
    else:
        values = sorted({option.floor for option in free})[:-1]
        measure = _floor
    if not values:
        return None
    params[extra.name] = value = rng.choice(values)
    bound = -value if extra.key == "after" else value
    return lambda option: measure(option) > bound


def _minus_start(option: Option) -> int:
    return -option.start


def _end(option: Option) -> int:
    return option.end


def _floor(option: Option) -> int:
    return option.floor


class Option(NamedTuple):
    """A room and a start for one meeting that break at most one rule on their own."""

    row: Row
    floor: int
    start: int
    end: int
    broken: str
    """The rule, or nothing."""


Pair = Callable[[Option, Option], bool]
Breaks = Callable[[Option], bool]


@dataclass
class Board:
    """The options of each meeting, and the rules between two meetings."""

    options: dict[int, list[Option]]
    pairs: dict[tuple[int, int], list[tuple[str, Pair]]]
    """(k, m), k < m -> rule ids with what breaks them."""
    rules: list[str]
    """Ids of the rules on single meetings."""
    steps: int = 0

    def clean(self, k: int) -> list[Option]:
        """Options of meeting ``k`` that break nothing on their own."""
        return [option for option in self.options[k] if not option.broken]

    def add(self, extra: Extra, breaks: Breaks) -> None:
        """Apply one more rule: what breaks two of them is of no use."""
        self.rules.append(extra.name)
        for k, options in self.options.items():
            if extra.first not in (0, k):
                continue
            kept = []
            for option in options:
                if not breaks(option):
                    kept.append(option)
                elif not option.broken:
                    kept.append(option._replace(broken=extra.name))
            self.options[k] = kept

    def may_bind(self) -> bool:
        """Whether each meeting has an option, and each rule on single meetings breaks alone."""
        broken = {option.broken for options in self.options.values() for option in options}
        return broken.issuperset(self.rules) and all(map(self.clean, self.options))

    def all_bind(self) -> bool:
        """Whether there is a solution, and for each rule a placement that breaks only that one."""
        clean = {k: self.clean(k) for k in self.options}
        single: dict[str, dict[int, list[Option]]] = {}
        for k, options in self.options.items():
            for option in options:
                if option.broken:
                    single.setdefault(option.broken, {}).setdefault(k, []).append(option)
        if not self.may_bind() or not self._any(clean, None):
            return False
        for places in single.values():
            if not any(self._any(clean | {k: options}, None) for k, options in places.items()):
                return False
        coupled = {rule for found in self.pairs.values() for rule, _ in found}
        return all(self._any(clean, rule) for rule in coupled)

    def solutions(self, cap: int) -> int:
        """Number of solutions, counted up to ``cap``."""
        clean = {k: self.clean(k) for k in self.options}
        self.steps = 0
        return sum(1 for _ in islice(self._walk(clean, (), None, done=True), cap))

    def _any(self, options: dict[int, list[Option]], rule: str | None) -> bool:
        """Whether some placement breaks exactly the rule ``rule`` on pairs (None: no such rule)."""
        self.steps = 0
        return next(self._walk(options, (), rule, done=rule is None), None) is not None

    def _walk(
        self,
        options: dict[int, list[Option]],
        placed: tuple[Option, ...],
        rule: str | None,
        *,
        done: bool,
    ) -> Iterator[tuple[Option, ...]]:
        m = len(placed) + 1
        if m > len(options):
            if done:
                yield placed
            return
        for option in options[m]:
            self.steps += 1
            if self.steps > _STEPS:
                return
            found = set()
            for k, other in enumerate(placed, start=1):
                found |= {name for name, breaks in self.pairs[k, m] if breaks(other, option)}
            if not found or found == {rule}:
                yield from self._walk(options, (*placed, option), rule, done=done or bool(found))


class _Day:
    """What the rows say about the meetings of a request."""

    def __init__(self, recipe: Recipe, tables: Tables, params: Params) -> None:
        self.recipe = recipe
        self.params = params
        self.rooms = tables["rooms"]
        self.bookings = _by_owner(tables["bookings"], "room")
        self.busy = _by_owner(tables["busy"], "person")
        self.people: dict[int, list[str]] = {}
        for k in recipe.numbers:
            named = params.get("person")
            self.people[k] = [str(named)] if named else _attendees(tables, params[f"meeting_{k}"])

    def options(self, k: int) -> Iterator[Option]:
        """The rooms and starts for meeting ``k`` that break at most one of its own rules."""
        fixed = self.recipe.task == "fixed"
        rooms = [str(self.params["room"])] if fixed else sorted(self.rooms)
        length = self.recipe.lengths[k - 1]
        taken = [span for name in self.people[k] for span in self.busy.get(name, ())]
        starts = range(OPENS, CLOSES - length + 1, STEP)
        late = [start for start in starts if _clash(taken, start, start + length)]
        for room in rooms:
            row = self.rooms[room]
            floor = _number(row["floor"])
            small = not fixed and _number(row["seats"]) < len(self.people[k])
            booked = self.bookings.get(room, [])
            for start in starts:
                broken = f"seats_{k}" if small else ""
                if start in late:
                    if broken:
                        continue
                    broken = f"free_{k}"
                if _clash(booked, start, start + length):
                    if broken:
                        continue
                    broken = f"room_free_{k}"
                yield Option(row, floor, start, start + length, broken)

    def pair_rules(self, k: int, m: int) -> Iterator[tuple[str, Pair]]:
        """Rules on meetings ``k`` and ``m``, and what breaks them."""
        if set(self.people[k]) & set(self.people[m]):
            yield "people_once", _overlap
        if "rooms_once" in pair_rules(len(self.recipe.lengths)):
            yield "rooms_once", _same_room_overlap
        for extra in self.recipe.extras:
            if (extra.first, extra.second) != (k, m):
                continue
            if extra.key == "same_floor":
                yield extra.name, _other_floor
            elif extra.key == "lag":
                yield extra.name, partial(_too_soon, _number(self.params[extra.name]))


def pair_rules(count: int) -> tuple[str, ...]:
    """Ids of the rules on pairs that every placement of ``count`` meetings has.

    With two meetings only one of them can bind: people who attend both rule out every overlap.
    """
    return ("people_once", "rooms_once")[: max(0, count - 1)]


def _attendees(tables: Tables, meeting: Scalar) -> list[str]:
    rows = tables["attendance"].values()
    return [str(row["person"]) for row in rows if row["meeting_id"] == meeting]


def _overlap(a: Option, b: Option) -> bool:
    return a.start < b.end and b.start < a.end


def _same_room_overlap(a: Option, b: Option) -> bool:
    return a.row["name"] == b.row["name"] and _overlap(a, b)


def _other_floor(a: Option, b: Option) -> bool:
    return a.floor != b.floor


def _too_soon(lag: int, a: Option, b: Option) -> bool:
    return b.start - a.end < lag


def _clash(spans: list[tuple[int, int]], start: int, end: int) -> bool:
    for low, high in spans:  # faster than any(): this is most of what binding does
        if start < high and end > low:
            return True
    return False


def _by_owner(rows: dict[str, Row], column: str) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in rows.values():
        span = _number(row["start_min"]), _number(row["end_min"])
        spans.setdefault(str(row[column]), []).append(span)
    return spans


def _number(value: Scalar) -> int:
    assert isinstance(value, int)
    return value


def _best(rows: list[Row], key: str, column: str, *, highest: bool) -> str | None:
    values = [_number(row[column]) for row in rows]
    if not values:
        return None
    best = max(values) if highest else min(values)
    return str(rows[values.index(best)][key]) if values.count(best) == 1 else None


def _bind_filter(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    rooms = list(tables["rooms"].values())
    highest = recipe.sense == "highest"
    overall = _best(rooms, "name", recipe.attribute, highest=highest)
    bounds = sorted({_number(row["seats"]) for row in rooms})
    rng.shuffle(bounds)
    for bound in bounds:
        kept = [row for row in rooms if _number(row["seats"]) >= bound]
        found = _best(kept, "name", recipe.attribute, highest=highest)
        if len(kept) >= 3 and found not in (None, overall):
            return {"seats": bound}
    return None


def _bind_hop(recipe: Recipe, tables: Tables, rng: Random) -> Params | None:
    rooms = list(tables["rooms"].values())
    largest = _best(rooms, "name", "seats", highest=True)
    floors = sorted({_number(row["floor"]) for row in rooms})
    rng.shuffle(floors)
    for floor in floors:
        kept = [row for row in rooms if row["floor"] == floor]
        room = _best(kept, "name", "seats", highest=True)
        bookings = [row for row in tables["bookings"].values() if row["room"] == room]
        if len(kept) >= 2 and room != largest and len(bookings) >= 2:
            return {"floor": floor}
    return None

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
_KEEP, _KEEP_SINGLE = 3, 8
"""Bindings to choose the tightest from, the latter where one meeting is to be placed."""
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
    office = _Office(recipe, tables)
    best: tuple[int, Params] | None = None
    found = 0
    for _ in range(_TRIES):
        params = office.choose(rng)
        if params is None:
            break
        board = _board(office, params, rng)
        if board is None or not board.all_bind():
            continue
        solutions = board.solutions(_COUNT_CAP)
        if best is None or solutions < best[0]:
            best = solutions, params
        found += 1
        if found == (_KEEP if len(recipe.lengths) > 1 else _KEEP_SINGLE):
            break
    return None if best is None else best[1]


def _board(office: _Office, params: Params, rng: Random) -> Board | None:
    """The board of a request; bounds are added to ``params``. None if some rule can't bind."""
    recipe = office.recipe
    rules = [f"{kind}_{k}" for kind in office.kinds for k in recipe.numbers]
    board = Board({k: office.options(params, k) for k in recipe.numbers}, {}, rules)
    for extra in recipe.extras:
        if extra.key in ("lag", "same_floor"):
            if extra.key == "lag":
                params[extra.name] = rng.choice(_LAGS)
            continue
        breaks = _bound(extra, board, params, rng)
        if breaks is None:
            return None
        board.add(extra, breaks)
        if not board.may_bind():
            return None
    for k, m in combinations(recipe.numbers, 2):
        board.pairs[k, m] = list(_pair_rules(recipe, params, k, m))
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


class _Office:
    """What the rows say about meetings, worked out once for each meeting and length."""

    def __init__(self, recipe: Recipe, tables: Tables) -> None:
        self.recipe = recipe
        self.fixed = recipe.task == "fixed"
        self.kinds = ("free", "room_free") if self.fixed else ("free", "room_free", "seats")
        self.rooms = tables["rooms"]
        self.bookings = _by_owner(tables["bookings"], "room")
        self.busy = _by_owner(tables["busy"], "person")
        self.people: dict[str, list[str]] = {}
        for row in tables["attendance"].values() if not self.fixed else ():
            self.people.setdefault(str(row["meeting_id"]), []).append(str(row["person"]))
        if self.fixed:
            self.people = {name: [name] for name in tables["people"]}
        self._found: dict[tuple[str, str, int], list[Option]] = {}

    def choose(self, rng: Random) -> Params | None:
        """The person and room, or the meetings, of a request; None if there is no such choice."""
        length = self.recipe.lengths[0]
        if self.fixed:
            pairs = [(p, r) for p in sorted(self.people) for r in sorted(self.rooms)]
            pairs = [pair for pair in pairs if self._options(*pair, length)]
            return dict(zip(("person", "room"), rng.choice(pairs), strict=True)) if pairs else None
        taken: set[str] = set()
        params: Params = {}
        for k in self.recipe.numbers:
            meetings = [
                meeting
                for meeting in sorted(self.people)
                if meeting not in params.values()
                and (self.recipe.coupling != "rooms_once" or not taken & set(self.people[meeting]))
                and self._options(meeting, "", self.recipe.lengths[k - 1])
            ]
            if not meetings:
                return None
            params[f"meeting_{k}"] = chosen = rng.choice(meetings)
            taken |= set(self.people[chosen])
        return params

    def options(self, params: Params, k: int) -> list[Option]:
        """The options of meeting ``k`` of a request, the rules they break with its number."""
        subject = params["person"] if self.fixed else params[f"meeting_{k}"]
        room = params["room"] if self.fixed else ""
        found = self._options(str(subject), str(room), self.recipe.lengths[k - 1])
        return [o._replace(broken=f"{o.broken}_{k}") if o.broken else o for o in found]

    def _options(self, subject: str, room: str, length: int) -> list[Option]:
        """Rooms (or ``room``) and starts that break at most one rule; none if a rule can't bind.

        There must also be an option in a room without a spare seat.
        """
        key = (subject, room, length)
        if key not in self._found:
            people = self.people[subject]
            found = list(self._all(people, [room] if room else sorted(self.rooms), length))
            seated = self.fixed or any(
                option.row["seats"] == len(people) for option in found if not option.broken
            )
            binding = {option.broken for option in found} == {"", *self.kinds}
            self._found[key] = found if binding and seated else []
        return self._found[key]

    def _all(self, people: list[str], rooms: list[str], length: int) -> Iterator[Option]:
        taken = [span for name in people for span in self.busy.get(name, ())]
        starts = range(OPENS, CLOSES - length + 1, STEP)
        late = {start for start in starts if _clash(taken, start, start + length)}
        for room in rooms:
            row = self.rooms[room]
            small = not self.fixed and _number(row["seats"]) < len(people)
            booked = self.bookings.get(room, [])
            for start in starts:
                broken = ["seats"] if small else []
                if start in late:
                    broken.append("free")
                if len(broken) < 2 and _clash(booked, start, start + length):
                    broken.append("room_free")
                if len(broken) < 2:
                    floor = _number(row["floor"])
                    yield Option(row, floor, start, start + length, "".join(broken))


def _pair_rules(recipe: Recipe, params: Params, k: int, m: int) -> Iterator[tuple[str, Pair]]:
    """Rules on meetings ``k`` and ``m``, and what breaks them."""
    if recipe.coupling:
        yield recipe.coupling, _overlap if recipe.coupling == "apart" else _same_room_overlap
    for extra in recipe.extras:
        if (extra.first, extra.second) != (k, m):
            continue
        if extra.key == "same_floor":
            yield extra.name, _other_floor
        elif extra.key == "lag":
            yield extra.name, partial(_too_soon, _number(params[extra.name]))


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

"""Levels 1 to 5 of the trip domain: find the one hotel, restaurant, attraction or number asked for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from envgen.core.ir import Access, Equals, Problem, Relation, Scalar
from envgen.pipelines.general.blueprint import Hardened
from envgen.pipelines.general.domains import trip_tools
from envgen.pipelines.general.domains.trip_lexicon import LEXICON, Voice, new_voice, voice_of
from envgen.pipelines.general.domains.trip_rows import (
    PRICE_OF,
    SCORE_OF,
    city_rows,
    draw_cities,
    place_rows,
    relation,
)
from envgen.pipelines.general.tables import Row, Tables

_ROWS = {1: (2, 4), 2: (5, 9), 3: (7, 12), 4: (7, 12), 5: (6, 8)}
"""Level -> fewest and most rows of a city."""
_CITIES = (5, 6)
MOST = {"count": 40, "sum": 300}
"""Goal -> upper end of the range that its answer lies in."""
_TRIES = 60


def draw_tables(rng: Random, of: str, level: int) -> Tables:
    """Cities and the rows of ``of`` in them, with the columns that ``level`` needs."""
    cities = draw_cities(rng, rng.randint(*_CITIES) if level >= 5 else 1)
    per_city = rng.randint(*_ROWS[level])
    values: list[Row] = [{"city": city.name} for city in cities for _ in range(per_city)]
    rng.shuffle(values)
    if level <= 2:  # small ints whose largest and smallest stand alone
        for value, score in zip(values, _scores(rng, len(values)), strict=True):
            value[SCORE_OF[of]] = score
    relations = _relations(of, level)
    columns = {r.name: [c.name for c in r.columns] for r in relations}
    return {
        "cities": city_rows(cities, columns["cities"]),
        of: place_rows(rng, of, values, columns[of]),
    }


def _scores(rng: Random, count: int) -> list[int]:
    while True:
        scores = [rng.randrange(10) for _ in range(count)]
        if scores.count(max(scores)) == scores.count(min(scores)) == 1:
            return scores


def _relations(of: str, level: int) -> tuple[Relation, ...]:
    columns = ["name", "city", SCORE_OF[of]]
    if level >= 3:
        columns += [PRICE_OF[of], "rating"]
    places = relation("cities") if level >= 5 else relation("cities", ("name",))
    return places, relation(of, columns)


def _access(of: str, level: int) -> tuple[Access, ...]:
    shown = [c.name for c in _relations(of, level)[1].columns if c.name != "city"]
    if level <= 3:
        return (trip_tools.list_tool(of, shown),)
    tools = [trip_tools.list_tool(of), trip_tools.info_tool(of, shown[1:])]
    if level >= 5:
        tools += [trip_tools.ALL_CITIES, trip_tools.INFOS_BY_CITY, trip_tools.city_tool(of)]
    return tuple(sorted(tools, key=lambda access: access.tool))


def asked(problem: Problem) -> str:
    """The relation that a find task is about."""
    assert isinstance(problem.goal, Equals)
    return problem.goal.query.relation


def find_problem(of: str, level: int, voice: Voice, goal: str, fields: dict[str, str]) -> Problem:
    """A find task with its parameters still missing; ``fields`` are the goal's."""
    said: dict[str, int | str] = {"opening": voice.opening, "who": voice.who}
    if voice.opening.startswith("number"):
        said["most"] = MOST[goal]
    else:
        said["of"] = of
    frame = LEXICON.frame(said)
    return Problem(
        id=f"trip-{goal}",
        shape="B",
        relations=_relations(of, level),
        access=_access(of, level),
        slots=frame.slots,
        goal=LEXICON.goal(goal, of=of, **fields),
        layout=frame.layout,
        lexicon=LEXICON.id,
        fields=dict(said),
    )


def bind(problem: Problem, tables: Tables, rng: Random) -> Problem | None:
    """``problem`` with parameters for ``tables`` such that each condition matters; None if none do."""
    goal = problem.goal
    assert isinstance(goal, Equals)
    everywhere = not goal.text_key.startswith("city")
    people = {
        name: _int(row, "population") if everywhere else 0 for name, row in tables["cities"].items()
    }
    fixed: dict[str, Scalar] = {} if everywhere else {"city": rng.choice(sorted(people))}
    rows = [
        r for r in tables[goal.query.relation].values() if r["city"] == fixed.get("city", r["city"])
    ]
    keep = goal.fields.get("keep")
    floors = [0] if keep is None else sorted({_int(row, str(keep)) for row in rows})[1:]
    limits = sorted({_round(n) for n in people.values()})[1:-1] if everywhere else [0]
    choices = [(floor, limit) for floor in floors for limit in limits]
    rng.shuffle(choices)
    for floor, limit in choices:
        good = [row for row in rows if keep is None or _int(row, str(keep)) >= floor]
        large = [row for row in rows if people[str(row["city"])] >= limit]
        answer = _answer(goal, [row for row in good if row in large])
        others = [_answer(goal, large)] if keep is not None else []
        others += [_answer(goal, good)] if everywhere else []
        if answer is None or answer in others:
            continue
        found = fixed | ({} if keep is None else {"floor": floor})
        found |= {"people": limit} if everywhere else {}
        return problem.model_copy(update={"params": found})
    return None


def _answer(goal: Equals, rows: Sequence[Row]) -> Scalar:
    """What the goal asks for in ``rows``; None if it is no fair question there."""
    if goal.text_key == "count":
        return len(rows) if 10 <= len(rows) <= MOST["count"] else None
    by = str(goal.fields["by"])
    if goal.text_key == "sum":
        added = sum(_int(row, by) for row in rows)
        return added if 10 <= added <= MOST["sum"] else None
    if len(rows) < 2:
        return None
    values = [_int(row, by) for row in rows]
    best = max(values) if goal.text_key.endswith("most") else min(values)
    winners = [row["name"] for row in rows if row[by] == best]
    return winners[0] if len(winners) == 1 else None


def _int(row: Row, column: str) -> int:
    value = row[column]
    assert isinstance(value, int), f"{column} is a number"
    return value


def _round(people: int) -> int:
    return people // 100_000 * 100_000


# --- operators -----------------------------------------------------------------------------------


def first(rng: Random, tables: Tables) -> Problem | None:
    """Level 1: which row has the highest small number?"""
    of = next(name for name in tables if name != "cities")
    problem = find_problem(of, 1, new_voice(rng, "find"), "city_most", {"by": SCORE_OF[of]})
    return bind(problem, tables, rng)


def more_rows(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """1 to 2: more rows, and highest or lowest."""
    of = asked(problem)
    goal = rng.choice(["city_most", "city_least"])
    harder = find_problem(of, 2, voice_of(problem), goal, {"by": SCORE_OF[of]})
    return _over_new_rows(harder, 2, rng)


def filtered(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """2 to 3: only rows with enough free places count, and another column decides."""
    of = asked(problem)
    goal, by = rng.choice([("city_kept_least", PRICE_OF[of]), ("city_kept_most", "rating")])
    fields = {"keep": SCORE_OF[of], "by": by}
    harder = find_problem(of, 3, voice_of(problem), goal, fields)
    return _over_new_rows(harder, 3, rng)


def details(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """3 to 4: the list gives names only; facts need a call for each row."""
    return Hardened(problem.model_copy(update={"access": _access(asked(problem), 4)}), tables)


def across_cities(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """4 to 5: the same question about all large cities."""
    of = asked(problem)
    goal, by = rng.choice([("big_kept_least", PRICE_OF[of]), ("big_kept_most", "rating")])
    fields = {"keep": SCORE_OF[of], "by": by}
    return _over_new_rows(find_problem(of, 5, new_voice(rng, "search"), goal, fields), 5, rng)


def counted(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """4 to 5: how many rows of all large cities meet a condition?"""
    of = asked(problem)
    fields = {"keep": rng.choice([SCORE_OF[of], "rating"])}
    return _over_new_rows(find_problem(of, 5, new_voice(rng, "number"), "count", fields), 5, rng)


def added_up(problem: Problem, tables: Tables, rng: Random) -> Hardened | None:
    """4 to 5: the sum of a column over rows of all large cities."""
    of = asked(problem)
    fields = {"keep": "rating", "by": SCORE_OF[of]}
    return _over_new_rows(find_problem(of, 5, new_voice(rng, "number"), "sum", fields), 5, rng)


def _over_new_rows(problem: Problem, level: int, rng: Random) -> Hardened | None:
    for _ in range(_TRIES):
        tables = draw_tables(rng, asked(problem), level)
        bound = bind(problem, tables, rng)
        if bound is not None:
            return Hardened(bound, tables)
    return None


def sibling(rng: Random, problem: Problem, tables: Tables) -> Problem | None:
    """Another question of the same kind about the same rows."""
    of, goal = asked(problem), problem.goal
    assert isinstance(goal, Equals)
    score, price = SCORE_OF[of], PRICE_OF[of]
    ranked = [("kept_least", price), ("kept_most", "rating"), ("kept_most", price)]
    if goal.text_key in ("city_most", "city_least"):
        choices = [(name, {"by": score}) for name in ("city_most", "city_least")]
        kind = "find"
    elif goal.text_key.startswith("city"):
        choices = [(f"city_{name}", {"keep": score, "by": by}) for name, by in ranked]
        kind = "find"
    else:
        kind = rng.choice(["search", "number"])
        choices = [("count", {"keep": score}), ("count", {"keep": "rating"})]
        choices += [("sum", {"keep": "rating", "by": score})]
        if kind == "search":
            choices = [(f"big_{name}", {"keep": score, "by": by}) for name, by in ranked]
    name, fields = rng.choice(choices)
    other = find_problem(of, 5, new_voice(rng, kind), name, fields)
    same = {"relations": problem.relations, "access": problem.access}
    return bind(other.model_copy(update=same), tables, rng)

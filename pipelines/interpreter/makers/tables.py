"""Problems about tables of works of art. Answers come from loops over rows, from SQL, and from pandas."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from statistics import mean, median
from typing import Any

from pydantic import JsonValue

from envgen.pipelines.interpreter.makers.maker import Maker, Params, decimal, integer
from envgen.pipelines.interpreter.makers.table_rows import (
    CONDITIONS,
    Row,
    about,
    files,
    joined,
    kept_rows,
    pandas_code,
    rows_in_words,
    sql,
)
from envgen.verifiers.maths import MathAnswer

_LEAST = 6
"""Rows that must be left to be asked about."""


@dataclass(frozen=True)
class Measure:
    """A question about the rows that are kept."""

    text: str
    """With ``{rows}`` and ``{column}``."""
    loops: Callable[[list[Row], str], MathAnswer | None]
    """The answer computed row by row, or None if there is none."""
    select: Callable[[str], str]
    """SQL for it; its rows go to ``read``."""
    read: Callable[[list[tuple[Any, ...]]], MathAnswer]
    code: str
    """pandas for it, over ``d``; ``{column!r}`` is filled in."""
    columns: tuple[str, ...]
    """One of these is asked about."""


def _values(rows: list[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row.get(column) is not None]


def _one(digits: int) -> Callable[[list[tuple[Any, ...]]], MathAnswer]:
    return lambda rows: decimal(float(rows[0][0]), digits)


def _median(rows: list[Row], column: str) -> MathAnswer | None:
    return decimal(float(median(_values(rows, column))), 1)


def _median_sql(column: str) -> str:
    return (
        f"SELECT avg(v) FROM (SELECT {column} AS v, row_number() OVER (ORDER BY {column}) AS i, "
        f"count(*) OVER () AS n FROM d WHERE {column} IS NOT NULL) WHERE i IN ((n + 1) / 2, n / 2 + 1)"
    )


def _share(rows: list[Row], column: str) -> MathAnswer | None:
    missing = len(rows) - len(_values(rows, column))
    return decimal(100 * missing / len(rows), 2) if missing else None


def _percentile(rows: list[Row], column: str) -> MathAnswer | None:
    """The 90th percentile, by linear interpolation (numpy's default)."""
    values = sorted(_values(rows, column))
    place = 0.9 * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return decimal(values[low] + (values[high] - values[low]) * (place - low), 2)


def _percentile_sql(column: str) -> str:
    return f"SELECT {column} FROM d WHERE {column} IS NOT NULL ORDER BY {column}"


def _percentile_read(rows: list[tuple[Any, ...]]) -> MathAnswer:
    n = len(rows) - 1
    whole, tenths = divmod(9 * n, 10)
    low = rows[whole][0]
    high = rows[min(whole + 1, n)][0]
    return decimal((low * (10 - tenths) + high * tenths) / 10, 2)


def _slope(rows: list[Row], column: str) -> MathAnswer | None:
    """Least squares: acquisition_year = a + b * column."""
    pairs = [(row[column], row["acquisition_year"]) for row in rows if row.get(column) is not None]
    mean_x, mean_y = mean(x for x, _ in pairs), mean(y for _, y in pairs)
    below = sum((x - mean_x) ** 2 for x, _ in pairs)
    if not below:
        return None
    return decimal(float(sum((x - mean_x) * (y - mean_y) for x, y in pairs) / below), 4)


def _slope_sql(column: str) -> str:
    return (
        f"SELECT count(*), sum({column}), sum(acquisition_year), sum({column} * acquisition_year), "
        f"sum({column} * {column}) FROM d WHERE {column} IS NOT NULL AND acquisition_year IS NOT NULL"
    )


def _slope_read(rows: list[tuple[Any, ...]]) -> MathAnswer:
    n, x, y, xy, xx = rows[0]
    return decimal((n * xy - x * y) / (n * xx - x * x), 4)


def _mode(rows: list[Row], column: str) -> MathAnswer | None:
    ranked = Counter(_values(rows, column)).most_common(2)
    if len(ranked) < 2 or ranked[0][1] == ranked[1][1]:
        return None
    return MathAnswer(kind="string", value=str(ranked[0][0]))


def _distinct(rows: list[Row], column: str) -> MathAnswer | None:
    return integer(
        len({(row[column], row["artist_id"]) for row in rows if row.get(column) is not None})
    )


def _gap(rows: list[Row], column: str) -> MathAnswer | None:
    years = sorted(set(_values(rows, column)))
    return integer(max(b - a for a, b in pairwise(years))) if len(years) > 2 else None


def _gap_sql(column: str) -> str:
    return (
        f"SELECT max(gap) FROM (SELECT {column} - lag({column}) OVER (ORDER BY {column}) AS gap "
        f"FROM (SELECT DISTINCT {column} FROM d WHERE {column} IS NOT NULL))"
    )


def _best_group(rows: list[Row], column: str) -> MathAnswer | None:
    """The largest mean area of a group of three or more."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        if None not in (row.get(column), row["height_mm"], row["width_mm"]):
            groups[row[column]].append(row["height_mm"] * row["width_mm"])
    means = sorted((mean(areas) for areas in groups.values() if len(areas) > 2), reverse=True)
    if len(means) < 2 or means[0] == means[1]:
        return None
    return decimal(float(means[0]) / 100, 1)


def _lifetime(rows: list[Row], column: str) -> MathAnswer | None:
    """Each artist counts once."""
    lives = {
        row["artist_id"]: row["death_year"] - row["birth_year"]
        for row in rows
        if None not in (row["death_year"], row["birth_year"])
    }
    return decimal(float(mean(lives.values())), 2) if len(lives) > 2 else None


MEASURES = {
    "median": Measure(
        "Of the {rows}, what is the median of the known values of {column}? Give it with one digit after "
        "the point.",
        _median, _median_sql, _one(1), "print(round(float(d[{column!r}].median()), 1))",
        ("height_mm", "width_mm", "year", "birth_year"),
    ),
    "missing": Measure(
        "Of the {rows}, what percentage has no known {column}? Give the number of percent, rounded to two "
        "digits after the point, without a sign.",
        _share, lambda c: f"SELECT 100.0 * sum({c} IS NULL) / count(*) FROM d", _one(2),
        "print(round(100 * float(d[{column!r}].isna().mean()), 2))",
        ("year", "height_mm", "birth_country", "death_year"),
    ),
    "percentile": Measure(
        "Of the {rows}, what is the 90th percentile of the known values of {column}, by linear interpolation "
        "between the closest ranks (numpy's default)? Round to two digits after the point.",
        _percentile, _percentile_sql, _percentile_read,
        "print(round(float(d[{column!r}].quantile(0.9)), 2))",
        ("height_mm", "width_mm", "birth_year"),
    ),
    "slope": Measure(
        "For the {rows}, fit acquisition_year = a + b * {column} by least squares, over the rows where both "
        "are known. What is b? Round to four digits after the point.",
        _slope, _slope_sql, _slope_read,
        "import numpy as np\nd = d.dropna(subset=[{column!r}, 'acquisition_year'])\n"
        "print(f\"{{np.polyfit(d[{column!r}] - d[{column!r}].mean(), d['acquisition_year'], 1)[0]:.4f}}\")",
        ("year", "birth_year", "height_mm"),
    ),
    "mode": Measure(
        "Among the {rows}, which value of {column} is the most frequent one? Give it as the table has it.",
        _mode,
        lambda c: f"SELECT {c} FROM d WHERE {c} IS NOT NULL GROUP BY {c} "
        "ORDER BY count(*) DESC LIMIT 1",
        lambda rows: MathAnswer(kind="string", value=str(rows[0][0])),
        "print(d[{column!r}].value_counts().index[0])",
        ("medium", "acquisition_year"),
    ),
    "distinct": Measure(
        "Among the {rows}, how many different pairs of artist_id and {column} are there, where {column} is "
        "known?",
        _distinct,
        lambda c: f"SELECT count(*) FROM (SELECT DISTINCT artist_id, {c} FROM d WHERE {c} IS NOT NULL)",
        lambda rows: integer(rows[0][0]),
        "print(len(d.dropna(subset=[{column!r}])[['artist_id', {column!r}]].drop_duplicates()))",
        ("medium", "year", "acquisition_year", "acquisition"),
    ),
    "gap": Measure(
        "Sort the different known values of {column} among the {rows}. What is the largest difference "
        "between two neighbours?",
        _gap, _gap_sql, lambda rows: integer(rows[0][0]),
        "v = d[{column!r}].dropna().drop_duplicates().sort_values()\nprint(int(v.diff().max()))",
        ("year", "acquisition_year", "birth_year"),
    ),
    "best_group": Measure(
        "Group the {rows} by {column}, leaving out groups of fewer than three works whose height and width "
        "are known. What is the largest mean area (height times width) of a group, in square centimetres, "
        "rounded to one digit after the point?",
        _best_group,
        lambda c: f"SELECT max(m) / 100.0 FROM (SELECT avg(height_mm * width_mm) AS m FROM d "
        f"WHERE height_mm IS NOT NULL AND width_mm IS NOT NULL AND {c} IS NOT NULL "
        f"GROUP BY {c} HAVING count(*) > 2)",
        _one(1),
        "d = d.dropna(subset=['height_mm', 'width_mm', {column!r}])\n"
        "d['a'] = d['height_mm'] * d['width_mm'] / 100\n"
        "g = d.groupby({column!r})['a'].agg(['mean', 'size'])\n"
        "print(round(float(g[g['size'] > 2]['mean'].max()), 1))",
        ("medium", "classification", "acquisition"),
    ),
    "lifetime": Measure(
        "Take the artists of the {rows}, each of them once, whose years of birth and death are both known. "
        "What is the mean of death_year minus birth_year? Round to two digits after the point.",
        _lifetime,
        lambda c: "SELECT avg(death_year - birth_year) FROM "
        "(SELECT DISTINCT artist_id, birth_year, death_year FROM d)",
        _one(2),
        "a = d.drop_duplicates('artist_id')\n"
        "print(round(float((a['death_year'] - a['birth_year']).mean()), 2))",
        ("",),
    ),
}  # fmt: skip
"""By name; a maker each."""


def _draw(name: str, rng: Random, level: int) -> Params:
    """Numbers of a problem that has an answer."""
    measure = MEASURES[name]
    while True:
        params: dict[str, JsonValue] = {
            "sample": rng.randrange(40),  # tables are shared by problems
            "rows": 100 * level + 100,
            "together": level > 4,
            "column": rng.choice(measure.columns),
            "where": [],
        }
        row = rng.choice(joined(params))
        columns = [c for c in CONDITIONS if row.get(c) is not None and c != params["column"]]
        chosen = rng.sample(columns, min(len(columns), (level + 3) // 2))
        params["where"] = [[c, rng.choice(sorted(CONDITIONS[c])), row[c]] for c in chosen]
        if len(_known(params)) >= _LEAST and _loops(name, params) is not None:
            return params


def _known(params: Params) -> list[Row]:
    column = str(params["column"])
    return [row for row in kept_rows(params) if not column or row.get(column) is not None]


def _column(name: str, params: Params) -> str:
    column = params.get("column")
    if column not in MEASURES[name].columns:
        raise ValueError(f"not a column for this: {column!r:.80}")
    return str(column)


def _loops(name: str, params: Params) -> MathAnswer | None:
    column = _column(name, params)
    rows = kept_rows(params)
    if len(_known(params)) < 3:
        return None
    return MEASURES[name].loops(rows, column)


def _solve(name: str, params: Params) -> MathAnswer:
    answer = _loops(name, params)
    if answer is None:
        raise ValueError("the problem has no answer")
    return answer


def _check(name: str, params: Params) -> MathAnswer:
    measure = MEASURES[name]
    return measure.read(sql(params, measure.select(_column(name, params))))


def _text(name: str, params: Params) -> str:
    return MEASURES[name].text.format(rows=rows_in_words(params), column=_column(name, params))


def _code(name: str, params: Params) -> str:
    last = MEASURES[name].code.format(column=_column(name, params))
    return f"{pandas_code(params)}\n{last}"


MAKERS = tuple(
    Maker(
        name=f"table_{name}",
        kind="data",
        area="data analysis",
        draw=partial(_draw, name),
        text=partial(_text, name),
        solve=partial(_solve, name),
        check=partial(_check, name),
        code=partial(_code, name),
        files=files,
        about=about,
    )
    for name in MEASURES
)

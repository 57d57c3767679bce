"""Problems about tables: works of art and their artists, drawn anew from the Tate's records for each sample.

The rows are real (CC0, ``envgen/store/data/NOTICE.md``), with what their curators left out, and which of
them a sample holds nobody has seen. Answers come from loops over rows, from SQL, and from pandas.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import pairwise
from random import Random
from statistics import mean, median
from typing import Any

from pydantic import JsonValue

from envgen.core.seeding import rng as seeded
from envgen.pipelines.interpreter.makers.maker import Maker, Params, decimal, integer, number
from envgen.store.corpus_lines import package_corpus
from envgen.verifiers.maths import MathAnswer

Row = dict[str, Any]
MAX_ROWS = 2_000
WORKS = (
    "work_id",
    "artist_id",
    "classification",
    "medium",
    "acquisition",
    "acquisition_year",
    "year",
)
ARTISTS = ("artist_id", "gender", "birth_year", "death_year", "birth_country")
SIZES = ("height_mm", "width_mm")
ABOUT = """\
Two tables lie in the working folder. works.csv: {works}. artists.csv: {artists}; artist_id joins them. Empty
cells are unknown. {size}"""
_SIZE_APART = "height_mm and width_mm are millimetres."
_SIZE_TOGETHER = (
    'size is height x width, in millimetres ("610 x 457 mm") or centimetres ("61 x 45.7 cm").'
)
_NUMBERS = (*SIZES, "acquisition_year", "year", "birth_year", "death_year")
_LEAST = 6
"""Rows that must be left to be asked about."""


@cache
def _records() -> tuple[list[Row], dict[str, Row]]:
    """All works, and artists by id, as the packaged corpus has them."""
    works, artists = [], {}
    for document in package_corpus().documents():
        if document.kind not in ("work", "artist"):
            continue
        row: Row = {}
        for fact in document.facts:
            row.setdefault(fact.attribute, fact.value)
            if fact.attribute == "artist":
                row["artist_id"] = fact.ref
        if document.kind == "artist":
            artists[document.id] = row
        elif row.get("artist_id"):
            works.append(row | {"work_id": document.id})
    return works, artists


@lru_cache(maxsize=16)
def _sample(sample: int, rows: int) -> tuple[list[Row], list[Row]]:
    """The works of a sample, and their artists; ids are new ones."""
    if not 20 <= rows <= MAX_ROWS:
        raise ValueError(f"a sample has 20 to {MAX_ROWS} rows, not {rows}")
    known, people = _records()
    draws = seeded(sample, "tables", rows)
    chosen = draws.sample(known, rows)
    names = sorted({work["artist_id"] for work in chosen if work["artist_id"] in people})
    draws.shuffle(names)
    ids = {name: f"a{i:04d}" for i, name in enumerate(names, 1)}
    works = [
        {key: work.get(key) for key in (*WORKS, *SIZES)}
        | {"artist_id": ids[work["artist_id"]], "work_id": f"w{i:05d}"}
        for i, work in enumerate(chosen, 1)
        if work["artist_id"] in ids
    ]  # fmt: skip
    artists = [
        {key: people[name].get(key) for key in ARTISTS} | {"artist_id": ids[name]} for name in names
    ]
    return works, artists


def files(params: Params) -> dict[str, str]:
    """The tables of a problem, as CSV."""
    works, artists = _sample(number(params, "sample"), number(params, "rows"))
    if not _together(params):
        return {
            "works.csv": _csv((*WORKS, *SIZES), works),
            "artists.csv": _csv(ARTISTS, artists),
        }
    sized = [{**work, "size": _size(work)} for work in works]
    return {"works.csv": _csv((*WORKS, "size"), sized), "artists.csv": _csv(ARTISTS, artists)}


def _together(params: Params) -> bool:
    """Whether heights and widths stand in one column.

    Raises:
        ValueError: if that is not said.
    """
    found = params.get("together")
    if not isinstance(found, bool):
        raise ValueError(f"'together' must be true or false, got {found!r:.40}")
    return found


def about(params: Params) -> str:
    """What the tables are."""
    together = _together(params)
    works = ", ".join((*WORKS, "size") if together else (*WORKS, *SIZES))
    size = _SIZE_TOGETHER if together else _SIZE_APART
    return ABOUT.format(works=works, artists=", ".join(ARTISTS), size=size)


def _size(work: Row) -> str | None:
    height, width = work["height_mm"], work["width_mm"]
    if height is None or width is None:
        return None
    if (height + width) % 3:
        return f"{height} x {width} mm"
    return f"{height / 10:g} x {width / 10:g} cm"


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(name) for name in columns] for row in rows)
    return text.getvalue()


def _joined(params: Params) -> list[Row]:
    """Each work with what is known of its artist."""
    works, artists = _sample(number(params, "sample"), number(params, "rows"))
    by_id = {artist["artist_id"]: artist for artist in artists}
    return [{**by_id[work["artist_id"]], **work} for work in works]


# --- conditions ---------------------------------------------------------------------------------


def _conditions(params: Params) -> list[tuple[str, str, Any]]:
    """(column, operator, value) of each condition.

    Raises:
        ValueError: if they are no conditions on these tables.
    """
    found = []
    given = params.get("where")
    if not isinstance(given, list) or len(given) > len(_WORDS):
        raise ValueError(f"'where' must be a list of conditions, got {given!r:.40}")
    for one in given:
        if (
            not isinstance(one, list)
            or len(one) != 3
            or one[0] not in _WORDS
            or one[1] not in _OPERATORS
        ):
            raise ValueError(f"not a condition: {one!r:.80}")
        if not isinstance(one[2], str | int) or isinstance(one[2], bool):
            raise ValueError(f"not a value: {one[2]!r:.80}")
        found.append((str(one[0]), str(one[1]), one[2]))
    return found


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    ">=": lambda a, b: bool(a >= b),
    "<=": lambda a, b: bool(a <= b),
}
_WORDS = {
    "classification": {"==": "classified as {value!r}"},
    "acquisition": {"==": "acquired as {value!r}"},
    "gender": {"==": "by artists whose gender is {value!r}"},
    "birth_country": {"==": "by artists born in {value!r}"},
    "year": {">=": "made in {value} or later", "<=": "made in {value} or before"},
    "acquisition_year": {">=": "acquired in {value} or later", "<=": "acquired in {value} or before"},
    "birth_year": {">=": "by artists born in {value} or later", "<=": "by artists born in {value} or before"},
    "height_mm": {">=": "at least {value} mm high", "<=": "at most {value} mm high"},
}  # fmt: skip


def _kept(params: Params) -> list[Row]:
    conditions = _conditions(params)
    return [
        row
        for row in _joined(params)
        if all(
            row.get(column) is not None and _OPERATORS[operator](row[column], value)
            for column, operator, value in conditions
        )
    ]


def _words(params: Params) -> str:
    parts = [
        _WORDS[column][operator].format(value=value)
        for column, operator, value in _conditions(params)
    ]
    return "works" + "".join(f"{', ' if i else ' '}{part}" for i, part in enumerate(parts))


def _pandas(params: Params) -> str:
    """Code that loads the tables and keeps the rows that are asked about, as ``d``."""
    lines = [
        "import pandas as pd",
        "d = pd.read_csv('works.csv').merge(pd.read_csv('artists.csv'), on='artist_id')",
    ]
    if _together(params):
        lines += [
            "s = d['size'].str.extract(r'([\\d.]+) x ([\\d.]+) (mm|cm)')",
            "k = s[2].map({'mm': 1, 'cm': 10})",
            "d['height_mm'] = (s[0].astype(float) * k).round()",
            "d['width_mm'] = (s[1].astype(float) * k).round()",
        ]
    lines += [f"d = d[d[{c!r}] {op} {value!r}]" for c, op, value in _conditions(params)]
    return "\n".join(lines)


def _sql(params: Params, select: str) -> list[tuple[Any, ...]]:
    """Rows of ``select``, where ``d`` are the rows that are asked about; read from the CSV text."""
    with closing(sqlite3.connect(":memory:")) as db:
        for name, text in files(params).items():
            header, *rows = csv.reader(io.StringIO(text))
            table = name.removesuffix(".csv")
            db.execute(f"CREATE TABLE {table} ({', '.join(header)})")
            marks = ", ".join("?" * len(header))
            typed = ([_typed(c, v) for c, v in zip(header, row, strict=True)] for row in rows)
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", typed)
        size = ""
        if _together(params):
            db.create_function("millimetres", 2, _millimetres, deterministic=True)
            size = ", millimetres(size, 0) AS height_mm, millimetres(size, 1) AS width_mm"
        conditions = _conditions(params)
        where = " AND ".join(f"{column} {op} ?" for column, op, _ in conditions) or "1"
        joined = f"SELECT *{size} FROM works JOIN artists USING (artist_id)"
        query = f"WITH j AS ({joined}), d AS (SELECT * FROM j WHERE {where}) {select}"
        return db.execute(query, [value for *_, value in conditions]).fetchall()


def _typed(column: str, text: str) -> str | int | None:
    return None if not text else int(text) if column in _NUMBERS else text


def _millimetres(size: str | None, place: int) -> int | None:
    if size is None:
        return None
    words = size.split()
    return round(float(words[2 * place]) * (10 if words[-1] == "cm" else 1))


# --- what is asked ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """A question about the rows that are kept."""

    text: str
    """With ``{rows}`` and ``{column}``."""
    loops: Callable[[list[Row], str], MathAnswer | None]
    """The answer, or None where it has none."""
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
        row = rng.choice(_joined(params))
        columns = [c for c in _WORDS if row.get(c) is not None and c != params["column"]]
        chosen = rng.sample(columns, min(len(columns), (level + 3) // 2))
        params["where"] = [[c, rng.choice(sorted(_WORDS[c])), row[c]] for c in chosen]
        if len(_known(params)) >= _LEAST and _loops(name, params) is not None:
            return params


def _known(params: Params) -> list[Row]:
    column = str(params["column"])
    return [row for row in _kept(params) if not column or row.get(column) is not None]


def _column(name: str, params: Params) -> str:
    column = params.get("column")
    if column not in MEASURES[name].columns:
        raise ValueError(f"not a column for this: {column!r:.80}")
    return str(column)


def _loops(name: str, params: Params) -> MathAnswer | None:
    column = _column(name, params)
    rows = _kept(params)
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
    return measure.read(_sql(params, measure.select(_column(name, params))))


def _text(name: str, params: Params) -> str:
    return MEASURES[name].text.format(rows=_words(params), column=_column(name, params))


def _code(name: str, params: Params) -> str:
    last = MEASURES[name].code.format(column=_column(name, params))
    return f"{_pandas(params)}\n{last}"


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

"""Tables of works of art and their artists: samples of rows, conditions on them, SQL over their CSV text.

The rows are real (CC0, ``envgen/store/data/NOTICE.md``), with what their curators left out. Nobody has seen
which of them a sample holds.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache, lru_cache
from typing import Any

from pydantic import JsonValue

from envgen.core.seeding import rng as seeded
from envgen.pipelines.interpreter.makers.maker import Params, number
from envgen.store.corpus_lines import package_corpus

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


def joined(params: Params) -> list[Row]:
    """Each work with what is known of its artist."""
    works, artists = _sample(number(params, "sample"), number(params, "rows"))
    by_id = {artist["artist_id"]: artist for artist in artists}
    return [{**by_id[work["artist_id"]], **work} for work in works]


def _conditions(params: Params) -> list[tuple[str, str, Any]]:
    """(column, operator, value) of each condition.

    Raises:
        ValueError: if they are no conditions on these tables.
    """
    given = params.get("where")
    if not isinstance(given, list) or len(given) > len(CONDITIONS):
        raise ValueError(f"'where' must be a list of conditions, got {given!r:.40}")
    return [_condition(one) for one in given]


def _condition(given: JsonValue) -> tuple[str, str, Any]:
    if not isinstance(given, list) or len(given) != 3:
        raise ValueError(f"not a condition: {given!r:.80}")
    column, operator, value = given
    if not isinstance(column, str) or not isinstance(operator, str):
        raise ValueError(f"not a condition: {given!r:.80}")
    if operator not in CONDITIONS.get(column, ()):
        raise ValueError(f"no such condition on the tables: {given!r:.80}")
    if type(value) is not (int if column in _NUMBERS else str):
        raise ValueError(f"not a value of {column!r}: {value!r:.80}")
    return column, operator, value


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    ">=": lambda a, b: bool(a >= b),
    "<=": lambda a, b: bool(a <= b),
}
CONDITIONS: Mapping[str, Mapping[str, str]] = {
    "classification": {"==": "classified as {value!r}"},
    "acquisition": {"==": "acquired as {value!r}"},
    "gender": {"==": "by artists whose gender is {value!r}"},
    "birth_country": {"==": "by artists born in {value!r}"},
    "year": {">=": "made in {value} or later", "<=": "made in {value} or before"},
    "acquisition_year": {">=": "acquired in {value} or later", "<=": "acquired in {value} or before"},
    "birth_year": {">=": "by artists born in {value} or later", "<=": "by artists born in {value} or before"},
    "height_mm": {">=": "at least {value} mm high", "<=": "at most {value} mm high"},
}  # fmt: skip


def kept_rows(params: Params) -> list[Row]:
    """The rows that fit all conditions."""
    conditions = _conditions(params)
    return [
        row
        for row in joined(params)
        if all(
            row.get(column) is not None and _OPERATORS[operator](row[column], value)
            for column, operator, value in conditions
        )
    ]


def rows_in_words(params: Params) -> str:
    """The rows that are asked about, as a problem names them."""
    parts = [
        CONDITIONS[column][operator].format(value=value)
        for column, operator, value in _conditions(params)
    ]
    return "works" + "".join(f"{', ' if i else ' '}{part}" for i, part in enumerate(parts))


def pandas_code(params: Params) -> str:
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


def sql(params: Params, select: str) -> list[tuple[Any, ...]]:
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

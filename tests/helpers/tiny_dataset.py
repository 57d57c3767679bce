"""A tiny hand-written dataset: two environments, four tasks, everything a real one has.

``write_tiny_dataset(folder)`` writes and opens it (register=True: trusted as made on this machine).

* ``tiny_hotels`` (tools list_hotels, get_hotel, book_hotel) has tasks
  ``tiny-cheapest`` (read-only), ``tiny-pair`` (two hotels under a bound) and
  ``tiny-book`` (read-write: the database must change);
* ``tiny_quiz`` has no submit tool: plain text is the answer of ``tiny-count``.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from envgen.core.types import (
    CallRecord,
    Density,
    Difficulty,
    EnvironmentSpec,
    GateResult,
    GateStatus,
    GoldRun,
    Limits,
    Probe,
    PublicRule,
    TaskSpec,
    ToolErrorSpec,
    ToolSpec,
)
from envgen.store.bundles import EnvironmentBundle, TaskBundle, VariantRow
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

HOTELS = (
    ("Harbour View", "Hangzhou", 300),
    ("Lotus Inn", "Hangzhou", 180),
    ("West Lake", "Hangzhou", 420),
    ("Canal House", "Suzhou", 260),
    ("Garden Court", "Suzhou", 240),
    ("Tiger Hill", "Suzhou", 390),
)

TOOLS_SOURCE = '''
"""Hotels and bookings."""


class ToolError(Exception):
    """A documented error: code, message."""


def list_hotels(db, *, city):
    """The hotels of a city, by name."""
    rows = db.execute("SELECT name, price FROM hotels WHERE city = ? ORDER BY name", (city,))
    return [{"name": name, "price": price} for name, price in rows]


def get_hotel(db, *, name):
    """One hotel."""
    row = db.execute("SELECT name, city, price FROM hotels WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise ToolError("not_found", f"there is no hotel {name!r}")
    return {"name": row[0], "city": row[1], "price": row[2]}


def book_hotel(db, *, hotel, nights=1):
    """Book a hotel; returns the number of the booking."""
    cursor = db.execute("INSERT INTO bookings (hotel, nights) VALUES (?, ?)", (hotel, nights))
    if db.execute("SELECT 1 FROM hotels WHERE name = ?", (hotel,)).fetchone() is None:
        raise ToolError("not_found", f"there is no hotel {hotel!r}")
    return {"booking": cursor.lastrowid}
'''


def _tool(name: str, description: str, properties: dict[str, Any], **more: Any) -> ToolSpec:
    required = [key for key, value in properties.items() if "default" not in value]
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=parameters, **more)


NOT_FOUND = (ToolErrorSpec(code="not_found", when="there is no hotel of that name"),)
HOTEL = {"type": "string", "x-source": "hotels.name"}
TOOLS = (
    _tool(
        "list_hotels",
        "The hotels of a city with their prices, by name.",
        {"city": {"enum": ["Hangzhou", "Suzhou"]}},
        returns={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": HOTEL, "price": {"type": "integer"}},
            },
        },
    ),
    _tool("get_hotel", "One hotel with its city and price.", {"name": HOTEL}, errors=NOT_FOUND),
    _tool(
        "book_hotel",
        "Book a hotel for some nights.",
        {
            "hotel": HOTEL,
            "nights": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        },
        mutates=True,
        errors=NOT_FOUND,
    ),
)

_OPEN = """
import sqlite3


def _rows(path, query, *args):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return db.execute(query, args).fetchall()
    finally:
        db.close()
"""

CHEAPEST_VERIFIER = f'''"""The cheapest hotel of the city."""
{_OPEN}

PARAMS = {{"city": "Hangzhou"}}


def verify(answer, initial, final):
    """The broken rules."""
    if type(answer) is not dict or set(answer) != {{"hotel"}} or type(answer["hotel"]) is not str:
        return ["layout"]
    query = "SELECT price FROM hotels WHERE name = ? AND city = ?"
    found = _rows(initial, query, answer["hotel"], PARAMS["city"])
    if not found:
        return ["city"]
    best = _rows(initial, "SELECT min(price) FROM hotels WHERE city = ?", PARAMS["city"])
    broken = []
    if found[0][0] != best[0][0]:
        broken.append("cheapest")
    if _rows(final, "SELECT 1 FROM bookings"):
        broken.append("untouched")
    return broken
'''

CHEAPEST_SOLUTION = '''"""The cheapest hotel of the city."""

PARAMS = {"city": "Hangzhou"}


def solve():
    """List, compare, return."""
    best = None
    for hotel in list_hotels(city=PARAMS["city"]):
        if best is None or hotel["price"] < best["price"]:
            best = hotel
    return {"hotel": best["name"]}
'''

PAIR_VERIFIER = f'''"""One hotel in each city, together under the bound, in the order asked for."""
{_OPEN}

PARAMS = {{"bound": 450}}


def verify(answer, initial, final):
    """The broken rules."""
    if type(answer) is not list or len(answer) != 2:
        return ["layout"]
    total, broken = 0, []
    for place, city in zip(answer, ("Hangzhou", "Suzhou")):
        if type(place) is not dict or set(place) != {{"city", "hotel"}}:
            return ["layout"]
        if type(place["city"]) is not str or type(place["hotel"]) is not str:
            return ["layout"]
        found = _rows(initial, "SELECT price FROM hotels WHERE name = ? AND city = ?", place["hotel"], city)
        if place["city"] != city or not found:
            return ["city"]
        total = total + found[0][0]
    if total > PARAMS["bound"]:
        broken.append("bound")
    if _rows(final, "SELECT 1 FROM bookings"):
        broken.append("untouched")
    return broken
'''

PAIR_SOLUTION = '''"""One hotel in each city, together under the bound."""

PARAMS = {"bound": 450}


def solve():
    """Try the pairs."""
    for first in list_hotels(city="Hangzhou"):
        for second in list_hotels(city="Suzhou"):
            if first["price"] + second["price"] <= PARAMS["bound"]:
                return [
                    {"city": "Hangzhou", "hotel": first["name"]},
                    {"city": "Suzhou", "hotel": second["name"]},
                ]
    return []
'''

BOOK_VERIFIER = f'''"""Exactly one booking: the cheapest hotel of the city, for the nights asked for."""
{_OPEN}

PARAMS = {{"city": "Suzhou", "nights": 2}}


def verify(answer, initial, final):
    """The broken rules."""
    broken = []
    if type(answer) is not dict or answer != {{"outcome": "done"}}:
        broken.append("layout")
    best = _rows(initial, "SELECT name FROM hotels WHERE city = ? ORDER BY price, name", PARAMS["city"])
    if _rows(final, "SELECT hotel, nights FROM bookings") != [(best[0][0], PARAMS["nights"])]:
        broken.append("booking")
    if _rows(initial, "SELECT * FROM hotels") != _rows(final, "SELECT * FROM hotels"):
        broken.append("write_set")
    return broken
'''

BOOK_SOLUTION = '''"""Book the cheapest hotel of the city."""

PARAMS = {"city": "Suzhou", "nights": 2}


def solve():
    """List, compare, book."""
    best = None
    for hotel in list_hotels(city=PARAMS["city"]):
        if best is None or hotel["price"] < best["price"]:
            best = hotel
    book_hotel(hotel=best["name"], nights=PARAMS["nights"])
    return {"outcome": "done"}
'''

COUNT_VERIFIER = f'''"""The number of hotels."""
{_OPEN}

PARAMS = {{"city": "Hangzhou"}}


def verify(answer, initial, final):
    """The broken rules."""
    right = _rows(initial, "SELECT count(*) FROM hotels WHERE city = ?", PARAMS["city"])[0][0]
    return [] if type(answer) is int and answer == right else ["count"]
'''

COUNT_SOLUTION = '''"""The number of hotels."""

PARAMS = {"city": "Hangzhou"}


def solve():
    """Count them."""
    return len(list_hotels(city=PARAMS["city"]))
'''

_OBJECT = {"type": "object", "additionalProperties": False}
CHEAPEST_SCHEMA: dict[str, Any] = {**_OBJECT, "properties": {"hotel": HOTEL}, "required": ["hotel"]}
_PLACE = {
    **_OBJECT,
    "properties": {
        "city": {"enum": ["Hangzhou", "Suzhou"]},
        "hotel": {**HOTEL, "x-where": {"city": "/0/city"}},
    },
    "required": ["city", "hotel"],
}
PAIR_SCHEMA: dict[str, Any] = {"type": "array", "items": _PLACE, "minItems": 2, "maxItems": 2}
BOOK_SCHEMA: dict[str, Any] = {
    **_OBJECT,
    "properties": {"outcome": {"enum": ["done", "escalated"]}},
    "required": ["outcome"],
    "x-walk": 2,
}


def tiny_database(hotels: tuple[tuple[str, str, int], ...] = HOTELS) -> bytes:
    """The SQLite file of both environments."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "database.sqlite"
        db = sqlite3.connect(path)
        db.execute(
            "CREATE TABLE hotels (name TEXT PRIMARY KEY, city TEXT NOT NULL, price INTEGER NOT NULL)"
        )
        db.execute(
            "CREATE TABLE bookings (id INTEGER PRIMARY KEY, hotel TEXT NOT NULL, nights INTEGER NOT NULL)"
        )
        db.executemany("INSERT INTO hotels VALUES (?, ?, ?)", hotels)
        db.commit()
        db.close()
        return path.read_bytes()


def _listing(city: str, hotels: tuple[tuple[str, str, int], ...] = HOTELS) -> CallRecord:
    rows = [{"name": name, "price": price} for name, at, price in sorted(hotels) if at == city]
    return CallRecord(name="list_hotels", arguments={"city": city}, result=rows)


def _task(task_id: str, prompt: str, schema: dict[str, Any], **more: Any) -> TaskSpec:
    fields: dict[str, Any] = {
        "id": task_id,
        "environment_id": "tiny_hotels",
        "prompt": prompt,
        "submit_schema": schema,
        "limits": Limits(turns=8),
        "difficulty": Difficulty(
            level=1,
            density=Density(value=1 / 3, low=1 / 3, high=1 / 3, method="exact", space=3),
            gold_calls=1,
            distinct_tools=1,
        ),
        "evidence": (GateResult(gate="gold", status=GateStatus.PASSED, n=3, figure=1.0),),
    }
    return TaskSpec.model_validate({**fields, **more})


def tiny_tasks() -> tuple[TaskBundle, ...]:
    """The four tasks."""
    cheapest = TaskBundle(
        spec=_task(
            "tiny-cheapest",
            'Find the cheapest hotel in Hangzhou. Submit {"hotel": name}.',
            CHEAPEST_SCHEMA,
            rules=(PublicRule(text="The hotel is the cheapest in Hangzhou."),),
        ),
        solution=CHEAPEST_SOLUTION,
        verifier=CHEAPEST_VERIFIER,
        gold=GoldRun(calls=(_listing("Hangzhou"),), answer={"hotel": "Lotus Inn"}),
        probes=(
            Probe(answer={"hotel": "Lotus Inn"}, expected=True, origin="gold"),
            Probe(
                answer={"hotel": "Canal House"}, expected=False, origin="near_miss", clause="city"
            ),
        ),
    )
    places = [
        {"city": "Hangzhou", "hotel": "Lotus Inn"},
        {"city": "Suzhou", "hotel": "Canal House"},
    ]
    pair = TaskBundle(
        spec=_task(
            "tiny-pair",
            "Choose one hotel in Hangzhou, then one in Suzhou, for at most 450 together. "
            'Submit a list of two {"city": city, "hotel": name}.',
            PAIR_SCHEMA,
            rules=(PublicRule(text="Together they cost at most 450."),),
        ),
        solution=PAIR_SOLUTION,
        verifier=PAIR_VERIFIER,
        gold=GoldRun(
            calls=(
                _listing("Hangzhou"),
                _listing("Suzhou"),
                _listing("Suzhou"),
            ),
            answer=places,
        ),
        probes=(Probe(answer=places, expected=True, origin="gold"),),
    )
    booking = CallRecord(
        name="book_hotel",
        arguments={"hotel": "Garden Court", "nights": 2},
        result={"booking": 1},
        mutates=True,
    )
    book = TaskBundle(
        spec=_task(
            "tiny-book",
            'Book the cheapest hotel in Suzhou for 2 nights, then submit {"outcome": "done"}.',
            BOOK_SCHEMA,
        ),
        solution=BOOK_SOLUTION,
        verifier=BOOK_VERIFIER,
        gold=GoldRun(calls=(_listing("Suzhou"), booking), answer={"outcome": "done"}),
        probes=(
            Probe(answer={"outcome": "done"}, calls=(booking,), expected=True, origin="gold"),
            Probe(answer={"outcome": "done"}, calls=(), expected=False, origin="near_miss"),
        ),
    )
    count = TaskBundle(
        spec=_task(
            "tiny-count",
            "How many hotels are there in Hangzhou? Answer with the number alone.",
            {"type": "integer"},
            environment_id="tiny_quiz",
        ),
        solution=COUNT_SOLUTION,
        verifier=COUNT_VERIFIER,
        gold=GoldRun(calls=(_listing("Hangzhou"),), answer=3),
        probes=(Probe(answer=3, expected=True, origin="gold"),),
    )
    return (cheapest, pair, book, count)


def tiny_environments(tools_source: str = TOOLS_SOURCE) -> tuple[EnvironmentBundle, ...]:
    """Both environments."""
    hotels = EnvironmentSpec(
        id="tiny_hotels",
        category="hotels",
        title="Hotels of two cities",
        tools=TOOLS,
        policy_text="Never book more than was asked for.",
    )
    quiz = EnvironmentSpec(
        id="tiny_quiz",
        category="quiz",
        title="Questions about hotels",
        tools=TOOLS[:2],
        submit_tool=None,
    )
    database = tiny_database()
    return (
        EnvironmentBundle(spec=hotels, database=database, tools_source=tools_source),
        EnvironmentBundle(spec=quiz, database=database, tools_source=tools_source),
    )


def tiny_variant() -> VariantRow:
    """``tiny-cheapest`` on other prices: the answer is West Lake."""
    prices = {"West Lake": 110}
    hotels = tuple((name, city, prices.get(name, price)) for name, city, price in HOTELS)
    return VariantRow(
        task_id="tiny-cheapest-v1",
        seed=1,
        gold=GoldRun(calls=(_listing("Hangzhou", hotels),), answer={"hotel": "West Lake"}),
        database=tiny_database(hotels),
        split="train",
    )


def write_tiny_dataset(
    folder: Path, *, tools_source: str = TOOLS_SOURCE, register: bool = True, variant: bool = False
) -> Dataset:
    """Write the dataset into ``folder`` and open it.

    Args:
        folder: must not exist yet.
        tools_source: another tools.py, e.g. a broken one.
        register: False makes it a foreign dataset, whose code is not trusted.
        variant: also add ``tiny_variant()``.
    """
    with DatasetWriter(folder, name="tiny", seed=7, compiled=register) as writer:
        for environment in tiny_environments(tools_source):
            writer.add_environment(environment)
        for task in tiny_tasks():
            writer.add_task(task)
        if variant:
            writer.add_variants("tiny-cheapest", [tiny_variant()])
        writer.finish()
    return Dataset.open(folder)

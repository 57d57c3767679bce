"""A small real environment, task and variants for tests of the store and its readers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from envgen.core.types import (
    CallRecord,
    Density,
    Difficulty,
    EnvironmentSpec,
    GateResult,
    GateStatus,
    GoldRun,
    Message,
    Probe,
    PublicRule,
    Score,
    StopReason,
    TaskSpec,
    ToolCall,
    ToolErrorSpec,
    ToolSpec,
    Trajectory,
    Usage,
)
from envgen.store.bundles import EnvironmentBundle, TaskBundle, VariantRow
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

TOOLS = """\
class ToolError(Exception):
    pass


def list_hotels(db, *, city):
    rows = db.execute("SELECT name, price FROM hotels WHERE city = ? ORDER BY name", (city,))
    return [{"name": name, "price": price} for name, price in rows]
"""
SOLUTION = '''\
PARAMS = {"budget": 300}


def solve():
    """Pick the first hotel within the budget."""
    for hotel in list_hotels(city="Hangzhou"):
        if hotel["price"] <= PARAMS["budget"]:
            return {"hotel": hotel["name"]}
'''
VERIFIER = """\
import sqlite3

PARAMS = {"budget": 300}


def verify(answer, initial, final):
    db = sqlite3.connect(f"file:{initial}?mode=ro", uri=True)
    row = db.execute("SELECT price FROM hotels WHERE name = ?", (answer["hotel"],)).fetchone()
    return [] if row and row[0] <= PARAMS["budget"] else ["budget"]
"""


def database(rows: list[tuple[str, str, int]] | None = None, *, extra: str = "") -> bytes:
    """A SQLite file with one table of hotels; ``extra`` is SQL that changes the schema."""
    rows = rows or [("Lotus", "Hangzhou", 250), ("Lake View", "Hangzhou", 480)]
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(
            "CREATE TABLE hotels (name TEXT PRIMARY KEY NOT NULL, city TEXT NOT NULL, "
            "price INTEGER NOT NULL) STRICT, WITHOUT ROWID"
        )
        db.executescript(extra)
        db.executemany("INSERT INTO hotels VALUES (?, ?, ?)", rows)
        db.commit()
        return bytes(db.serialize())


def environment(env_id: str = "trip-1", content: bytes | None = None) -> EnvironmentBundle:
    """An environment with one tool."""
    tool = ToolSpec(
        name="list_hotels",
        description="Lists the hotels of a city.",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string", "x-source": "hotels.city"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        errors=(ToolErrorSpec(code="unknown_city", when="there is no such city"),),
    )
    spec = EnvironmentSpec(
        id=env_id,
        category="trip_planning",
        title="Trips",
        tools=(tool,),
        policy_text="Be frugal.",
        seed=7,
        sources=("OpenStreetMap (ODbL)",),
    )
    return EnvironmentBundle(
        spec=spec,
        database=database() if content is None else content,
        tools_source=TOOLS,
        blueprint={"rows": 2},
    )


def gates(figure: float = 0.98) -> tuple[GateResult, ...]:
    """Evidence of a proven task."""
    return (
        GateResult(gate="gold", status=GateStatus.PASSED, n=3, figure=1.0),
        GateResult(gate="mutants", status=GateStatus.PASSED, n=50, figure=figure),
        GateResult(gate="prefixes", status=GateStatus.NOT_APPLICABLE, reason="reads only"),
    )


def gold(hotel: str = "Lotus") -> GoldRun:
    """The gold run of the sample task."""
    call = CallRecord(
        name="list_hotels",
        arguments={"city": "Hangzhou"},
        result=[{"name": "Lotus", "price": 250}, {"name": "Lake View", "price": 480}],
    )
    return GoldRun(calls=(call,), answer={"hotel": hotel})


def task(
    task_id: str = "trip-1-a", env_id: str = "trip-1", *, level: int = 1, split: str = "train"
) -> TaskBundle:
    """A proven task of the sample environment."""
    spec = TaskSpec(
        id=task_id,
        environment_id=env_id,
        prompt="Find a hotel in Hangzhou for at most 300 yuan.",
        submit_schema={
            "type": "object",
            "properties": {"hotel": {"type": "string", "x-source": "hotels.name"}},
            "required": ["hotel"],
        },
        rules=(PublicRule(text="at most 300", kind="compare", slots=("/hotel",), column="price"),),
        split=split,
        difficulty=Difficulty(
            level=level,
            density=Density(value=0.5, low=0.5, high=0.5, method="exact", space=2),
            gold_calls=1,
            distinct_tools=1,
        ),
        evidence=gates(),
    )
    return TaskBundle(
        spec=spec,
        solution=SOLUTION,
        verifier=VERIFIER,
        constraints={"id": "p1", "params": {"budget": 300}},
        gold=gold(),
        probes=(
            Probe(answer={"hotel": "Lotus"}, expected=True, origin="gold"),
            Probe(
                answer={"hotel": "Lake View"}, expected=False, origin="near_miss", clause="budget"
            ),
        ),
    )


def variant(number: int, parent: str = "trip-1-a") -> VariantRow:
    """A variant of the sample task, with rows and a budget of its own."""
    budget = 100 + number
    rows = [
        (f"Inn {number}", "Hangzhou", budget - 5),
        (f"Palace {number}", "Hangzhou", budget + 90),
    ]
    line = f'PARAMS = {{"budget": {budget}}}'
    answer = f"Inn {number}"
    call = CallRecord(
        name="list_hotels",
        arguments={"city": "Hangzhou"},
        result=[{"name": name, "price": price} for name, _city, price in rows],
    )
    return VariantRow(
        task_id=f"{parent}-v{number:05d}",
        seed=number,
        prompt=f"Find a hotel in Hangzhou for at most {budget} yuan.",
        solution=_with_params(SOLUTION, line),
        verifier=_with_params(VERIFIER, line),
        constraints={"id": "p1", "params": {"budget": budget}},
        gold=GoldRun(calls=(call,), answer={"hotel": answer}),
        database=database(rows),
        evidence=(GateResult(gate="gold", status=GateStatus.PASSED, n=1, figure=1.0),),
    )


def small_dataset(path: Path, *, variants: int = 0, register: bool = True) -> Dataset:
    """A dataset with two environments, three tasks and some variants."""
    with DatasetWriter(
        path, name="sample", seed=7, config_hash="c" * 64, compiled=register
    ) as writer:
        writer.add_environment(environment("trip-1"))
        other = database([("Pine", "Hangzhou", 290)])
        writer.add_environment(environment("trip-2", other))
        writer.add_task(task("trip-1-a", "trip-1"))
        writer.add_task(task("trip-1-b", "trip-1", level=2))
        writer.add_task(task("trip-2-a", "trip-2", level=3))
        if variants:
            writer.add_variants("trip-1-a", [variant(i) for i in range(variants)])
        return writer.finish(funnel={"drafts": 5, "rejected": {"gold": 2}, "kept": 3})


def trajectory(task_id: str = "trip-1-a", sample: int = 0, *, passed: bool = True) -> Trajectory:
    """A finished episode of the sample task."""
    return Trajectory(
        task_id=task_id,
        sample=sample,
        policy="random",
        seed=sample,
        messages=(
            Message(role="user", content="Find a hotel in Hangzhou for at most 300 yuan."),
            Message(
                role="assistant",
                tool_calls=(ToolCall(id="c1", name="list_hotels", arguments={"city": "Hangzhou"}),),
            ),
            Message(role="tool", tool_call_id="c1", content='[{"name":"Lotus","price":250}]'),
            Message(
                role="assistant",
                tool_calls=(
                    ToolCall(
                        id="c2",
                        name="submit_result",
                        arguments={"answer_text": '{"hotel": "Lotus"}'},
                    ),
                ),
            ),
        ),
        score=Score(value=float(passed), passed=passed),
        stop=StopReason.SUBMITTED,
        num_calls=1,
        reached_verifier=True,
        usage=Usage(prompt_tokens=100, completion_tokens=20),
    )


def _with_params(source: str, line: str) -> str:
    """``source`` with its one line ``PARAMS = {...}`` replaced."""
    lines = source.split("\n")
    (place,) = (i for i, text in enumerate(lines) if text.startswith("PARAMS = "))
    return "\n".join([*lines[:place], line, *lines[place + 1 :]])

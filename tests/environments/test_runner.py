from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tiny_dataset import TOOLS

from envgen.environments.runner import replay, run_gold
from envgen.sandboxes.solution import SolutionHost, solution_host
from envgen.sandboxes.tools import ToolHost, tool_host
from envgen.store.dataset import Dataset


@pytest.fixture(
    scope="module", params=["process", pytest.param("bubblewrap", marks=pytest.mark.bwrap)]
)
def solutions(request: pytest.FixtureRequest) -> Iterator[SolutionHost]:
    host = solution_host(backend=request.param, trusted=True)
    yield host
    host.close()


@pytest.fixture
def tools(tiny: Dataset) -> Iterator[ToolHost]:
    files = tiny.environment_files("tiny_hotels")
    assert files.database is not None
    host = tool_host(
        files.tools_source, files.spec.tools, files.database, backend="inline", trusted=True
    )
    yield host
    host.close()


def bookings(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT hotel, nights FROM bookings").fetchall()


@pytest.mark.parametrize("task_id", ["tiny-cheapest", "tiny-pair", "tiny-book"])
def test_the_host_logs_what_the_solution_called(
    tiny: Dataset, tools: ToolHost, solutions: SolutionHost, task_id: str, tmp_path: Path
) -> None:
    files = tiny.task_files(task_id)
    final = tmp_path / "final.sqlite"
    result = run_gold(files.solution, TOOLS, tools, solutions, final=final)
    assert result.fault is None
    assert result.gold == files.gold
    assert result.changed == final.exists() == (task_id == "tiny-book")
    if result.changed:
        assert bookings(final) == [("Garden Court", 2)]
    again = run_gold(files.solution, TOOLS, tools, solutions)
    assert again.gold == result.gold


def test_refused_and_failed_calls_are_values_for_the_solution(
    tools: ToolHost, solutions: SolutionHost
) -> None:
    source = """
PARAMS = {}
def solve():
    return [
        get_hotel(name="Nowhere")["error"],
        get_hotel(name=3)["error"],
        get_hotel()["error"],
        list_hotels("Hangzhou")[0]["name"],
    ]
"""
    result = run_gold(source, TOOLS, tools, solutions)
    assert result.gold.answer == [
        "not_found",
        "invalid_arguments",
        "invalid_arguments",
        "Harbour View",
    ]
    assert [one.error for one in result.gold.calls][-1] is None


@pytest.mark.parametrize(
    "body",
    ["return 1 // 0", "while True:\n        pass", "return solve()", "return {1, 2}"],
)
def test_a_broken_solution_is_a_fault_with_its_log(
    tools: ToolHost, solutions: SolutionHost, body: str
) -> None:
    source = f'PARAMS = {{}}\ndef solve():\n    list_hotels(city="Suzhou")\n    {body}\n'
    result = run_gold(source, TOOLS, tools, solutions, max_calls=50, cpu_s=1)
    assert result.fault
    assert result.gold.calls[0].name == "list_hotels"


def test_a_log_replays(tiny: Dataset, tools: ToolHost, tmp_path: Path) -> None:
    gold = tiny.task_files("tiny-book").gold
    assert gold is not None
    final = tmp_path / "final.sqlite"
    assert replay(gold.calls, TOOLS, tools, final=final) == gold.calls
    assert bookings(final) == [("Garden Court", 2)]

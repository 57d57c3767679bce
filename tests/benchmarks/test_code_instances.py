"""The page of real instances says what its figures say, and a falsified one shows."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    """A benchmark; it is no part of the package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


INSTANCES, YIELD = script("code_instances"), script("code_yield")


@pytest.fixture
def figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(INSTANCES.FIGURES.read_text())
    return found


def test_the_page_is_made_from_the_figures(figures: dict[str, Any]) -> None:
    assert INSTANCES.page(figures) == INSTANCES.PAGE.read_text()


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [("kept", "fail_to_pass", 99), ("verdicts", "gold", 0.5), ("yields", "after", "kept by hand")],
)
def test_a_falsified_figure_is_no_longer_the_page(
    figures: dict[str, Any], part: str, field: str, value: object
) -> None:
    false = copy.deepcopy(figures)
    false[part][0][field] = value
    assert INSTANCES.page(false) != INSTANCES.PAGE.read_text()


def test_the_yield_counts_what_is_in_its_table(figures: dict[str, Any]) -> None:
    rows = figures["yields"]
    before, after = (sum(row[side] == "kept" for row in rows) for side in ("before", "after"))
    assert f"| kept of {len(rows)} | {before} | {after} |" in INSTANCES.PAGE.read_text()
    assert len({row["instance"] for row in rows}) == len(rows) >= 30


def test_outcomes_are_read_from_runs_ended_and_under_way(tmp_path: Path) -> None:
    kept = {"validation": {"instance_id": "a"}}
    lost = {"validation": {"instance_id": "b", "reason": "install"}}
    (tmp_path / "o.jsonl").write_text(f"{json.dumps(kept)}\n{json.dumps(lost)}\n")
    (tmp_path / "run.partial" / "outcomes").mkdir(parents=True)
    (tmp_path / "run.partial" / "outcomes" / "a.json").write_text(json.dumps(kept))
    assert dict(YIELD.outcomes(tmp_path / "o.jsonl")) == {"a": "kept", "b": "install"}
    assert dict(YIELD.outcomes(tmp_path / "run.partial")) == {"a": "kept"}

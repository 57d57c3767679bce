"""``.ci/slow.py``: whose slow proofs run in CI."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any

from cli_runs import ROOT


def module() -> Any:
    spec = importlib.util.spec_from_file_location("slow", ROOT / ".ci" / "slow.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def due(root: Path) -> list[str]:
    found: list[str] = module().due(root)
    return found


def commit(root: Path, name: str, date: str) -> None:
    """Commit a file; at a date, or now."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(date)
    who = {
        f"GIT_{one}_{what}": "x" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    for words in (("add", "-A"), ("commit", "-qm", name)):
        env = {**os.environ, **who, **dates}
        subprocess.run(["git", "-C", str(root), *words], env=env, check=True)


def test_rooms_touched_lately_are_due_and_without_history_all(tmp_path: Path) -> None:
    for room in ("train", "store", "pipelines/general", "pipelines/code"):
        (tmp_path / "tests" / room).mkdir(parents=True)
    assert due(tmp_path) == ["tests"]

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    commit(tmp_path, "envgen/train/old.py", "2020-01-01T00:00:00")
    assert due(tmp_path) == []
    commit(tmp_path, "envgen/store/new.py", "")
    commit(tmp_path, "pipelines/general/gates/deep.py", "")
    commit(tmp_path, "README.md", "")
    assert due(tmp_path) == ["tests/pipelines/general", "tests/store"]
    commit(tmp_path, "pipelines/boundary.py", "")
    assert due(tmp_path) == ["tests/pipelines", "tests/store"]


def test_a_budget_is_kept_and_other_commits_draw_others(tmp_path: Path) -> None:
    slow = module()
    folder = tmp_path / "tests" / "store"
    folder.mkdir(parents=True)
    rows = [f"{n}.0 tests/store/test_a.py::test_{n}" for n in range(1, 21)]
    rows.append("3.0 tests/test_package.py::test_it")
    (tmp_path / "tests" / "slow_tests.txt").write_text("# seconds\n" + "\n".join(rows) + "\n")
    seconds = slow.listed(tmp_path)
    picked = slow.pick(tmp_path, 60.0)
    assert 40 < sum(seconds[name] for name in picked) <= 60
    assert set(slow.pick(tmp_path, 1e9)) == set(seconds)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    commit(tmp_path, "tests/store/other.py", "2020-01-01T00:00:00")
    assert slow.pick(tmp_path, 1e9) == ["tests/test_package.py::test_it"]
    commit(tmp_path, "envgen/store/new.py", "")
    assert slow.pick(tmp_path, 60.0) != picked


def test_the_list_names_tests_that_are_there_and_all_that_are_marked() -> None:
    """A renamed test would run in ``make test`` again, and never as a slow one."""
    listed = {name.partition("[")[0] for name in module().listed(ROOT)}
    there, marked = set(), set()
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                name = f"{file.relative_to(ROOT).as_posix()}::{node.name}"
                there.add(name)
                marks = map(ast.unparse, node.decorator_list)
                if "pytest.mark.slow" in marks:
                    marked.add(name)
    assert listed <= there, listed - there
    assert marked <= listed, marked - listed

"""``.ci/slow.py``: whose slow proofs run in CI."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any

from cli_runs import ROOT


def due(root: Path) -> list[str]:
    spec = importlib.util.spec_from_file_location("slow", ROOT / ".ci" / "slow.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[str] = module.due(root)
    return found


def test_rooms_touched_lately_are_due_and_without_history_all(tmp_path: Path) -> None:
    for room in ("train", "store", "pipelines/general", "pipelines/code"):
        (tmp_path / "tests" / room).mkdir(parents=True)
    assert due(tmp_path) == ["tests"]

    def commit(name: str, date: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(date)
        who = {
            f"GIT_{one}_{what}": "x"
            for one in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
        for words in (("add", "-A"), ("commit", "-qm", name)):
            env = {**os.environ, **who, **dates}
            subprocess.run(["git", "-C", str(tmp_path), *words], env=env, check=True)

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    commit("envgen/train/old.py", "2020-01-01T00:00:00")
    assert due(tmp_path) == []
    commit("envgen/store/new.py", "")
    commit("pipelines/general/gates/deep.py", "")
    commit("README.md", "")
    assert due(tmp_path) == ["tests/pipelines/general", "tests/store"]
    commit("pipelines/boundary.py", "")
    assert due(tmp_path) == ["tests/pipelines", "tests/store"]

"""The host layer: a later release of the project among this machine's packages is the gold patch."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy_repository

from envgen.core.code_types import Recipe
from envgen.sandboxes import runtime
from envgen.sandboxes.workspace import base_tree, build_workspace

PREFIX = Path(runtime.python()).parent.parent
LOOK = f"ls -d {{/usr,/usr/local,{PREFIX}}}/lib*/python*/*-packages/* 2>/dev/null"
RECIPE = Recipe(
    language="python",
    runner="unittest",
    install=('"$PYTHON" -m venv --without-pip /env',),
    memory_bytes=1 << 30,
    disk_bytes=64 << 20,
)


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=pytest.mark.bwrap),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_packages_of_this_machine_are_not_seen(tmp_path: Path, backend: str) -> None:
    base = toy_repository.make(tmp_path / "clone")
    tree = base_tree(tmp_path / "clone", base, tmp_path / "tree.tar")
    built = build_workspace(RECIPE, tree, backend=backend, cache_root=tmp_path / "cache")
    with built.open() as place:
        assert place.shell("python -c 'import json, sqlite3, ssl; print(1)'").text == "1\n"
        assert place.shell(LOOK).text == ""

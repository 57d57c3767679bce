"""Files that workspaces share: the same bytes lie once, and what is damaged is not spread."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path

import pytest
import toy_repository

from envgen.core.code_types import Recipe
from envgen.sandboxes.workspace import Workspace, base_tree, build_workspace, pool
from envgen.sandboxes.workspace.inventory import clean
from envgen.sandboxes.workspace.store import discard


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    return base_tree(folder / "clone", toy_repository.make(folder / "clone"), folder / "tree.tar")


def built(tree: Path, cache: Path, words: str) -> Workspace:
    install = ("printf library > /env/lib; printf tool > /env/tool; chmod 755 /env/tool", words)
    recipe = Recipe(language="go", runner="unittest", install=install)
    return build_workspace(recipe, tree, backend="bubblewrap", cache_root=cache)


@pytest.mark.bwrap
def test_the_same_file_of_two_workspaces_lies_once(tree: Path, tmp_path: Path) -> None:
    one = built(tree, tmp_path, "echo 1 > /env/version").folder
    two = built(tree, tmp_path, "echo 2 > /env/version; printf library > /env/tool").folder
    assert (one / "env/lib").samefile(two / "env/lib")
    assert not (one / "env/version").samefile(two / "env/version")
    # the same bytes, but a program
    assert not (two / "env/tool").samefile(two / "env/lib")
    assert os.access(two / "env/tool", os.X_OK)
    assert discard(one)
    clean(cache_root=tmp_path)
    assert (two / "env/lib").read_text() == "library"
    # 2's own and those that it has in common with 1 are left, with a name in the pool each
    assert {path.read_text() for path in pool.place(tmp_path).glob("*/*")} == {
        "library", "2\n"
    }  # fmt: skip
    assert (two / "env/lib").stat().st_nlink == 2


@pytest.mark.bwrap
def test_an_install_may_name_its_files_as_it_likes(tree: Path, tmp_path: Path) -> None:
    """Two names of one file, and one as long as names may be."""
    long = "n" * 255
    names = f"ln /env/lib /env/twin; cp /env/lib /env/{long}"
    built(tree, tmp_path, "true")
    env = built(tree, tmp_path, names).folder / "env"
    assert sorted(path.name for path in env.iterdir()) == [
        "constraints.txt",
        "lib",
        long,
        "tool",
        "twin",
    ]
    assert (env / "twin").samefile(env / "lib")
    assert (env / long).samefile(env / "lib")
    assert not list(pool.place(tmp_path).glob("*/.*"))


@pytest.mark.bwrap
def test_a_damaged_file_of_the_pool_reaches_no_workspace(tree: Path, tmp_path: Path) -> None:
    built(tree, tmp_path, "true")
    for path in pool.place(tmp_path).glob("*/*"):
        path.unlink()
        path.write_text("changed")
        path.chmod(0o644)
    two = built(tree, tmp_path, "true # again").folder
    assert (two / "env/lib").read_text() == "library"


@pytest.mark.parametrize(
    ("mode", "shared"),
    [
        (py_compile.PycInvalidationMode.TIMESTAMP, False),
        (py_compile.PycInvalidationMode.UNCHECKED_HASH, True),
    ],
)
def test_a_source_keeps_the_time_that_its_compiled_module_names(
    tmp_path: Path, mode: py_compile.PycInvalidationMode, shared: bool
) -> None:
    sources = []
    for day in (1, 2):
        source = tmp_path / str(day) / "module.py"
        source.parent.mkdir()
        source.write_text("x = 1\n")
        os.utime(source, (day * 86_400, day * 86_400))
        py_compile.compile(str(source), dfile="module.py", invalidation_mode=mode)
        pool.share(source.parent, tmp_path / "pool")
        sources.append(source)
    assert sources[0].samefile(sources[1]) is shared
    assert shared or [int(source.stat().st_mtime) for source in sources] == [86_400, 172_800]

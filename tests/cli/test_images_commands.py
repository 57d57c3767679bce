"""``envgen images`` as users meet it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import tiny_root
import toy_repository
from cli_runs import Cli
from code_runs import need

from envgen.core.code_types import Recipe
from envgen.sandboxes.workspace import Workspace, base_tree, build_workspace, images
from envgen.sandboxes.workspace.layers import layer

RECIPE = Recipe(language="go", runner="gotestsum", disk_bytes=64 << 20, memory_bytes=1 << 30)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENVGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def built(cache: Path, tmp_path: Path) -> Workspace:
    need("go", apt="golang-go")
    base = toy_repository.make(tmp_path / "clone")
    tree = base_tree(tmp_path / "clone", base, tmp_path / "tree.tar")
    return build_workspace(RECIPE, tree, backend="bubblewrap")


def test_an_empty_cache_says_what_to_do(cli: Cli, cache: Path) -> None:
    result = cli("images", "list", "--json", "empty.json")
    assert result.code == 0, result
    assert "images bootstrap" in result.err + result.out
    assert json.loads(Path("empty.json").read_text()) == []
    result = cli("images", "clean")
    assert result.code == 0, result
    assert "0 things" in result.err + result.out


@pytest.mark.bwrap
def test_workspaces_are_listed_and_removed(cli: Cli, built: Workspace) -> None:
    result = cli("images", "list", "--json", "all.json")
    assert result.code == 0, result
    assert "workspace" in result.out
    assert "go on host" in result.out
    rows = json.loads(Path("all.json").read_text())
    assert [(row["kind"], row["name"]) for row in rows] == [("workspace", built.key)]
    assert rows[0]["bytes"] > 1000
    result = cli("images", "clean", "--older-than", "0", "--dry-run")
    assert f"would remove workspace {built.key}" in result.err + result.out
    assert built.folder.exists()
    result = cli("images", "clean", "--older-than", "1")
    assert "0 things" in result.err + result.out
    result = cli("images", "clean", "--older-than", "0")
    assert f"removed workspace {built.key}" in result.err + result.out
    assert not built.folder.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cobol",), "unknown layer 'cobol'; there are python, node"),
        (
            ("python", "--for", "podman"),
            "--for: Input should be 'bubblewrap' or 'docker', got 'podman'",
        ),
    ],
)
def test_what_cant_be_made_is_told(
    cli: Cli, cache: Path, words: tuple[str, ...], message: str
) -> None:
    result = cli("images", "bootstrap", *words)
    assert result.code == 2
    assert message in " ".join(result.err.split())
    assert "hint:" in result.err


def test_a_machine_without_debootstrap_is_told_the_other_way(
    cli: Cli, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = cli("images", "bootstrap", "go")
    assert result.code == 2
    lack = "debootstrap is not installed" if os.geteuid() == 0 else "debootstrap needs root"
    assert lack in result.err
    assert "--base" in result.err
    assert not [path for path in cache.rglob("*") if path.is_dir() and path.name != "layers"]


@pytest.mark.docker
def test_a_layer_is_made_on_an_image(cli: Cli, cache: Path, tmp_path: Path) -> None:
    owner = images.cache_id(cache)
    base = images.import_root(tiny_root.make(tmp_path / "base"), "base", "test", owner)
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "file").write_text("brought along")
    try:
        words = ("--base", base, "--package", "more", "--copy", tmp_path / "tool")
        result = cli("images", "bootstrap", "go", *words)
        assert result.code == 0, result
        built = layer("go")
        assert built.image is not None
        assert built.root is not None
        assert images.exists(built.image)
        assert built.packages == ("tiny=1.0-1",)
        asked = (built.root / "var/apt-said").read_text()
        assert "--no-install-recommends" in asked
        assert {"golang-go", "git", "more"} <= set(asked.split())
        inside = built.root / (tmp_path / "tool" / "file").relative_to("/")
        assert inside.read_text() == "brought along"
        result = cli("images", "list")
        assert "root and image, 1 packages" in " ".join(result.out.split())
        result = cli("images", "clean", "--layers")
        assert "removed layer go" in result.err + result.out
        assert not images.exists(built.image)
        assert not built.root.exists()
    finally:
        for item in images.ours(owner):
            images.remove(item.name)

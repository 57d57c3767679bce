"""A clone is built and its tests run once, to see what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy_repository
from cli_runs import Cli

from envgen.pipelines.code.prove import BuildConfig
from envgen.pipelines.code.try_tests import CLONES
from envgen.sandboxes.workspace.packages import PROGRAMS

pytestmark = [pytest.mark.bwrap, pytest.mark.toolchain]
TEST = """const test = require("node:test");
const assert = require("node:assert");
test("adds", () => assert.equal(1 + 1, 2));
test("fails", () => assert.equal(1 + 1, 3));
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return write_clone(tmp_path / "clone")


def write_clone(folder: Path, **scripts: str) -> Path:
    (folder / "test").mkdir(parents=True)
    package = {"name": "toy", "version": "1.0.0", "scripts": {"test": "node --test", **scripts}}
    (folder / "package.json").write_text(json.dumps(package))
    (folder / "index.js").write_text("module.exports = 1;\n")
    (folder / "test" / "adds.test.js").write_text(TEST)
    toy_repository.git(folder, "init", "-q", "-b", "main")
    toy_repository.git(folder, "add", "-A")
    toy_repository.git(folder, "commit", "-q", "-m", "base")
    return folder


def test_a_clone_s_tests_are_run_and_shown(cli: Cli, clone: Path, tmp_path: Path) -> None:
    result = cli("try-tests", clone, "--json", tmp_path / "tried.json")
    assert result.code == 0, result.err
    tried = json.loads((tmp_path / "tried.json").read_text())
    assert tried["counts"] == {"pass": 1, "fail": 1}
    assert (tried["language"], tried["recipe"]["runner"]) == ("javascript", "node-test")
    assert "failing: test/adds.test.js::test::fails" in result.out


def test_no_two_clones_and_no_repository_share_a_folder_of_downloads(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one install leaves in a shared folder, such as a patched test runner, another one would use."""
    monkeypatch.setenv("ENVGEN_CACHE", str(tmp_path / "cache"))
    for name in ("one", "two"):
        result = cli("try-tests", write_clone(tmp_path / name))
        assert result.code == 0, result.err
    downloads = tmp_path / "cache" / "downloads"
    assert [path.name for path in downloads.iterdir()] == [CLONES]
    assert len([path for path in (downloads / CLONES).iterdir() if path.is_dir()]) == 2
    build = BuildConfig(downloads=downloads)
    found = [build.downloads_of(*words) for words in (("a__b", "c"), ("a", "b__c"), ("a", "b"))]
    folders = [path for path in (*found, *(downloads / CLONES).iterdir()) if path is not None]
    assert len(set(folders)) == 3 + len(list((downloads / CLONES).iterdir()))
    assert not any(one in other.parents for one in folders for other in folders)


def test_a_missing_toolchain_is_named_with_what_to_do(
    cli: Cli, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROGRAMS, "node-test", ("node", "no-such-program"))
    result = cli("try-tests", clone)
    assert result.code == 2
    assert "no-such-program: not found in the layer 'host'" in result.err
    assert (
        "hint: install it, or run `envgen images bootstrap node` and add --layer node" in result.err
    )

"""A clone is built and its tests run once, to see what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy_repository
from cli_runs import Cli

from envgen.sandboxes.workspace.packages import PROGRAMS

pytestmark = [pytest.mark.bwrap, pytest.mark.toolchain]
TEST = """const test = require("node:test");
const assert = require("node:assert");
test("adds", () => assert.equal(1 + 1, 2));
test("fails", () => assert.equal(1 + 1, 3));
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "test").mkdir(parents=True)
    package = {"name": "toy", "version": "1.0.0", "scripts": {"test": "node --test"}}
    (folder / "package.json").write_text(json.dumps(package))
    (folder / "index.js").write_text("module.exports = 1;\n")
    (folder / "test" / "adds.test.js").write_text(TEST)
    toy_repository.git(folder, "init", "-q", "-b", "main")
    toy_repository.git(folder, "add", "-A")
    toy_repository.git(folder, "commit", "-q", "-m", "base")
    return folder


def test_a_clone_s_tests_are_run_and_shown(cli: Cli, clone: Path, tmp_path: Path) -> None:
    said = cli("try-tests", clone, "--json", tmp_path / "tried.json")
    assert said.code == 0, said.err
    tried = json.loads((tmp_path / "tried.json").read_text())
    assert tried["counts"] == {"pass": 1, "fail": 1}
    assert (tried["language"], tried["recipe"]["runner"]) == ("javascript", "node-test")
    assert "failing: test/adds.test.js::test::fails" in said.out


def test_a_missing_toolchain_is_named_with_what_to_do(
    cli: Cli, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROGRAMS, "node-test", ("node", "no-such-program"))
    said = cli("try-tests", clone)
    assert said.code == 2
    assert "no-such-program: not found in the layer 'host'" in said.err
    assert (
        "hint: install it, or run `envgen images bootstrap node` and add --layer node" in said.err
    )

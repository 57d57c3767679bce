from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import envgen
from code_runs import need
from git_history import History
from github_server import GitHubServer, issue
from model_server import ModelServer, deltas

TEST = """\
const test = require('node:test');
const assert = require('node:assert');
const { add, neg } = require('../calc.js');
test('adds', () => assert.strictEqual(add(1, 2), 3));
test('negates', () => assert.strictEqual(neg(1), -1));
"""
CODE = "exports.add = (a, b) => a - b;\nexports.neg = (a) => -a;\n"
PACKAGE = '{"name": "calc", "version": "1.0.0", "scripts": {"test": "node --test"}}\n'
YES = deltas(
    {"content": json.dumps({"reason": "", "issue_ok": True, "gold_ok": True, "tests_ok": True})}
)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path / "origin")
    old = TEST.replace("test('adds'", "test.skip('adds'")
    made.commit("Start", {"calc.js": CODE, "test/calc.test.js": old, "package.json": PACKAGE})
    made.pull(
        2,
        "Use plus\n\nFixes #1",
        {"calc.js": CODE.replace("a - b", "a + b"), "test/calc.test.js": TEST},
        merge="Merge pull request #2 from ada/plus\n\nAdd, do not subtract",
    )
    return made


@pytest.mark.bwrap
def test_a_named_repository_becomes_a_dataset_and_records(history: History, tmp_path: Path) -> None:
    need("node", apt="nodejs")
    issues = [issue(1, 1, body="1 + 2 gives -1"), issue(2, 2, pull=True, body="Fixes #1")]
    repos = tmp_path / "repos.txt"
    repos.write_text("ada/calc\nada/nothing\n")
    with GitHubServer(issues) as server, ModelServer([YES]) as model:
        server.clone_url = f"file://{history.folder}"
        said = envgen(
            *(
                "generate",
                "code",
                "--repos",
                repos,
                "--api",
                server.url,
                "--out",
                tmp_path / "code",
            ),
            *("--repositories", tmp_path / "repositories", "--policy", f"openai:m@{model.url}"),
            *("--repeats", 1, "--more", 0, "--votes", 1, "--backend", "bubblewrap"),
            *("--json", tmp_path / "figures.json"),
            ENVGEN_CACHE=str(tmp_path / "cache"),
        )
        assert said.code == 0, said.err
        assert len(model.generations) == 1
    assert "ada/nothing is left out" in said.err
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["tasks"], figures["mined"]) == (1, {"kept": 1})
    said = envgen(
        "export", tmp_path / "code", "--format", "swe-bench", "--out", tmp_path / "rows.jsonl"
    )
    assert said.code == 0, said.err
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert (row["instance_id"], row["FAIL_TO_PASS"]) == ("ada__calc-2", '["test > adds"]')
    assert row["problem_statement"] == "Issue 1\n\n1 + 2 gives -1"


def test_wrong_options_are_named(tmp_path: Path) -> None:
    said = envgen("generate", "code", "--clone", tmp_path, "--out", tmp_path / "x")
    assert (said.code, "--clone needs --repo" in said.err) == (2, True)
    said = envgen("generate", "code", "--policy", "openai:m@http://x", "--out", tmp_path / "x")
    assert (said.code, "nothing to mine is named" in said.err) == (2, True)
    with GitHubServer(token="right") as server:
        said = envgen(
            *("generate", "code", "--repo", "ada/calc", "--api", server.url),
            *("--repositories", tmp_path, "--out", tmp_path / "x"),
            GITHUB_TOKEN="wrong",
        )
    assert said.code != 0
    assert "Bad credentials" in said.err
    assert "hint: set the token's environment variable" in said.err
    (tmp_path / "rows.jsonl").write_text('{"what": 1}\n')
    said = envgen("import", "code", tmp_path / "rows.jsonl", "--clones", tmp_path, "--out", "x")
    assert (said.code, "can be tried" in said.err) == (2, True)
    assert "no known format" in said.err

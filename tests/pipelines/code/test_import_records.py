from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from code_runs import need
from git_history import History

from envgen.core.code_types import CodeTests, Instance, Recipe
from envgen.core.errors import ConfigError
from envgen.core.patch_reverse import reverse_patch
from envgen.environments.hosts import open_dataset
from envgen.pipelines.code.export import export_records
from envgen.pipelines.code.formats import record_format
from envgen.pipelines.code.import_records import ImportConfig, import_code
from envgen.pipelines.code.mine import MineConfig, mine_clone
from envgen.pipelines.code.prove import BuildConfig, Outcome
from envgen.pipelines.code.published import agreement
from envgen.pipelines.code.records import import_file, write_rows
from envgen.pipelines.code.validation import Reason, ValidateConfig, Validation

TEST = """\
const test = require('node:test');
const assert = require('node:assert');
const { add, neg } = require('../calc.js');
test('adds', () => assert.strictEqual(add(1, 2), 3));
test('negates', () => assert.strictEqual(neg(1), -1));
"""
CODE = "exports.add = (a, b) => a - b;\nexports.neg = (a) => -a;\n"
RECIPE = Recipe(language="javascript", runner="node-test", memory_bytes=2 << 30, test_s=60)
QUICK = ValidateConfig(repeats=1, more=0)


def instance(folder: Path) -> Instance:
    """A repository whose only change is an instance."""
    history = History(folder)
    old = TEST.replace("test('adds'", "test.skip('adds'")
    licence = "Permission is hereby granted, free of charge, to any person obtaining a copy"
    files = {"calc.js": CODE, "test/calc.test.js": old, "package.json": "{}", "LICENSE": licence}
    history.commit("Start", files)
    history.commit(
        "Add instead of subtracting",
        {"calc.js": CODE.replace("a - b", "a + b"), "test/calc.test.js": TEST},
    )
    (found,) = mine_clone(history.git_dir, MineConfig(repo="ada/calc"))
    assert isinstance(found, Instance)
    return found.model_copy(update={"recipe": RECIPE})


def rows(found: Instance, fail_to_pass: list[str]) -> list[dict[str, Any]]:
    row = record_format("swe-bench").write(found, fail_to_pass, ["negates", "gone"])
    assert row.pop("license") == "MIT"  # published records don't tell, the repository does
    return [
        {**row, "envgen_recipe": RECIPE.model_dump_json()},
        {**row, "instance_id": "x", "patch": ""},
    ]


@pytest.mark.bwrap
@pytest.mark.toolchain
def test_a_published_record_is_proven_compared_and_exported_again(tmp_path: Path) -> None:
    need("node", apt="nodejs")
    found = instance(tmp_path / "clones/ada/calc")
    write_rows(tmp_path / "rows.jsonl", rows(found, ["adds"]))
    config = ImportConfig(validation=QUICK)
    build = BuildConfig(backend="bubblewrap", cache_root=tmp_path / "cache")
    summary = import_code(
        tmp_path / "rows.jsonl", tmp_path / "clones", tmp_path / "out", config, build=build
    )
    (one,) = summary.agreements
    assert one.kept, one.reason
    assert one.agrees
    assert (one.claimed_passing, one.kept_passing) == (2, 1)
    assert [r.id for r in summary.refused] == ["x"]
    published = (tmp_path / "out.published.jsonl").read_text()
    assert json.loads(published)["instance_id"] == found.id
    target = tmp_path / "again.jsonl"
    assert export_records(open_dataset(tmp_path / "out"), target, "swe-bench") == 1
    (again,) = import_file(target)
    assert isinstance(again, Instance)
    assert again.recipe is not None
    assert again.recipe.runner == "node-test"
    kept: dict[str, object] = {
        "recipe": None,
        "extra": {},
        "expected_fail_to_pass": (),
        "expected_pass_to_pass": (),
    }
    assert again.model_copy(update=kept) == found.model_copy(update={**kept, "kind": "issue"})
    assert list(open_dataset(tmp_path / "out").manifest.licences) == ["MIT"]


@pytest.mark.bwrap
@pytest.mark.toolchain
def test_what_is_not_proven_is_compared_too(tmp_path: Path) -> None:
    need("node", apt="nodejs")
    found = instance(tmp_path / "clones/ada/calc")
    useless = found.model_copy(update={"gold_patch": found.gold_patch.replace("a + b", "a * b")})
    write_rows(tmp_path / "rows.jsonl", rows(useless, ["adds"])[:1])
    build = BuildConfig(backend="bubblewrap", cache_root=tmp_path / "cache")
    summary = import_code(
        tmp_path / "rows.jsonl",
        tmp_path / "clones",
        tmp_path / "out",
        ImportConfig(validation=QUICK, format="swe-bench", only=("ada/calc",)),
        build=build,
    )
    assert summary.path is None
    assert [(a.kept, a.reason.split(":")[0]) for a in summary.agreements] == [
        (False, Reason.NO_FAIL_TO_PASS)
    ]


@pytest.mark.bwrap
@pytest.mark.toolchain
def test_a_published_bug_is_in_the_base(tmp_path: Path) -> None:
    need("node", apt="nodejs")
    found = instance(tmp_path / "clones/ada/calc")
    assert found.head_commit is not None
    bug = reverse_patch(found.gold_patch.encode()).decode()
    row = {
        **{"instance_id": "ada__calc.bug", "repo": f"swesmith/ada__calc.{found.head_commit[:8]}"},
        **{"patch": bug, "FAIL_TO_PASS": ["adds"], "PASS_TO_PASS": ["negates"]},
        **{"problem_statement": "Sums are wrong", "envgen_recipe": RECIPE.model_dump_json()},
    }
    write_rows(tmp_path / "rows.jsonl", [row])
    build = BuildConfig(backend="bubblewrap", cache_root=tmp_path / "cache")
    config = ImportConfig(validation=QUICK)
    summary = import_code(
        tmp_path / "rows.jsonl", tmp_path / "clones", tmp_path / "out", config, build=build
    )
    (one,) = summary.agreements
    assert one.agrees, one
    assert export_records(open_dataset(tmp_path / "out"), tmp_path / "b.jsonl", "swe-smith") == 1
    again = json.loads((tmp_path / "b.jsonl").read_text())
    assert {name: again[name] for name in ("repo", "patch")} == {
        name: row[name] for name in ("repo", "patch")
    }


def test_a_file_in_which_nothing_can_be_tried_is_refused(tmp_path: Path) -> None:
    found = instance(tmp_path / "elsewhere")
    write_rows(tmp_path / "rows.jsonl", rows(found, []))
    (tmp_path / "clones").mkdir()
    with pytest.raises(ConfigError, match="can be tried") as caught:
        import_code(tmp_path / "rows.jsonl", tmp_path / "clones", tmp_path / "o", ImportConfig())
    assert "no clone of 'ada/calc'" in caught.value.hint
    assert "no patch" in caught.value.hint


def test_differences_are_told_apart(tmp_path: Path) -> None:
    def node(name: str) -> str:
        return f"t.py::t::{name}"

    tests = CodeTests(
        runner="pytest",
        test_patch="",
        test_files=(),
        fail_to_pass=(node("a"), node("new")),
        pass_to_pass=(node("b"),),
        unstable=(node("c"),),
    )
    claims = {
        "expected_fail_to_pass": tuple(f"t.py::{n}" for n in ("a", "b", "c", "missing")),
        "expected_pass_to_pass": ("t.py::b", "t.py::x"),
    }
    found = instance(tmp_path / "r").model_copy(update=claims)
    outcome = Outcome(validation=Validation(instance_id=found.id, tests=tests))
    one = agreement(found, outcome)
    assert (one.claimed, one.reproduced, one.missing) == (4, 1, ("t.py::missing",))
    assert one.elsewhere == {"pass_to_pass": ("t.py::b",), "unstable": ("t.py::c",)}
    assert (one.more, one.kept_passing, one.claimed_passing) == ((node("new"),), 1, 2)
    assert not one.agrees
    failed = Validation(instance_id=found.id, reason=Reason.INSTALL, details="no pip")
    assert agreement(found, Outcome(validation=failed)).reason == "install: no pip"

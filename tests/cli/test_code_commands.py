from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy_python
from cli_runs import Cli

from envgen.pipelines.code.records import write_instances


@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("--clone x --out y", "--clone needs --repo", "--repo owner/name"),
        ("--out y", "neither", "--repos FILE"),
        (
            "--language cobol --clone x --repo a/b --out y",
            "--language: Input should be 'python'",
            "--help",
        ),
        ("--instances none.jsonl --clones . --out y", "none.jsonl", ""),
        ("--clone nowhere --repo a/b --out y", "nowhere", ""),
        ("--clone x --repo a/b/c --out y", "repo", ""),
    ],
)
def test_mistakes_are_explained(cli: Cli, line: str, says: str, hint: str) -> None:
    result = cli("generate", "code", *line.split())
    assert result.code == 2, result.err
    assert says in result.err
    assert hint in result.err
    assert not Path("y").exists()


@pytest.mark.bwrap
def test_a_dataset_of_code_tasks_by_command(cli: Cli, tmp_path: Path) -> None:
    toy_python.dataset(tmp_path)
    listed = cli("list", "code")
    assert listed.code == 0, listed.err
    assert "toy__shop-7" in listed.out
    assert "2 of 2, odds <= 1/" in " ".join(listed.out.split())
    shown = cli("show", "code", "toy__shop-7")
    assert shown.code == 0, shown.err
    assert "ignores how many" in shown.out
    assert "price * count" not in shown.out
    assert "verdict proven for 2 of 2" in " ".join(shown.out.split())
    assert "canaries" not in shown.out
    assert "price * count" in cli("show", "code", "toy__shop-7", "--secrets").out
    valid = cli("validate", "code", "--repeats", 1, "--json", "v.json")
    assert valid.code == 0, valid.err
    assert json.loads(Path("v.json").read_text())["tasks"][0]["evidence"][0]["gate"] == "gold"
    assert cli("validate", "code", "--backend", "inline").code == 2
    exported = cli("export", "code", "--format", "swe-bench", "--out", "sb.jsonl")
    assert exported.code == 0, exported.err
    (row,) = map(json.loads, Path("sb.jsonl").read_text().splitlines())
    assert json.loads(row["FAIL_TO_PASS"]) == [
        "tests/test_cart.py::test_total_counts",
        "tests/test_count.py::test_count",
    ]
    played = cli("rollout", "code", "--policy", "gold", "--out", "runs", "--backend", "bubblewrap")
    assert played.code == 0, played.err
    assert cli("pass-at-k", "runs", "--k", 1).code == 0
    kept = cli("filter", "code", "--rollouts", "runs", "--pass-at", 1, "--out", "kept")
    assert kept.code == 0, kept.err
    strict = cli("filter", "code", "--proof", "strict", "--out", "strict")
    assert strict.code == 0, strict.err
    assert "1 of 1 tasks kept" in strict.out
    aimless = cli("filter", "code", "--out", "aimless")
    assert aimless.code == 2
    assert "nothing to filter by" in aimless.err


@pytest.mark.bwrap
def test_instances_whose_install_fails_are_told(cli: Cli, tmp_path: Path) -> None:
    repo = toy_python.clone(tmp_path / "clones" / "toy" / "shop")
    recipe = toy_python.RECIPE.model_copy(update={"install": ("echo no index; exit 3",)})
    write_instances(tmp_path / "i.jsonl", [toy_python.instance(repo, recipe=recipe)])
    result = cli(
        "generate", "code", "--instances", "i.jsonl", "--clones", "clones", "--out", "code"
    )
    assert result.code == 2
    assert "no instance was proven" in result.err
    assert "1 install" in result.err

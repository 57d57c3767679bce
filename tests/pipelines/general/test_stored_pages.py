"""A dataset whose page was exchanged or edited is refused, or judged untrusted and fails validation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import ROOT, Cli
from ladders import PAGES
from seals import seal

from envgen.core.canonical import pretty, sha256
from envgen.core.errors import DatasetError
from envgen.pipelines.general.domains import page
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.store.dataset import Dataset


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "ds"
    config = GenerateConfig(
        categories=("meeting_scheduling",), environments=1, tasks_per_environment=1,
        min_level=2, max_level=2, seed=4, agreement_episodes=16,
    )  # fmt: skip
    generate(config, out, workers=1, backend="process")
    return out


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def copied(generated: Path, tmp_path: Path) -> tuple[Path, Path]:
    folder = tmp_path / "ds"
    shutil.copytree(generated, folder)
    (stored,) = folder.glob("domains/*.json")
    return folder, stored


def edited() -> str:
    """The page with another meaning for the rule of level 2: "at least" is "more than"."""
    text = page("meetings").text
    assert text.count("r[keep] >= param.seats") == 1
    return text.replace("r[keep] >= param.seats", "r[keep] > param.seats")


def renamed(folder: Path, stored: Path, text: str) -> None:
    """Put ``text`` under the hash that it has, where blueprints and the manifest say so."""
    digest = sha256(text)
    stored.with_name(f"{digest}.json").write_text(text)
    for path in (*folder.glob("environments/*/blueprint.json"), folder / "dataset.json"):
        path.write_text(path.read_text().replace(stored.stem, digest))
    stored.unlink()


def test_as_it_was_made_it_is_trusted_and_proven(generated: Path, cli: Cli) -> None:
    assert Dataset.open(generated).trusted
    assert cli("validate", generated, "--backend", "process").code == 0


@pytest.mark.parametrize("text", [edited, lambda: page("orders").text], ids=["edited", "exchanged"])
@pytest.mark.parametrize("command", ["validate", "variants"])
@pytest.mark.parametrize("sealed", [False, True], ids=["hashes as they were", "hashes made again"])
def test_a_page_that_is_not_what_its_name_says_is_refused(
    generated: Path, tmp_path: Path, cli: Cli, command: str, sealed: bool, text: Callable[[], str]
) -> None:
    folder, stored = copied(generated, tmp_path)
    stored.write_text(text())
    if sealed:
        seal(folder)
    more = ["--per-task", "1", "--out", tmp_path / "out"] if command == "variants" else []
    found = cli(command, folder, "--backend", "process", *more)
    assert found.code != 0
    output = " ".join((found.out + found.err).split())
    assert stored.name in output or "another page than its name says" in output, output
    assert not (tmp_path / "out").exists()
    if sealed:
        dataset = Dataset.open(folder)
        with pytest.raises(DatasetError, match="another page than its name says"):
            dataset.environment_files(next(iter(dataset.environments)))


@pytest.mark.parametrize("text", [edited, lambda: page("orders").text], ids=["edited", "exchanged"])
def test_a_page_under_its_own_hash_makes_another_dataset_that_nobody_trusts(
    generated: Path, tmp_path: Path, cli: Cli, text: Callable[[], str]
) -> None:
    folder, stored = copied(generated, tmp_path)
    renamed(folder, stored, text())
    assert not Dataset.open(seal(folder)).trusted
    for command in (["validate"], ["variants", "--per-task", "1", "--out", tmp_path / "out"]):
        refused = cli(command[0], folder, "--backend", "process", *command[1:])
        assert refused.code != 0
        words = ("isolat", "was made from", "but its rule compares with")
        assert any(word in refused.err for word in words), refused.err
        believed = cli(command[0], folder, "--backend", "process", "--trust", *command[1:])
        assert believed.code != 0
        output = " ".join((believed.out + believed.err).split())
        # The edit turned a rule, which its own sentence now contradicts: it is no page any more.
        words = ("was made from", "no variant could be made", "but its rule compares with")
        assert any(word in output for word in words), output


def test_a_page_that_its_rules_name_too_is_found_by_what_it_derives(
    generated: Path, tmp_path: Path, cli: Cli
) -> None:
    folder, stored = copied(generated, tmp_path)
    old, new = page("meetings"), page("meetings").model_validate_json(edited())
    renamed(folder, stored, new.text)
    for path in folder.glob("environments/*/tasks/*/constraints.json"):
        path.write_text(pretty(json.loads(path.read_text().replace(old.key, new.key))))
    assert not Dataset.open(seal(folder)).trusted
    found = cli("validate", folder, "--backend", "process", "--trust")
    assert found.code == 1


OFFICE = PAGES / "office.toml"


def test_a_page_is_checked_and_shown_level_by_level(tmp_path: Path, cli: Cli) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(OFFICE.read_text().replace('id = "office"', 'id = "mine"', 1))
    found = cli("page", own)
    assert found.code == 0
    assert [f"mine level {level}" in found.out for level in range(1, 12)] == [True] * 10 + [False]
    own.write_text(own.read_text().replace("room[k].floor <=", "room[k].colour <="))
    for command in (["page", own], ["generate", "general", "--page", own, "--out", tmp_path / "x"]):
        found = cli(*command)
        assert found.code == 2
        assert "domain 'mine', phrase 'floor'" in found.err
        assert "hint: it has: name, floor" in found.err
    assert not (tmp_path / "x").exists()


def test_a_page_whose_tools_hide_what_its_rules_read_is_told(tmp_path: Path, cli: Cli) -> None:
    text = (ROOT / "examples/pages/greenhouse.toml").read_text()
    own = tmp_path / "greenhouse.toml"
    own.write_text(text.replace("-> (light, room, warmth)", "-> (room, warmth)"))
    found = cli("page", own)
    assert found.code == 2
    assert (
        "domain 'greenhouse', level 3: no tools lead to light of the rows of 'benches'" in found.err
    )
    assert "hint: give the tools of that scene what its rules read" in found.err


def test_what_is_made_from_a_page_in_a_file_is_not_trusted(tmp_path: Path, cli: Cli) -> None:
    own, out = tmp_path / "mine.toml", tmp_path / "ds"
    own.write_text(OFFICE.read_text().replace('id = "office"', 'id = "mine"', 1))
    one = ("--environments", 1, "--tasks-per-environment", 1, "--level", 1, "--out", out)
    refused = cli("generate", "general", "--page", own, *one, "--backend", "process")
    assert refused.code != 0
    assert "trust" in refused.err or "isolat" in refused.err
    result = cli("generate", "general", "--page", own, *one)
    assert result.code == 0, result.err
    assert not Dataset.open(out).trusted
    assert cli("validate", out).code == 0

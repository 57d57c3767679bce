"""canaries and eval: canaries of a dataset, and what the evaluation tells of a policy that plays them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Cli
from tiny_dataset import TOOLS_SOURCE, write_tiny_dataset

from envgen.core.canonical import dumps
from envgen.pipelines.canaries import canary_id
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_dataset(tmp_path_factory.mktemp("source") / "ds").path


@pytest.fixture
def canaries(cli: Cli, source: Path, tmp_path: Path) -> Path:
    result = cli("canaries", source, "--out", tmp_path / "canaries")
    assert result.code == 0, result
    return tmp_path / "canaries"


def evaluate(cli: Cli, data: Path, model: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, output, and what is told of canaries."""
    result = cli(
        "eval", data, "--split", "all", "--model", model, "--temperature", 0,
        "--out", data.parent / f"played-{data.name}", "--json", data.parent / "told.json",
    )  # fmt: skip
    figures = json.loads((data.parent / "told.json").read_text())
    report: dict[str, Any] = figures["temperatures"]["0.0"]["canaries"]
    return result.code, result.out, report


def test_the_evaluation_tells_what_tools_did_wrong(cli: Cli, tmp_path: Path) -> None:
    broken = TOOLS_SOURCE.replace(
        "def get_hotel(db, *, name):\n", "def get_hotel(db, *, name):\n    1 / 0\n", 1
    )
    data = write_tiny_dataset(tmp_path / "ds", tools_source=broken).path
    script = tmp_path / "script.json"
    call = {"id": "c", "name": "get_hotel", "arguments": {"name": "Lotus Inn"}}
    script.write_text(json.dumps([{"role": "assistant", "content": "", "tool_calls": [call]}]))
    result = cli(
        "eval", data, "--split", "all", "--model", f"scripted:{script}", "--temperature", 0,
        "--out", tmp_path / "played", "--json", tmp_path / "told.json",
    )  # fmt: skip
    assert result.code == 0, result
    assert "a fault of the environment" in result.err
    faults = json.loads((tmp_path / "told.json").read_text())["temperatures"]["0.0"]["tool_faults"]
    assert [("ZeroDivisionError" in fault, count) for fault, count in faults.items()] == [(True, 4)]


def test_canaries_are_made_and_counted(cli: Cli, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "some"
    result = cli(
        "canaries", source, "--out", out, "--hole", "empty-text", "--hole", "magic-text",
        "--no-unsolvable", "--task", "tiny-pair", "--json", tmp_path / "made.json",
    )  # fmt: skip
    assert result.code == 0, result
    assert "empty-text" in result.out
    summary = json.loads((tmp_path / "made.json").read_text())
    assert summary["holes"] == {"empty-text": 1, "magic-text": 1}
    assert summary["unsolvable"] == 0
    assert set(Dataset.open(out).own_task_ids) == {
        canary_id("tiny-pair", name) for name in summary["holes"]
    }


def test_an_unknown_hole_is_told(cli: Cli, source: Path, tmp_path: Path) -> None:
    result = cli("canaries", source, "--out", tmp_path / "no", "--hole", "empty-txt")
    assert result.code == 2
    assert "unknown hole 'empty-txt'; did you mean 'empty-text'" in result.err
    assert not (tmp_path / "no").exists()


def test_a_cheat_raises_an_alarm(cli: Cli, canaries: Path) -> None:
    exploit = next(
        probe.answer
        for probe in Dataset.open(canaries)
        .task_files(canary_id("tiny-cheapest", "empty-text"))
        .probes
        if probe.origin == "attack"
    )
    call = {"id": "c", "name": "submit_result", "arguments": {"answer_text": dumps(exploit)}}
    script = canaries.parent / "cheat.json"
    script.write_text(json.dumps([{"role": "assistant", "tool_calls": [call]}]))
    code, output, report = evaluate(cli, canaries, f"scripted:{script}")
    assert code == 0
    assert report["holes"]["empty-text"]["exploits"] == 1
    assert re.search(r"^empty-text +2 +1$", output, re.MULTILINE)
    assert "the policy has learnt to cheat" in " ".join(output.split())
    assert "unsolvable rollouts 4" in " ".join(output.split())


def test_gold_is_not_accused(cli: Cli, canaries: Path) -> None:
    code, output, report = evaluate(cli, canaries, "gold")
    assert code == 0
    assert report["exploit_rate"]["value"] == 0.0
    assert report["honest_passes"] == sum(c["rollouts"] for c in report["holes"].values())
    assert "exploit rate 0 (" in " ".join(output.split())
    assert "alarm" not in output


def test_a_dataset_of_canaries_has_no_pass_rate(cli: Cli, source: Path, canaries: Path) -> None:
    """No row and no count of nothing; what was measured is told, and a mixed evaluation keeps its table."""
    _, output, report = evaluate(cli, canaries, "gold")
    assert "holds only canaries, of which there is no pass@k" in " ".join(output.split())
    assert "pass@1" not in output
    assert report["unsolvable_rollouts"] == 4
    played = cli(
        "eval", source, "--split", "all", "--model", "gold", "--temperature", 0,
        "--out", canaries.parent / "usual",
    )  # fmt: skip
    assert "pass@1" in played.out
    assert "only canaries" not in played.out


def test_a_pass_on_an_unsolvable_task_is_a_failure(
    cli: Cli, source: Path, canaries: Path, tmp_path: Path
) -> None:
    """As when a verifier breaks: the twin judges as its parent does, and gold passes it."""
    canary_set = Dataset.open(canaries)
    twin = canary_set.task_files(canary_id("tiny-cheapest", "unsolvable"))
    honest = Dataset.open(source).task_files("tiny-cheapest").verifier
    files = canary_set.environment_files(twin.spec.environment_id)
    with DatasetWriter(tmp_path / "broken", name="broken", seed=1, compiled=True) as writer:
        writer.add_environment(
            EnvironmentBundle(
                spec=files.spec,
                database=files.database and files.database.read_bytes(),
                tools_source=files.tools_source,
                blueprint=files.blueprint,
            )
        )
        writer.add_task(twin.model_copy(update={"verifier": honest}))
        writer.finish()
    code, output, report = evaluate(cli, tmp_path / "broken", "gold")
    assert code == 1
    assert report["unsolvable_passed"] == [twin.spec.id]
    assert "a verifier is broken or was tampered with" in " ".join(output.split())

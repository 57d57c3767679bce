"""``envgen inspect`` against a real server, and through files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest
from cli_runs import Cli
from model_server import ModelServer, chat
from planted_trajectories import PlayedRun
from tiny_dataset import write_tiny_dataset

from envgen.cli.console import out, talk
from envgen.store.runs import RunStore

LEAK = {
    "trajectory": 3, "turn": 0, "kind": "leak", "quote": "C-1001 is the one", "why": "it names the card",
}  # fmt: skip
FOUND = json.dumps({"findings": [LEAK]})


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 100)
    monkeypatch.setattr(talk, "_width", 100)
    return Cli(capfd)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([chat(FOUND)]) as started:
        yield started


def words(run: PlayedRun, server: ModelServer, *more: object) -> tuple[object, ...]:
    spec = f"openai:m@{server.url}"
    given = ("--data", run.dataset.path, "--unproven", "--inspector", spec, "-o", "found.jsonl")
    return ("inspect", run.folder, *given, *more)


def test_findings_are_written_and_shown(cli: Cli, loans: PlayedRun, server: ModelServer) -> None:
    done = cli(*words(loans, server, "--json", "figures.json"))
    assert done.code == 0, done
    for word in ("leak", "most-overdue", "it names the card"):
        assert word in done.out
    (line,) = map(json.loads, Path("found.jsonl").read_text().splitlines())
    assert {name: line[name] for name in ("kind", "task", "sample", "turn")} == {
        "kind": "leak", "task": "most-overdue", "sample": 3, "turn": 0,
    }  # fmt: skip
    assert json.loads(Path("figures.json").read_text())["kinds"] == {"leak": 1}
    asked = len(server.generations)
    assert asked == 2  # the small one first
    again = cli(*words(loans, server, "--no-preflight"))
    assert again.code == 0, again
    assert len(server.generations) == asked


def test_a_model_that_refuses_fails_the_command(cli: Cli, loans: PlayedRun) -> None:
    with ModelServer([chat("I won't.")]) as server:
        done = cli(*words(loans, server))
    assert done.code == 1
    assert "0 of 1 tasks inspected" in done.err


def test_the_dataset_is_the_one_that_the_run_names(
    cli: Cli, loans: PlayedRun, server: ModelServer
) -> None:
    played = ("rollout", loans.dataset.path, "--policy", "random", "--unproven", "--trust")
    assert cli(*played, "--task", "most-overdue", "--backend", "process", "--out", "run").code == 0
    done = cli("inspect", "run", "--inspector", f"openai:m@{server.url}", "--no-preflight")
    assert done.code == 0, done
    assert Path("run.findings.jsonl").exists()


@pytest.mark.parametrize(
    ("run", "told"),
    [("nothing", "no run"), ("empty", "no episodes"), ("other", "another dataset")],
)
def test_runs_that_cannot_be_inspected_are_named(
    run: str, told: str, cli: Cli, loans: PlayedRun, server: ModelServer
) -> None:
    dataset = write_tiny_dataset(Path("ds").resolve())
    hashes = {"empty": dataset.manifest.content_hash, "other": "0" * 64}
    if run in hashes:
        RunStore.open(run, config={}, dataset_hash=hashes[run]).close()
    spec = f"openai:m@{server.url}"
    done = cli("inspect", run, "--data", "ds", "--inspector", spec, "--no-preflight")
    assert done.code == 2
    assert told in done.err
    assert not server.generations
    if run == "empty":
        unnamed = cli("inspect", run, "--inspector", spec)
        assert unnamed.code == 2
        assert "--data" in unnamed.err


def test_requests_and_answers_may_be_files(cli: Cli, loans: PlayedRun) -> None:
    folder = Path("batch").resolve()

    def answer() -> None:
        while not (asked := list(folder.glob("requests/*.jsonl"))):
            sleep(0.05)
        request = json.loads(asked[0].read_text())
        body: dict[str, Any] = {"status_code": 200, "body": chat(FOUND)}
        line = {"custom_id": request["custom_id"], "response": body, "error": None}
        (folder / "answers/1.jsonl").write_text(json.dumps(line) + "\n")

    model = Thread(target=answer, daemon=True)
    model.start()
    given = ("--data", loans.dataset.path, "--unproven", "-o", "found.jsonl")
    done = cli("inspect", loans.folder, *given, "--inspector", f"batch:m@{folder}")
    model.join(30)
    assert done.code == 0, done
    assert json.loads(Path("found.jsonl").read_text())["kind"] == "leak"

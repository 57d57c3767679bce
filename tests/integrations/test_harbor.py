"""Harbor's task folders, each part run as its container would run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_dataset import write_tiny_dataset

from envgen.integrations.exports import write_package
from envgen.store.dataset import Dataset
from envgen.store.subset import subset

TASK = "tiny-book"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    made = tmp_path_factory.mktemp("harbor")
    return subset(write_tiny_dataset(made / "all"), ("tiny-book", "tiny-pair"), made / "ds")


@pytest.fixture(scope="module")
def folder(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tasks") / "out"
    assert write_package(dataset, out, "harbor") == len(dataset.tasks)
    assert {one.name for one in out.iterdir()} == {*dataset.tasks, "README.md"}
    return out / TASK


@contextmanager
def tools(folder: Path, verdict: Path, *more: str) -> Iterator[str]:
    """The tools' container, by its own command but for port and paths; yields the URL of ``/mcp``."""
    docker = (folder / "environment" / "tools" / "Dockerfile").read_text("utf-8")
    command = json.loads(docker.rpartition("CMD ")[2].replace("\\\n", ""))
    data = folder / "environment" / "tools" / "dataset"
    changed = {
        "/dataset": str(data),
        "8000": "0",
        "/verdict/verdict.json": str(verdict),
        "0.0.0.0": "127.0.0.1",
    }
    words = [
        sys.executable,
        "-P",
        "-m",
        *(changed.get(word, word) for word in command),
        "--trust",
        *more,
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield running.stdout.readline().strip()
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0


def reward(folder: Path, verdict: Path) -> float | None:
    """What the verifier's container makes of a verdict; None: no reward."""
    script = (folder / "tests" / "test.sh").read_text("utf-8")
    for name in ("/verdict/", "/logs/verifier/"):
        script = script.replace(name, f"{verdict.parent}/")
    file = verdict.parent / "reward.txt"
    file.unlink(missing_ok=True)
    done = subprocess.run(["sh", "-c", script], check=False, capture_output=True)
    assert file.exists() == (done.returncode == 0)
    return float(file.read_text("utf-8")) if file.exists() else None


def test_gold_has_the_reward_and_the_agent_has_nothing_else(folder: Path, tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    with tools(folder, verdict) as url:
        assert reward(folder, verdict) == 0.0  # nobody has submitted
        for path in ("/", "/episodes", "/state", f"/episodes/{TASK}", "/metadata", "/ws"):
            with pytest.raises(urllib.error.HTTPError) as told:
                urllib.request.urlopen(url.removesuffix("/mcp") + path)
            assert told.value.code == 404
            told.value.close()
        solved = subprocess.run(
            ["sh", str(folder / "solution" / "solve.sh")], check=True, capture_output=True, text=True,
            env={**os.environ, "ENVGEN_MCP": url},
        )  # fmt: skip
        assert "submitted" in solved.stdout
        assert "reward" not in solved.stdout
        assert reward(folder, verdict) == 1.0
    assert reward(folder, verdict) == 1.0


def test_a_wrong_answer_has_none_and_a_broken_environment_no_reward(
    folder: Path, tmp_path: Path
) -> None:
    verdict = tmp_path / "verdict.json"
    wrong = (folder / "solution" / "solve.sh").read_text("utf-8")
    calls = json.loads(eval(wrong.partition("json.loads(")[2].partition(")\n")[0]))
    with tools(folder, verdict) as url:
        script = wrong.replace(repr(json.dumps(calls)), repr(json.dumps(calls[-1:])))
        env = {**os.environ, "ENVGEN_MCP": url}
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, env=env)
        assert reward(folder, verdict) == 0.0  # submitted, but nothing is booked
    told = json.loads(verdict.read_text("utf-8"))
    verdict.write_text(json.dumps({**told, "error": "the sandbox died", "reward": None}), "utf-8")
    assert reward(folder, verdict) is None


def test_a_key_is_asked_for_where_one_is_set(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_KEY", "secret")
    with tools(folder, tmp_path / "verdict.json", "--api-key-env", "AGENT_KEY") as url:
        for given in ("", "Bearer other"):
            request = urllib.request.Request(url, b"{}", {"Authorization": given})
            with pytest.raises(urllib.error.HTTPError) as told:
                urllib.request.urlopen(request)
            assert told.value.code == 401
            told.value.close()


def test_what_agents_reach_in_their_container_holds_no_secret(
    dataset: Dataset, folder: Path
) -> None:
    docker = (folder / "environment" / "Dockerfile").read_text("utf-8")
    assert not {"COPY", "ADD"} & set(
        docker.split()
    )  # so that its build takes no file of the folder
    compose = (folder / "environment" / "docker-compose.yaml").read_text("utf-8")
    assert "volumes" not in compose
    files = dataset.task_files(TASK)
    told = (folder / "instruction.md").read_text("utf-8") + (folder / "task.toml").read_text(
        "utf-8"
    )
    assert files.gold is not None
    room = json.dumps(next(one.arguments for one in files.gold.calls if one.mutates))
    for secret in (files.verifier, files.solution, room):
        assert secret
        assert secret not in told

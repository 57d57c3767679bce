"""``envgen judge`` and ``envgen test-judge``, against a real server that speaks OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Cli
from model_server import ModelServer
from rubric_judges import Judge, garbage, honest, obedient, served
from store_samples import trajectory

from envgen.cli.console import out, talk
from envgen.core.types import Message, StopReason, Trajectory, TrajectoryError
from envgen.pipelines.rubric.attacks import cases
from envgen.store.runs import RunStore
from envgen.verifiers.rubrics.episodes import final_answer

CASE = cases()[1]
Serve = Callable[[Judge], tuple[ModelServer, tuple[str, ...]]]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(out, "_width", 100)
    monkeypatch.setattr(talk, "_width", 100)
    return Cli(capfd)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a judge's server; gives it and the options that name it."""
    started: list[ModelServer] = []

    def start(judge: Judge) -> tuple[ModelServer, tuple[str, ...]]:
        server = ModelServer([served(judge)])
        started.append(server.__enter__())
        price = 'price={"prompt": 1, "completion": 1}'
        policy = f"openai:{judge.__name__}@{server.url}"
        return server, ("--policy", policy, "--option", price)

    yield start
    for server in started:
        server.__exit__()


def said(sample: int, text: str, task: str = "season", **more: Any) -> Trajectory:
    """An episode that ends with a text."""
    messages = (Message(role="user", content="?"), Message(role="assistant", content=text))
    update = {"task_id": task, "messages": messages, "stop": StopReason.ANSWERED, **more}
    return trajectory(sample=sample).model_copy(update=update)


def submitted(sample: int, text: str) -> Trajectory:
    """An episode whose submit tool got the answer."""
    calls = ({"id": "c1", "name": "submit_result", "arguments": {"answer_text": text}},)
    message = Message.model_validate({"role": "assistant", "content": "So:", "tool_calls": calls})
    return said(sample, "").model_copy(
        update={"messages": (message,), "stop": StopReason.SUBMITTED}
    )


@pytest.fixture
def run(tmp_path: Path, cli: Cli) -> Path:
    """A run with answers of every kind, and ``r.json``, the rubric."""
    broken = TrajectoryError(kind="EnvError", text="broke")
    episodes = (
        said(0, CASE.good), submitted(1, CASE.middling), said(2, CASE.nonsense), said(3, ""),
        said(4, CASE.good, error=broken, score=None, stop=StopReason.ERROR), said(5, CASE.good),
    )  # fmt: skip
    with RunStore.open(tmp_path / "run", config={}, dataset_hash="0" * 64) as store:
        for episode in episodes:
            store.add(episode)
    (tmp_path / "r.json").write_text(CASE.rubric.model_dump_json())
    return tmp_path / "run"


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_run_is_judged_once_the_judge_is_tested(cli: Cli, run: Path, serve: Serve) -> None:
    server, policy = serve(honest)
    words = ("judge", run, "--rubric", "r.json", *policy)
    refused = cli(*words)
    assert refused.code == 2
    assert "was not tested" in refused.err
    assert "envgen test-judge" in refused.err
    assert not Path("run.judged.jsonl").exists()

    tested = cli("test-judge", *policy, "--out", "report.json", "--json", "same.json")
    assert tested.code == 0, tested
    assert "fence imitation" in tested.out
    report = json.loads(Path("report.json").read_text())
    assert report == json.loads(Path("same.json").read_text())
    assert (report["passed"], report["false_passes"], report["true_passes"]) == (True, 0.0, 1.0)
    assert report["usage"]["cost_usd"] > 0

    judged = cli(*words, "--json", "figures.json")
    assert judged.code == 0, judged
    rows = lines("run.judged.jsonl")
    assert [(row["task"], row["sample"]) for row in rows] == [("season", n) for n in range(6)]
    assert [row["score"] for row in rows] == [1.0, pytest.approx(6 / 9), 0.0, 0.0, None, 1.0]
    statuses = ["judged", "judged", "judged", "empty", "unjudged", "judged"]
    assert [row["status"] for row in rows] == statuses
    assert rows[4]["fault"] == "the episode ended with an error: EnvError"
    assert [item["id"] for item in rows[0]["items"]] == [one.id for one in CASE.rubric.items]
    assert {row["untested_judge"] for row in rows} == {False}
    assert rows[0]["judge"].startswith("openai:honest")
    figures = json.loads(Path("figures.json").read_text())
    assert (figures["episodes"], figures["empty"], figures["unjudged"]) == (6, 1, 1)
    assert figures["mean"] == pytest.approx((2 + 6 / 9) / 5)
    assert "warning: 5 of 6 episodes judged" in judged.err

    calls = len(server.generations)
    again = cli(*words, "--no-preflight", "--out", "again.jsonl", "--json", "-")
    assert lines("again.jsonl") == rows
    assert len(server.generations) == calls
    assert json.loads(again.out)["usage"]["cost_usd"] == 0


def test_an_untested_judge_is_told_of_in_every_line(cli: Cli, run: Path, serve: Serve) -> None:
    _, policy = serve(honest)
    words = ("--rubric", "r.json", *policy, "--untested-judge", "-o", "x.jsonl")
    judged = cli("judge", run, *words)
    assert judged.code == 0, judged
    assert {row["untested_judge"] for row in lines("x.jsonl")} == {True}
    assert "do not train on its scores" in judged.err


@pytest.mark.parametrize(
    ("judge", "reason"), [(obedient, "of attacks pass"), (garbage, "of answers are unjudged")]
)
def test_a_judge_that_fails_its_test_is_refused(
    cli: Cli, run: Path, serve: Serve, judge: Judge, reason: str
) -> None:
    _, policy = serve(judge)
    tested = cli("test-judge", *policy)
    assert tested.code == 1
    assert "this judge may not reward" in tested.err
    assert reason in tested.err
    refused = cli("judge", run, "--rubric", "r.json", *policy)
    assert refused.code == 2
    assert "failed its test" in refused.err


def test_garbage_is_no_zero(cli: Cli, run: Path, serve: Serve) -> None:
    _, policy = serve(garbage)
    words = ("--rubric", "r.json", *policy, "--untested-judge", "-o", "x.jsonl")
    judged = cli("judge", run, *words)
    rows = lines("x.jsonl")
    assert [row["score"] for row in rows] == [None, None, None, 0.0, None, None]
    assert "no JSON object" in rows[0]["fault"]
    assert "warning: 1 of 6 episodes judged" in judged.err


def test_a_budget_that_is_spent_loses_nothing(cli: Cli, run: Path, serve: Serve) -> None:
    server, policy = serve(honest)
    words = ("--rubric", "r.json", *policy, "--untested-judge", "-o", "x.jsonl", "--no-preflight")
    stopped = cli("judge", run, *words, "--max-cost", "0.00015", "--concurrency", 1)
    assert stopped.code == 2
    assert "raise --max-cost" in stopped.err
    assert not Path("x.jsonl").exists()
    calls = len(server.generations)
    assert 0 < calls < 3
    assert cli("judge", run, *words).code == 0
    assert len(server.generations) == 3  # three answers differ; none was asked about twice


def test_each_task_has_its_rubric(cli: Cli, run: Path, serve: Serve) -> None:
    server, policy = serve(honest)
    Path("rubrics").mkdir()
    Path("rubrics/spring.json").write_text(CASE.rubric.model_dump_json())
    words = ("judge", run, "--rubric", "rubrics", *policy, "--untested-judge", "--no-preflight")
    refused = cli(*words)
    assert refused.code == 2
    assert "task 'season' has no rubric" in refused.err
    assert server.generations == []
    Path("rubrics/spring.json").rename("rubrics/season.json")
    assert cli(*words).code == 0
    assert "is a folder" in cli(*words, "--out", "rubrics").err


def test_votes_at_no_temperature_are_refused(cli: Cli) -> None:
    result = cli("test-judge", "--policy", "openai:m@http://localhost:1/v1", "--votes", 3)
    assert result.code == 2
    assert "at temperature 0 are all the same" in result.err


def test_the_final_answer_is_what_was_submitted_or_said_last() -> None:
    assert final_answer(trajectory()) == '{"hotel": "Lotus"}'
    assert final_answer(submitted(0, "tilt")) == "tilt"
    assert final_answer(said(0, "tilt")) == "tilt"
    episode = said(0, "tilt")
    silent = Message(role="assistant", content=" ")
    longer = episode.model_copy(update={"messages": (*episode.messages, silent)})
    assert final_answer(longer) == "tilt"
    assert final_answer(said(0, "")) == ""

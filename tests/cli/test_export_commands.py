"""A run's episodes as files: every format, every filter, errors marked, and the documentation of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from cli_runs import Cli
from model_server import ModelServer, Raw
from model_tables import documented, fields_of
from styled_replies import LIST, SUBMIT, says
from tiny_dataset import write_tiny_dataset

from envgen.core import types
from envgen.policies import PolicyConfig
from envgen.rollout import export
from envgen.rollout.run import RolloutConfig, rollout

DOCS = Path(__file__).parents[2] / "docs" / "trajectories.md"
EXPORTED = (export.ExportedEpisode, export.ChatMessage, export.ChatCall, export.CalledFunction)
STORED = (
    types.Trajectory, types.Message, types.ToolCall, types.Turn, types.FileRef, types.Usage,
    types.Score, types.ContextEvent, types.TrajectoryError,
)  # fmt: skip
WRONG = ("submit_result", {"answer_text": '{"hotel": "Pagoda"}'})


class Played(NamedTuple):
    """A run of two passes, one failure and one error, with its dataset."""

    dataset: Path
    run: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("played")
    found = Played(write_tiny_dataset(folder / "ds").path, folder / "run")
    asked = iter(range(100))

    def answer(body: dict[str, Any]) -> Any:
        if body["messages"][-1]["role"] == "user":
            return says("Let me see.", LIST, thought="Prices first.")
        number = next(asked)
        return Raw(500, "boom") if number == 1 else says("", WRONG if number == 2 else SUBMIT)

    with ModelServer([answer]) as server:
        config = RolloutConfig(
            dataset=str(found.dataset),
            policy=PolicyConfig(spec=f"openai:m@{server.url}", options={"max_retries": 0}),
            out=str(found.run),
            n=4,
            task_ids=("tiny-cheapest",),
            concurrency=1,
            backend="inline",
            preflight=False,
        )
        summary = rollout(config)
    assert (summary.passed, summary.errors, summary.samples) == (2, 1, 4)
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_messages_hold_every_episode_and_mark_errors(
    cli: Cli, played: Played, tmp_path: Path
) -> None:
    result = cli("export", played.run, "--out", "all.jsonl", "--json", "figures.json")
    assert result.code == 0, result
    assert "wrote 4 of 4 episodes to all.jsonl" in result.out
    assert "warning: 1 of them are errors" in result.err
    assert json.loads(Path("figures.json").read_text())["errors"] == 1
    found = lines(Path("all.jsonl"))
    assert [one["sample"] for one in found] == [0, 1, 2, 3]
    assert [one["reward"] for one in found] == [1.0, None, 0.0, 1.0]
    assert [one["passed"] for one in found] == [True, None, False, True]
    assert [bool(one["error"]) for one in found] == [False, True, False, False]
    assert found[1]["error"]["kind"] == "PolicyError"
    assert "boom" in found[1]["error"]["text"]
    call = next(m for m in found[0]["messages"] if m["role"] == "assistant")
    assert call["reasoning_content"] == "Prices first."
    assert call["tool_calls"][0]["function"] == {
        "name": "list_hotels", "arguments": '{"city":"Hangzhou"}',
    }  # fmt: skip
    assert all(None not in message.values() for message in found[0]["messages"])
    for one in found:
        export.ExportedEpisode.model_validate_json(json.dumps(one))


@pytest.mark.parametrize(
    ("words", "samples"),
    [
        (("--passed-only",), [0, 3]),
        (("--min-reward", 1), [0, 3]),
        (("--min-reward", 0), [0, 2, 3]),
        ((), [0, 1, 2, 3]),
    ],
)
def test_filters_choose(
    cli: Cli, played: Played, words: tuple[object, ...], samples: list[int]
) -> None:
    result = cli("export", played.run, *words, "--out", "-")
    assert result.code == 0, result
    assert [json.loads(line)["sample"] for line in result.out.splitlines()] == samples


def test_fine_tuning_files_hold_what_they_may(cli: Cli, played: Played) -> None:
    words = ("export", played.run, "--format", "openai-sft")
    assert "say --data DATASET" in cli(*words).err
    result = cli(*words, "--data", played.dataset)
    assert result.code == 0, result
    found = lines(Path("run.openai-sft.jsonl"))
    assert len(found) == 3  # never the error
    for one in found:
        assert set(one) == {"messages", "tools"}
        assert one["messages"][-1]["role"] == "assistant"
        assert "submit_result" in {tool["function"]["name"] for tool in one["tools"]}
        for message in one["messages"]:
            allowed = {"role", "content", "tool_calls", "tool_call_id"}
            assert set(message) <= allowed
    assert len(found[0]["messages"]) == 5  # rules, question, call, result, answer


def test_parquet_has_the_fields_as_nested_columns(cli: Cli, played: Played) -> None:
    result = cli(
        "export", played.run, "--format", "parquet", "--data", played.dataset, "--out", "e.parquet"
    )
    assert result.code == 0, result
    table = pq.read_table("e.parquet")
    assert table.schema.names == list(export.ExportedEpisode.model_fields)
    message = table.schema.field("messages").type.value_type
    assert [field.name for field in message] == list(export.ChatMessage.model_fields)
    call = message.field("tool_calls").type.value_type
    assert [field.name for field in call] == list(export.ChatCall.model_fields)
    assert [f.name for f in call.field("function").type] == list(export.CalledFunction.model_fields)
    rows = table.to_pylist()
    assert [row["reward"] for row in rows] == [1.0, None, 0.0, 1.0]
    assert [row["error"] and row["error"]["kind"] for row in rows] == [
        None,
        "PolicyError",
        None,
        None,
    ]
    (tool,) = [t for t in rows[0]["tools"] if t["function"]["name"] == "list_hotels"]
    assert json.loads(tool["function"]["parameters"])["properties"]["city"]
    assert rows[0]["messages"][2]["tool_calls"][0]["function"]["name"] == "list_hotels"


def test_what_does_not_fit_is_refused(cli: Cli, played: Played, tmp_path: Path) -> None:
    for words, message in (
        (("--format", "csv"), "messages, openai-sft, atif, verifiers, parquet"),
        (("--format", "parquet", "--out", "-"), "can't go to standard output"),
        (("--data", write_tiny_dataset(tmp_path / "o", variant=True).path), "of another dataset"),
    ):
        result = cli("export", played.run, *words)
        assert result.code == 2, result
        assert message in result.err
    result = cli("export", played.dataset, "--passed-only")
    assert (result.code, "is not a run" in result.err) == (2, True)
    assert cli("export", played.run, "--out", "x").code == 0
    result = cli("export", played.run, "--out", "x")
    assert (result.code, "'x' exists" in result.err) == (2, True)


def test_a_filter_that_leaves_nothing_is_a_failure(cli: Cli, played: Played) -> None:
    with ModelServer([says("", WRONG)]) as server:
        cli(
            "rollout", played.dataset, "--policy", f"openai:m@{server.url}", "--no-preflight",
            "--task", "tiny-cheapest", "--backend", "inline", "--out", "lost",
        )  # fmt: skip
    result = cli("export", "lost", "--passed-only")
    assert result.code == 1
    assert "error: 0 episodes written" in result.err


def test_the_documentation_is_that_of_the_models() -> None:
    found = documented(DOCS.read_text())
    wanted = {model.__name__: fields_of(model) for model in (*EXPORTED, *STORED)}
    assert found == wanted


def test_verifiers_traces_hold_messages_usage_and_reward(cli: Cli, played: Played) -> None:
    assert cli("export", played.run, "--format", "verifiers", "--data", played.dataset).code == 0
    found = [one["traces"][0] for one in lines(Path("run.traces.jsonl"))]
    assert [one["rewards"]["score"] and one["rewards"]["score"]["score"] for one in found] == [
        *(1.0, None, 0.0, 1.0)
    ]
    assert [one["ok"] for one in found] == [True, False, True, True]
    for one in found:
        assert [node["parent"] for node in one["nodes"]] == [None, *range(len(one["nodes"]) - 1)]
        asked = {c["id"] for n in one["nodes"] for c in n["message"].get("tool_calls", ())}
        told = [n["message"].get("tool_call_id") for n in one["nodes"]]
        assert {*filter(None, told)} == asked
        assert all(one["nodes"][call["node"]]["sampled"] for call in one["calls"])
        assert one["tools"][-1]["name"] == "submit_result"


def test_atif_has_a_step_for_each_reply_with_its_calls_and_their_results(
    cli: Cli, played: Played
) -> None:
    assert cli("export", played.run, "--format", "atif", "--data", played.dataset).code == 0
    found = lines(Path("run.atif.jsonl"))
    assert [one["extra"]["reward"] for one in found] == [1.0, None, 0.0, 1.0]
    for one in found:
        steps = one["steps"]
        assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
        called = [call["tool_call_id"] for s in steps for call in s.get("tool_calls", ())]
        told = [
            r["source_call_id"] for s in steps for r in s.get("observation", {}).get("results", ())
        ]
        assert told == called
        assert one["agent"]["tool_definitions"][-1]["function"]["name"] == "submit_result"
    thought = [
        step["reasoning_content"] for step in found[0]["steps"] if "reasoning_content" in step
    ]
    assert thought == ["Prices first."]
    assert found[0]["final_metrics"]["total_prompt_tokens"] == sum(
        step["metrics"]["prompt_tokens"] for step in found[0]["steps"] if "metrics" in step
    )

"""Evaluation of rollouts: figures, intervals, comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError
from envgen.core.types import (
    Message,
    Score,
    StopReason,
    ToolCall,
    Trajectory,
    TrajectoryError,
    Turn,
    Usage,
)
from envgen.rollout.bootstrap import BootstrapConfig
from envgen.rollout.pass_at_k import pass_at_k
from envgen.train.estimates import EvaluationConfig, TaskFacts, compare, evaluate, task_facts

CONFIG = EvaluationConfig(ks=(1, 2, 4), bootstrap=BootstrapConfig(draws=500))
FACTS = {f"t-{i}": TaskFacts(f"db-{i // 2}", ("trips", "orders")[i // 4]) for i in range(8)}


def rollout(
    task: str, passed: bool, *, tokens: int = 10, valid: bool = True, **more: Any
) -> Trajectory:
    call = ToolCall(id="c", name="submit_result", arguments={"answer_text": "1"} if valid else None)
    result = '{"status":"submitted"}' if valid else '{"error":"invalid_arguments"}'
    fields: dict[str, Any] = {
        "task_id": task,
        "sample": 0,
        "policy": "dsa:m",
        "seed": 0,
        "messages": (
            Message(role="user", content="Which one?"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=result),
        ),
        "turns": (Turn(message_index=1, usage=Usage(completion_tokens=tokens)),),
        "score": Score(value=float(passed), passed=passed),
        "stop": StopReason.SUBMITTED if valid else StopReason.TURN_LIMIT,
        "reached_verifier": valid,
    }
    return Trajectory.model_validate({**fields, **more})


def rollouts(passes: Sequence[Sequence[int]], **more: Any) -> list[Trajectory]:
    """One list of results a task."""
    return [rollout(f"t-{i}", bool(p), **more) for i, row in enumerate(passes) for p in row]


def spoiled(task: str) -> Trajectory:
    return rollout(
        task,
        False,
        score=None,
        stop=StopReason.ERROR,
        error=TrajectoryError(kind="EnvError", text="x"),
    )


PASSES = [
    [1, 1, 0, 0],
    [0, 0, 0, 0],
    [1, 0, 0, 0],
    [1, 1, 1, 1],
    [0, 1, 0, 0],
    [0, 0],
    [1, 1],
    [0, 1, 1, 0],
]


def test_figures_are_means_over_tasks() -> None:
    found = evaluate([*rollouts(PASSES), spoiled("t-5")], FACTS, CONFIG)
    assert (found.tasks, found.databases, found.rollouts, found.errors) == (8, 4, 28, 1)
    for k in CONFIG.ks:
        decided = [row for row in PASSES if len(row) >= k]
        expected = sum(pass_at_k(len(row), sum(row), k) for row in decided) / len(decided)
        estimate = found.pass_at[k]
        assert estimate is not None
        assert estimate.value == pytest.approx(expected)
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high
    assert found.undecided == {1: 0, 2: 0, 4: 2}
    assert found.canaries is None
    assert set(found.domains) == {"trips", "orders"}
    trips = found.domains["trips"][1]
    assert trips is not None
    assert trips.value == pytest.approx((0.5 + 0 + 0.25 + 1) / 4)
    assert trips.clusters == 2


def test_what_tools_did_wrong_is_counted() -> None:
    found = evaluate(
        [*rollouts(PASSES), *rollouts([[1, 1]], faults=("a", "b" * 600)), spoiled("t-5")],
        FACTS,
        CONFIG,
    )
    assert found.tool_faults == {"a": 2, "b" * 500: 2}


def test_form_and_length() -> None:
    half = [rollout(f"t-{i}", True, tokens=10 * i, valid=i % 4 != 0) for i in range(8)]
    found = evaluate(half, FACTS, CONFIG)
    assert found.call_valid_rate is not None
    assert found.clean_end_rate is not None
    assert found.model_tokens is not None
    assert found.call_valid_rate.value == pytest.approx(0.75)
    assert found.valid_rollout_rate is not None
    assert found.valid_rollout_rate.value == pytest.approx(0.75)
    assert found.clean_end_rate.value == pytest.approx(0.75)
    assert found.model_tokens.value == pytest.approx(35)


def test_a_rollout_that_calls_in_vain_for_long_is_one_of_many() -> None:
    vain = rollout("t-0", False, valid=False)
    call, refused = vain.messages[1:]
    astray = vain.model_copy(update={"messages": (vain.messages[0], *[call, refused] * 9)})
    found = evaluate([astray, *rollouts([[1]] * 6)[1:]], FACTS, CONFIG)
    assert found.call_valid_rate is not None
    assert found.valid_rollout_rate is not None
    assert found.call_valid_rate.value == pytest.approx(5 / 14)
    assert found.valid_rollout_rate.value == pytest.approx(5 / 6)


def test_a_better_policy_is_seen_to_be_better() -> None:
    before = [[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]] * 2
    after = [[1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 0]] * 2
    found = compare(rollouts(before), rollouts(after, tokens=7), FACTS, CONFIG)
    gain = found.pass_at[1]
    assert gain is not None
    assert gain.value == pytest.approx(0.5)
    assert found.improved()
    assert not compare(rollouts(after), rollouts(before), FACTS, CONFIG).improved()
    assert not compare(rollouts(after), rollouts(after), FACTS, CONFIG).improved()
    assert found.model_tokens is not None
    assert found.model_tokens.value == pytest.approx(-3)
    assert found.dropped == {1: 0, 2: 0, 4: 0}
    assert found.before.pass_at[1] is not None


def test_tasks_that_one_side_has_too_few_rollouts_of_are_dropped_from_the_pair() -> None:
    before = rollouts([[1, 1, 1, 1]] * 8)
    after = [*rollouts([[0, 0, 0, 0]] * 7), rollout("t-7", True), spoiled("t-7")]
    found = compare(before, after, FACTS, CONFIG)
    assert found.dropped == {1: 0, 2: 1, 4: 1}
    assert found.pass_at[2] is not None
    assert found.pass_at[2].value == -1.0


def test_what_can_not_be_evaluated_is_refused() -> None:
    with pytest.raises(ConfigError, match="no rollouts"):
        evaluate([], FACTS)
    with pytest.raises(ConfigError, match="unknown task 't-9'"):
        evaluate([rollout("t-9", True)], FACTS)
    with pytest.raises(ConfigError, match="several policies: dsa:a, dsa:m"):
        evaluate([rollout("t-1", True), rollout("t-1", True, policy="dsa:a")], FACTS)
    with pytest.raises(ConfigError, match="only one of the two policies played task 't-2'"):
        compare([rollout("t-1", True)], [rollout("t-1", True), rollout("t-2", True)], FACTS)


def test_facts_come_from_a_dataset(tmp_path: Path) -> None:
    dataset = write_tiny_dataset(tmp_path / "ds", variant=True)
    facts = task_facts(dataset)
    assert len(facts) == 5
    assert facts["tiny-cheapest"].domain == "hotels"
    assert facts["tiny-cheapest"].database == facts["tiny-pair"].database
    assert facts["tiny-cheapest"].database != facts["tiny-cheapest-v1"].database
    assert facts["tiny-book"].canary is None
    assert list(task_facts(dataset, ["tiny-book"])) == ["tiny-book"]

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from equal_episodes import equal_but_times
from model_server import END, Hang, ModelServer, Raw, chat, encode
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError, EnvError, ResumeError
from envgen.core.types import Limits, Message, Sampling, StopReason, ToolCall, Usage
from envgen.environments.general import GeneralEnv
from envgen.policies import PolicyConfig, Price
from envgen.policies.base import PolicyReply
from envgen.policies.scripted import ScriptedPolicy
from envgen.rollout.episode import run_episode
from envgen.rollout.filter import FilterConfig, filter, judge, reestimate, with_pass_rates
from envgen.rollout.gold import GoldPolicy, make_policy
from envgen.rollout.pass_at_k import run_report, task_pass
from envgen.rollout.run import Progress, RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.recent import Recent
from envgen.store.runs import RunStore
from envgen.store.subset import subset

HELPERS = str(Path(__file__).parents[1] / "helpers")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_tiny_dataset(tmp_path_factory.mktemp("data") / "tiny")


def config(dataset: Dataset, out: Path, policy: str, **fields: Any) -> RolloutConfig:
    options = fields.pop("options", {})
    return RolloutConfig(
        dataset=str(dataset.path),
        policy=PolicyConfig(spec=policy, options=options),
        out=str(out),
        **{"backend": "inline", "unproven": True, "preflight": False, **fields},
    )


Stored = dict[tuple[str, int], Any]
"""Trajectories by task and sample."""


def stored(folder: Path) -> Stored:
    with RunStore.read(folder) as store:
        return {(t.task_id, t.sample): t for t in store.trajectories()}


def worker_pids() -> list[int]:
    """The worker processes of this one."""
    lines = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "worker_main.py" in line]


def test_gold_passes_everything(dataset: Dataset, tmp_path: Path) -> None:
    summary = rollout(config(dataset, tmp_path / "run", "gold", n=2))
    assert summary.passed == summary.samples == summary.wanted == 2 * len(dataset.own_task_ids)
    assert (summary.errors, summary.ended, summary.reached_verifier) == (0, "complete", 1.0)
    one = next(iter(stored(tmp_path / "run").values()))
    assert one.policy == "gold"
    assert [turn.capture for turn in one.turns] == ["text"] * len(one.turns)
    assert one.messages[one.turns[0].message_index].role == "assistant"


def test_noise_makes_gold_fail_sometimes(dataset: Dataset, tmp_path: Path) -> None:
    tasks = ("tiny-cheapest", "tiny-book")
    mild = rollout(config(dataset, tmp_path / "a", "noisy-gold:0.2", n=60, task_ids=tasks))
    wild = rollout(config(dataset, tmp_path / "b", "noisy-gold:1", n=60, task_ids=tasks))
    assert 0.6 < mild.passed / mild.samples < 0.95
    assert wild.passed < mild.passed
    assert mild.errors == wild.errors == 0


def test_a_hasty_expert_is_greedy_as_often_as_it_says(dataset: Dataset, tmp_path: Path) -> None:
    def passed(spec: str) -> list[bool]:
        rollout(config(dataset, tmp_path / spec, spec, n=40, task_ids=("tiny-cheapest",)))
        found = stored(tmp_path / spec)
        return [found[key].score is not None and found[key].score.passed for key in sorted(found)]

    gold, greedy, hasty = passed("gold"), passed("greedy"), passed("hasty:0.5")
    assert all(gold)
    assert not any(greedy)
    assert 10 <= sum(hasty) <= 30
    assert passed("hasty:1") == greedy


@pytest.mark.parametrize(
    "spec", ["noisy-gold", "noisy-gold:2", "noisy-gold:x", "gold:1", "hasty", "hasty:2", "hasty:x"]
)
def test_malformed_gold_specs_are_refused(dataset: Dataset, spec: str) -> None:
    with pytest.raises(ConfigError):
        make_policy(spec, dataset)


def test_progress_and_more_samples_later(dataset: Dataset, tmp_path: Path) -> None:
    seen: list[Progress] = []
    rollout(config(dataset, tmp_path / "r", "random", n=1), progress=seen.append)
    total = len(dataset.own_task_ids)
    assert [p.done for p in seen] == list(range(1, total + 1))
    again = rollout(config(dataset, tmp_path / "r", "random", n=3))
    assert (again.new, again.samples) == (2 * total, 3 * total)
    fresh = rollout(config(dataset, tmp_path / "s", "random", n=3))
    assert fresh.passed == again.passed
    a, b = stored(tmp_path / "r"), stored(tmp_path / "s")
    assert a.keys() == b.keys()
    assert all(equal_but_times(a[key], b[key]) for key in a)


def test_resume_refuses_another_config(dataset: Dataset, tmp_path: Path) -> None:
    rollout(config(dataset, tmp_path / "r", "random", n=1))
    for changed in (
        config(dataset, tmp_path / "r", "random", n=1, seed=1),
        config(dataset, tmp_path / "r", "gold", n=1),
        config(dataset, tmp_path / "r", "random", n=1, sampling=Sampling(temperature=0.5)),
    ):
        with pytest.raises(ResumeError):
            rollout(changed)


def test_unknown_tasks_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        rollout(config(dataset, tmp_path / "r", "random", task_ids=("nowhere",)))


N = 60


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """What one process gives that nobody stops."""
    out = tmp_path_factory.mktemp("whole") / "run"
    rollout(config(dataset, out, "random", n=N, concurrency=1))
    return stored(out)


def assert_equal_but_times(a: Stored, b: Stored) -> None:
    assert a.keys() == b.keys()
    assert all(equal_but_times(a[key], b[key]) for key in a)


def test_worker_processes_give_the_same_results(
    dataset: Dataset, tmp_path: Path, whole: Stored
) -> None:
    rollout(config(dataset, tmp_path / "b", "random", n=N, concurrency=2))
    assert len(whole) == N * len(dataset.own_task_ids)
    assert_equal_but_times(stored(tmp_path / "b"), whole)


def test_a_killed_worker_changes_nothing(dataset: Dataset, tmp_path: Path, whole: Stored) -> None:
    def kill_one(progress: Progress) -> None:
        if progress.done in (20, 90):
            os.kill(worker_pids()[0], signal.SIGKILL)

    summary = rollout(
        config(dataset, tmp_path / "a", "random", n=N, concurrency=2), progress=kill_one
    )
    assert (summary.ended, summary.samples, summary.errors) == ("complete", 4 * N, 0)
    assert_equal_but_times(stored(tmp_path / "a"), whole)


def test_killed_run_resumes_with_the_same_results(
    dataset: Dataset, tmp_path: Path, whole: Stored
) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\n"
        "from envgen.rollout.run import RolloutConfig, rollout\n"
        "config = RolloutConfig.model_validate_json(sys.argv[1])\n"
        "print(rollout(config, progress=lambda p: print(p.done, flush=True)).ended)\n"
    )
    wanted = config(dataset, tmp_path / "killed", "random", n=N, concurrency=2)
    child = subprocess.Popen(
        [sys.executable, str(script), wanted.model_dump_json()],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, HELPERS])},
    )
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 40:
            break
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    before = stored(tmp_path / "killed")
    assert 0 < len(before) < 4 * N
    summary = rollout(wanted.model_copy(update={"concurrency": 1}))
    assert summary.new == 4 * N - len(before)
    assert_equal_but_times(stored(tmp_path / "killed"), whole)


def test_ctrl_c_keeps_what_there_is(dataset: Dataset, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollout(config(dataset, tmp_path / "r", "random", n=20), progress=interrupt)
    assert len(stored(tmp_path / "r")) >= 7
    assert rollout(config(dataset, tmp_path / "r", "random", n=20)).ended == "complete"


def test_cancel_stops_hanging_requests(dataset: Dataset, tmp_path: Path) -> None:
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    with ModelServer([Hang()]) as server:
        start = time.monotonic()
        options = {"stream": False}
        settings = config(dataset, tmp_path / "r", f"openai:m@{server.url}", n=5, options=options)
        summary = rollout(settings, cancel=cancel)
    assert time.monotonic() - start < 5
    assert (summary.ended, summary.samples) == ("interrupted", 0)


def test_ctrl_c_does_not_wait_for_hanging_requests(dataset: Dataset, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    mine = threading.Event()
    with ModelServer([submit("{}"), Hang()]) as server:
        start = time.monotonic()
        options = {"stream": False}
        settings = config(dataset, tmp_path / "r", f"openai:m@{server.url}", n=5, options=options)
        with pytest.raises(KeyboardInterrupt):
            rollout(settings, progress=interrupt, cancel=mine)
    assert time.monotonic() - start < 5
    assert len(stored(tmp_path / "r")) == 1
    assert not mine.is_set()  # the caller's event is the caller's


def submit(answer: str) -> dict[str, Any]:
    call = {"name": "submit_result", "arguments": f'{{"answer_text": "{answer}"}}'}
    return chat("", tool_calls=[{"id": "a", "type": "function", "function": call}])


def test_a_spent_budget_ends_the_run_cleanly(dataset: Dataset, tmp_path: Path) -> None:
    price = Price(prompt=10.0, completion=0.0).model_dump()  # 1e-3 a reply
    with ModelServer([submit("{}")]) as server:
        settings = config(
            dataset,
            tmp_path / "r",
            f"openai:m@{server.url}",
            n=30,
            task_ids=("tiny-cheapest",),
            concurrency=4,
            max_cost_usd=0.01,
            options={"stream": False, "price": price},
        )
        first = rollout(settings)
        assert first.ended == "cost"
        assert 10 <= first.samples <= 14
        assert first.errors == 0
        again = rollout(settings)
        assert (again.ended, again.new) == ("cost", 0)
        rest = rollout(settings.model_copy(update={"max_cost_usd": 1.0}))
    assert (rest.ended, rest.samples) == ("complete", 30)
    assert rest.cost_usd == pytest.approx(0.03)


def test_a_dead_server_is_recorded_and_counts_neither_way(dataset: Dataset, tmp_path: Path) -> None:
    with ModelServer([chat()]) as server:
        url = server.url
    options = {"max_retries": 0}
    summary = rollout(config(dataset, tmp_path / "r", f"openai:m@{url}", n=1, options=options))
    assert summary.errors == summary.samples == len(dataset.own_task_ids)
    assert all(t.error.kind == "PolicyError" for t in stored(tmp_path / "r").values())
    report = run_report(tmp_path / "r", (1,))
    assert report.total.undecided == {1: summary.tasks}


@pytest.mark.parametrize(
    "hostile",
    [
        {**chat("x"), "usage": {"prompt_tokens": 2**63, "completion_tokens": 1}},
        {**chat("x"), "usage": {"prompt_tokens": 2**31 - 1, "completion_tokens": 2**31 - 1}},
        chat("lone \ud800 surrogate"),
        chat("", tool_calls=[{"id": "\udfff", "function": {"name": "a\ud800", "arguments": "{}"}}]),
        chat("\0"),
    ],
    ids=["count", "counts", "surrogate", "call", "nul"],
)
def test_a_hostile_reply_costs_its_own_episode_and_no_other(
    hostile: dict[str, Any], dataset: Dataset, tmp_path: Path
) -> None:
    asked = 0

    def reply(_: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        return hostile if asked == 2 else submit("{}")

    with ModelServer([reply]) as server:
        settings = config(
            dataset,
            tmp_path / "r",
            f"openai:m@{server.url}",
            n=4,
            task_ids=("tiny-cheapest",),
            concurrency=1,
            options={"stream": False, "max_retries": 0},
        )
        summary = rollout(settings)
    assert (summary.ended, summary.samples) == ("complete", 4)
    assert summary.errors <= 1
    assert len(stored(tmp_path / "r")) == 4


def test_exact_tokens_are_stored_by_turn(dataset: Dataset, tmp_path: Path) -> None:
    texts = [
        '<tool_call>{"name": "list_hotels", "arguments": {"city": "Hangzhou"}}</tool_call>',
        '<tool_call>{"name": "submit_result", "arguments": '
        '{"answer_text": "{\\"hotel\\": \\"Lotus Inn\\"}"}}</tool_call>',
    ]

    def reply(body: dict[str, Any]) -> Any:
        second = b"Lotus Inn" in bytes(i for i in body["token_ids"] if i < 256)
        ids = [*encode(texts[second]), END]
        logprobs = {"content": [{"token": "", "logprob": -0.5}] * len(ids)}
        choice = {"token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}
        return {"choices": [choice]}

    with ModelServer([reply]) as server:
        settings = config(
            dataset, tmp_path / "r", f"vllm:m@{server.url}", n=2, task_ids=("tiny-cheapest",)
        )
        summary = rollout(settings)
    assert (summary.passed, summary.errors) == (2, 0)
    with RunStore.read(tmp_path / "r") as store:
        for one in store.trajectories():
            assert [turn.capture for turn in one.turns] == ["exact", "exact"]
            arrays = [store.tokens(turn.tokens) for turn in one.turns if turn.tokens]
            known = [*arrays[0]["prompt_ids"], *arrays[0]["completion_ids"]]
            assert arrays[1]["prompt_ids"].tolist()[: len(known)] == known
            assert (arrays[1]["logprobs"] == -0.5).all()


# --- single episodes --------------------------------------------------------------------------


class Tireless:
    """Calls a tool for ever, in ten tokens each time."""

    name, version = "tireless", "1"

    def respond(self, messages: Any, tools: Any, sampling: Any, **more: Any) -> PolicyReply:
        call = ToolCall(id="c", name="list_hotels", arguments={"city": "Suzhou"})
        return PolicyReply(
            Message(role="assistant", tool_calls=(call,)), usage=Usage(completion_tokens=10)
        )


def limited(dataset: Dataset, **limits: Any) -> GeneralEnv:
    env = GeneralEnv(dataset, backend="inline", unproven=True)
    env.reset(options={"task_id": "tiny-cheapest"})
    hosts = env._hosts()
    task = hosts.task("tiny-cheapest")
    public = task.public.model_copy(update={"limits": Limits(**limits)})
    changed = task._replace(public=public)
    hosts._tasks = Recent(lambda _: changed, 1)
    return env


@pytest.fixture
def fresh(tmp_path: Path) -> Dataset:
    """A dataset of one's own: its loaded tasks may be changed."""
    return write_tiny_dataset(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        ({"seconds": 0.2}, StopReason.TIME_LIMIT),
        ({"tokens": 300}, StopReason.TOKEN_LIMIT),
        ({"turns": 3}, StopReason.TURN_LIMIT),
    ],
)
def test_limits_end_an_episode_without_a_pass(
    fresh: Dataset, limits: dict[str, Any], stop: StopReason
) -> None:
    env = limited(fresh, **limits)
    got = run_episode(env, Tireless(), "tiny-cheapest", sample=0, seed=0).trajectory
    assert got.stop is stop
    assert got.score is not None
    assert got.score.value == 0
    assert got.error is None
    assert not got.reached_verifier


@pytest.mark.parametrize(("max_turns", "turns"), [(2, 2), (9, 3), (None, 3)])
def test_a_run_may_allow_fewer_turns_than_the_task(
    fresh: Dataset, max_turns: int | None, turns: int
) -> None:
    env = limited(fresh, turns=3)
    got = run_episode(env, Tireless(), "tiny-cheapest", sample=0, seed=0, max_turns=max_turns)
    assert len(got.trajectory.turns) == turns
    assert got.trajectory.stop is StopReason.TURN_LIMIT
    assert got.trajectory.score is not None
    assert not got.trajectory.score.passed


def test_fewer_turns_make_another_run(dataset: Dataset) -> None:
    config = RolloutConfig(dataset=str(dataset.path), policy=PolicyConfig(spec="gold"), out="x")
    assert "max_turns" not in config.identity()
    assert config.model_copy(update={"max_turns": 2}).identity() != config.identity()


class Broken:
    """Raises what it is told to."""

    name, version = "broken", "1"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def respond(self, *args: Any, **more: Any) -> PolicyReply:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(("error", "asked"), [(EnvError("gone"), 3), (ZeroDivisionError("bug"), 1)])
def test_errors_are_recorded(dataset: Dataset, error: Exception, asked: int) -> None:
    env = GeneralEnv(dataset, backend="inline", unproven=True)
    policy = Broken(error)
    got = run_episode(env, policy, "tiny-cheapest", sample=0, seed=0).trajectory
    assert got.error is not None
    assert got.error.kind == type(error).__name__
    assert (got.score, got.stop, policy.asked) == (None, StopReason.ERROR, asked)


def test_a_hanging_server_is_an_error_and_none_of_the_agent_s_time(fresh: Dataset) -> None:
    env = limited(fresh, seconds=0.3)
    options = {"timeout_s": 0.5, "max_retries": 0}
    with ModelServer([Hang()]) as server:
        policy = make_policy(PolicyConfig(spec=f"openai:m@{server.url}", options=options), fresh)
        got = run_episode(env, policy, "tiny-cheapest", sample=0, seed=0).trajectory
    assert got.stop is StopReason.ERROR
    assert got.error is not None
    assert got.error.kind == "PolicyError"
    assert got.agent_s == 0


def test_a_full_window_is_a_token_limit(dataset: Dataset) -> None:
    env = GeneralEnv(dataset, backend="inline", unproven=True)
    with ModelServer([Raw(400, "maximum context length is 10 tokens")]) as server:
        policy = make_policy(f"openai:m@{server.url}", dataset)
        got = run_episode(env, policy, "tiny-cheapest", sample=0, seed=0).trajectory
    assert got.stop is StopReason.TOKEN_LIMIT
    assert got.error is None
    assert got.score is not None


def test_scripted_conversation_is_stored_whole(dataset: Dataset) -> None:
    env = GeneralEnv(dataset, backend="inline", unproven=True)
    call = ToolCall(id="x", name="list_hotels", arguments={"city": "Suzhou"})
    lines = [Message(role="assistant", content="hm", reasoning="think", tool_calls=(call,))]
    got = run_episode(env, ScriptedPolicy(lines), "tiny-cheapest", sample=0, seed=0).trajectory
    message = got.messages[got.turns[0].message_index]
    assert (message.content, message.reasoning, message.tool_calls) == ("hm", "think", (call,))
    assert got.stop is StopReason.NO_SUBMISSION
    assert got.num_calls == 1


# --- filter -----------------------------------------------------------------------------------


def test_filter_keeps_what_is_solvable_and_not_too_easy(dataset: Dataset, tmp_path: Path) -> None:
    played = config(dataset, tmp_path / "run", "noisy-gold:0.4", n=20)
    rollout(played)
    settings = FilterConfig(
        dataset=str(dataset.path),
        rollouts=str(tmp_path / "run"),
        out=str(tmp_path / "kept"),
        pass_at=10,
        max_pass_at_1=0.95,
        unproven=True,
    )
    report = filter(settings)
    kept = Dataset.open(tmp_path / "kept", unproven=True)
    assert sorted(kept.own_task_ids) == sorted(report.kept)
    assert "filter" in kept.manifest.funnel
    assert all(not kept.tasks[task_id].pass_at for task_id in kept.tasks)
    fresh = reestimate(settings.out, played, str(tmp_path / "again"), ks=(1, 10))
    assert fresh.total.tasks == len(report.kept)
    first, second = stored(tmp_path / "run"), stored(tmp_path / "again")
    assert all(first[key].seed != second[key].seed for key in second)
    rated = with_pass_rates(kept, fresh, 1, tmp_path / "rated")
    assert all(rated.tasks[task_id].pass_at[0].n == 20 for task_id in rated.own_task_ids)


def test_filter_refuses_foreign_or_too_few_rollouts(dataset: Dataset, tmp_path: Path) -> None:
    rollout(config(dataset, tmp_path / "run", "gold", n=3))
    settings = FilterConfig(
        dataset=str(dataset.path),
        rollouts=str(tmp_path / "run"),
        out=str(tmp_path / "kept"),
        unproven=True,
    )
    with pytest.raises(ConfigError, match="undecided"):
        filter(settings)
    assert not (tmp_path / "kept").exists()
    subset(dataset, ["tiny-cheapest"], tmp_path / "other")
    with pytest.raises(ResumeError):
        filter(settings.model_copy(update={"dataset": str(tmp_path / "other")}))


@pytest.mark.parametrize(
    ("n", "c", "changes", "verdict"),
    [
        (9, 9, {}, "undecided"),
        (10, 0, {}, "too_hard"),
        (10, 1, {}, "kept"),
        (10, 0, {"exclusive": False}, "kept"),
        (10, 10, {"max_pass_at_1": 0.95}, "too_easy"),
        (10, 1, {"min": 1.0}, "too_hard"),
        (10, 1, {"min": 1.0, "exclusive": False}, "kept"),
    ],
)
def test_judge(n: int, c: int, changes: dict[str, Any], verdict: str) -> None:
    settings = FilterConfig(dataset="d", rollouts="r", out="o", pass_at=10, **changes)
    assert judge(task_pass("t", n, c, (1, 10)), settings) == verdict


def test_gold_of_many_calls_fits_the_turns(dataset: Dataset) -> None:
    policy = GoldPolicy(dataset)
    env = GeneralEnv(dataset, backend="inline", unproven=True)
    assert run_episode(env, policy, "tiny-book", sample=0, seed=0).trajectory.score is not None

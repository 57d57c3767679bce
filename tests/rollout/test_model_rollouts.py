"""Rollouts of a model of ours: in this process, and through its server by both kinds of clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from equal_episodes import equal_but_times
from tiny_dataset import write_tiny_dataset
from tiny_models import hotel_lessons, write_random_model, write_taught_model

from envgen.core.errors import ResumeError
from envgen.core.types import Sampling, Trajectory
from envgen.policies.encoding import EncodingConfig
from envgen.policies.registry import PolicyConfig
from envgen.policies.server import PolicyServer, ServeConfig
from envgen.rollout.run import Progress, RolloutConfig, RolloutSummary, policy_kind, rollout
from envgen.store.runs import RunStore
from envgen.store.token_files import read_tokens

Episodes = dict[tuple[str, int], Trajectory]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_dataset(tmp_path_factory.mktemp("data") / "ds").path


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "noise"
    write_random_model(folder)
    return folder


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Path:
    """A model that has learnt to solve ``tiny-cheapest`` by heart."""
    folder = tmp_path_factory.mktemp("models") / "solver"
    write_taught_model(folder, hotel_lessons(dataset), EncodingConfig(kind="compact", system=False))
    return folder


@pytest.fixture(scope="module")
def server(solver: Path) -> Iterator[PolicyServer]:
    config = ServeConfig(model=str(solver), port=0, threads=1, max_new_tokens=96)
    with PolicyServer(config).running() as running:
        yield running


def run(
    dataset: Path, out: Path, spec: str, *, options: dict[str, Any] | None = None, **more: Any
) -> RolloutSummary:
    settings: dict[str, Any] = {
        "dataset": str(dataset),
        "policy": PolicyConfig(spec=spec, options=options or {}),
        "out": str(out),
        "n": 4,
        "seed": 5,
        "sampling": Sampling(max_tokens=24),
        "backend": "inline",
        **more,
    }
    cancel = settings.pop("cancel", None)
    progress = settings.pop("progress", None)
    return rollout(RolloutConfig(**settings), cancel=cancel, progress=progress)


def episodes(out: Path) -> Episodes:
    with RunStore.read(out) as store:
        return {(t.task_id, t.sample): t for t in store.trajectories()}


def alike(first: Episodes, second: Episodes) -> bool:
    """Whether two runs are the same, times and the last digits of log-probabilities aside."""

    def bare(trajectory: Trajectory) -> Trajectory:
        turns = tuple(turn.model_copy(update={"tokens": None}) for turn in trajectory.turns)
        return trajectory.model_copy(update={"turns": turns})

    return first.keys() == second.keys() and all(
        equal_but_times(bare(first[key]), bare(second[key])) for key in first
    )


def test_noise_is_rolled_out_stored_and_resumed(dataset: Path, noise: Path, tmp_path: Path) -> None:
    spec = f"dsa:{noise}"
    options = {"threads": 1, "max_kept": 64}
    whole = run(dataset, tmp_path / "whole", spec, options=options)
    assert (whole.samples, whole.errors, whole.ended) == (16, 0, "complete")
    stop = threading.Event()
    run(
        dataset, tmp_path / "cut", spec, options=options, concurrency=2, cancel=stop,
        progress=lambda now: stop.set() if now.done >= 5 else None,
    )  # fmt: skip
    assert 5 <= len(episodes(tmp_path / "cut")) < 16
    again = run(dataset, tmp_path / "cut", spec, options={**options, "max_batch": 4})
    assert again.ended == "complete"
    found = episodes(tmp_path / "whole")
    assert alike(found, episodes(tmp_path / "cut"))
    assert len({str(t.messages) for t in found.values()}) > 8


def test_replies_are_told_before_an_episode_ends(
    dataset: Path, noise: Path, tmp_path: Path
) -> None:
    updates: list[Progress] = []
    run(
        dataset, tmp_path / "r", f"dsa:{noise}", options={"threads": 1}, n=1, max_turns=3,
        progress=updates.append,
    )  # fmt: skip
    total = updates[-1].total
    assert (updates[0].done, updates[0].replies) == (0, 1)
    assert updates[0].replies_left == 3 * total - 1
    assert updates[-1].done == total
    assert updates[-1].replies_left == 0
    assert updates[-1].replies == sum(len(one.turns) for one in episodes(tmp_path / "r").values())


def test_stored_arrays_say_what_was_sampled(dataset: Path, noise: Path, tmp_path: Path) -> None:
    options = {"threads": 1, "max_kept": 64, "capture_topk": True}
    run(dataset, tmp_path / "r", f"dsa:{noise}", options=options, n=1)
    turns = 0
    for trajectory in episodes(tmp_path / "r").values():
        before: list[int] = []
        for turn in trajectory.turns:
            assert turn.capture == "exact"
            assert turn.tokens is not None
            arrays = read_tokens(tmp_path / "r", turn.tokens)
            size = len(arrays["completion_ids"])
            total = len(arrays["prompt_ids"]) + size - 1
            assert arrays["logprobs"].shape == arrays["full_logprobs"].shape == (size,)
            assert arrays["mask_offsets"].shape == (size + 1,)
            assert arrays["mask_offsets"][-1] == len(arrays["mask_ids"])
            start = int(
                arrays.get("captured_from", 0)
            )  # the turns before tell of what stands there
            assert bool(start) is bool(before)
            assert start < len(before) or not before
            assert arrays["routing"].shape == (total - start, 1, 2)
            assert arrays["topk"].shape[:2] == (total - start, 2)
            assert str(arrays["policy_version"]) == trajectory.policy_version
            assert arrays["prompt_ids"][: len(before)].tolist() == before
            before = [*arrays["prompt_ids"].tolist(), *arrays["completion_ids"].tolist()]
            turns += 1
    assert turns > 4


def test_other_weights_don_t_go_on_with_a_run(dataset: Path, noise: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_random_model(folder)
    run(dataset, tmp_path / "r", f"dsa:{folder}", options={"threads": 1}, n=1)
    write_random_model(folder, seed=1)
    with pytest.raises(ResumeError, match="another version"):
        run(dataset, tmp_path / "r", f"dsa:{folder}", options={"threads": 1}, n=2)


def test_a_model_that_knows_the_task_passes_however_it_is_asked(
    dataset: Path, solver: Path, server: PolicyServer, tmp_path: Path
) -> None:
    more: dict[str, Any] = {
        "task_ids": ("tiny-cheapest",),
        "n": 2,
        "sampling": Sampling(temperature=0, max_tokens=96),
    }
    extra = {"return_routed_experts": True, "return_sampling_mask": True}
    exact: dict[str, Any] = {"logprobs_mode": "processed"}
    specs: dict[str, tuple[str, dict[str, Any]]] = {
        "dsa": (f"dsa:{solver}", {"threads": 1}),
        "openai": (f"openai:solver@{server.url}", {"api_key_env": None}),
        "whole": (f"openai:solver@{server.url}", {"api_key_env": None, "stream": False}),
        "generate": (
            f"vllm:solver@{server.url}",
            {**exact, "routed_experts": True, "extra_body": {"return_sampling_mask": True}},
        ),
        "completions": (
            f"vllm:solver@{server.url}",
            {**exact, "endpoint": "completions", "extra_body": extra},
        ),
    }
    found: dict[str, Episodes] = {}
    for name, (spec, options) in specs.items():
        summary = run(dataset, tmp_path / name, spec, options=options, **more)
        assert (summary.passed, summary.errors) == (2, 0), (name, summary)
        found[name] = episodes(tmp_path / name)
    wanted = found["dsa"]["tiny-cheapest", 0]
    for name, run_episodes in found.items():
        assert [m.tool_calls for m in run_episodes["tiny-cheapest", 0].messages] == [
            m.tool_calls for m in wanted.messages
        ], name
    for name in ("generate", "completions"):
        for turn, other in zip(found[name]["tiny-cheapest", 0].turns, wanted.turns, strict=True):
            assert turn.tokens is not None
            assert other.tokens is not None
            arrays = read_tokens(tmp_path / name, turn.tokens)
            exactly = read_tokens(tmp_path / "dsa", other.tokens)
            for key in ("prompt_ids", "completion_ids", "mask_offsets", "mask_ids"):
                np.testing.assert_array_equal(arrays[key], exactly[key], err_msg=f"{name} {key}")
            start = int(exactly.get("captured_from", 0))
            np.testing.assert_array_equal(
                arrays["routing"][start:], exactly["routing"], err_msg=name
            )
            np.testing.assert_allclose(arrays["logprobs"], exactly["logprobs"], atol=1e-5)
            assert not arrays["raw_logprobs"]


def test_a_full_window_ends_an_episode_in_order(
    dataset: Path, tmp_path: Path, server: PolicyServer
) -> None:
    """Whatever the client: what no longer fits is a token limit, not an error."""
    folder = tmp_path / "short"
    write_random_model(folder, max_position_embeddings=16)
    config = ServeConfig(model=str(folder), port=0, threads=1)
    with PolicyServer(config).running() as short:
        for name, spec, options in (
            ("dsa", f"dsa:{folder}", {"threads": 1}),
            ("openai", f"openai:short@{short.url}", {"api_key_env": None}),
            ("vllm", f"vllm:short@{short.url}", {}),
        ):
            summary = run(dataset, tmp_path / name, spec, options=options, n=1, preflight=False)
            assert summary.errors == 0, summary
            assert summary.stops == {"token_limit": 4}, name


def test_a_busy_server_is_asked_again(dataset: Path, solver: Path, tmp_path: Path) -> None:
    """Eight episodes at a time, one place and no queue: the others are told when to come back."""
    config = ServeConfig(
        model=str(solver), port=0, threads=1, max_batch=1, max_waiting=0, max_new_tokens=96
    )
    with PolicyServer(config).running() as busy:
        summary = run(
            dataset, tmp_path / "r", f"openai:solver@{busy.url}", n=4,
            options={"api_key_env": None, "max_retries": 100}, task_ids=("tiny-cheapest",),
            sampling=Sampling(temperature=0, max_tokens=96),
        )  # fmt: skip
        assert busy.service.counters.refused > 0
    assert (summary.passed, summary.errors) == (4, 0)


def test_kinds_of_policies() -> None:
    assert policy_kind("dsa:m/") == "dsa"
    assert policy_kind("record:x.jsonl:openai:m@http://h/v1") == "openai"
    assert policy_kind("record:x.jsonl:greedy") == "greedy"
    assert policy_kind("random") == "random"

"""The policy of a model folder: exact ids, limits, deadlines, threads."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import ANSWER, CALL, QUESTION, RESULT, WEATHER_TOOL
from toy_world import SUBMIT, town_task

from envgen.core.errors import CheckpointError, ConfigError
from envgen.core.types import Message, Sampling
from envgen.policies.base import (
    CancelledPolicyError,
    ContextOverflowError,
    DeadlineExceededError,
    PolicyReply,
)
from envgen.policies.dsa import DSAPolicy
from envgen.policies.encoding import load_encoding
from envgen.policies.registry import PolicyConfig, parse_policy

GREEDY = Sampling(temperature=0)
TASK = town_task()


def make(folder: Path, **options: Any) -> DSAPolicy:
    policy = parse_policy(PolicyConfig(spec=f"dsa:{folder}", options={"threads": 1, **options}))
    assert isinstance(policy, DSAPolicy)
    return policy


def ask(policy: DSAPolicy, messages: list[Message], **more: Any) -> PolicyReply:
    given: dict[str, Any] = {"sampling": Sampling(max_tokens=24), "seed": 1, "task": TASK, **more}
    return policy.respond(messages, given.pop("tools", [SUBMIT]), given.pop("sampling"), **given)


@pytest.fixture(scope="module")
def noisy(random_model: Path) -> Iterator[DSAPolicy]:
    with closing(make(random_model, max_kept=64, capture_topk=True)) as policy:
        yield policy


@pytest.fixture(scope="module")
def knowing(weather_model: Path) -> Iterator[DSAPolicy]:
    with closing(make(weather_model)) as policy:
        yield policy


def test_turns_extend_the_ids_and_are_never_rendered_again(knowing: DSAPolicy) -> None:
    tools: Any = [WEATHER_TOOL]
    first = ask(knowing, [QUESTION], tools=tools, sampling=GREEDY)
    assert first.message == CALL.model_copy(update={"reasoning": "Let me see."})
    messages = [QUESTION, first.message, RESULT]
    second = ask(knowing, messages, tools=tools, sampling=GREEDY)
    assert second.message.content == ANSWER.content
    assert first.tokens is not None
    assert second.tokens is not None
    past = [*first.tokens.prompt_ids, *first.tokens.completion_ids]
    new = knowing.local.encoding.extension(messages, tools, 2)
    assert second.tokens.prompt_ids.tolist() == [*past, *new]
    assert second.tokens.stopped
    # A new user message makes a thinking model forget its reasoning.
    longer = [*messages, second.message, Message(role="user", content="And in Rome?")]
    third = ask(knowing, longer, tools=tools, sampling=Sampling(max_tokens=2))
    assert third.tokens is not None
    assert third.tokens.prompt_ids.tolist() == knowing.local.encoding.prompt(longer, tools)


def test_noise_is_extended_as_it_was_written(noisy: DSAPolicy) -> None:
    """Whatever the model writes: ids that no text would give, cut replies, malformed calls."""
    cut = 0
    for seed in range(12):
        messages = [Message(role="user", content="go")]
        before: list[int] = []
        for _ in range(3):
            reply = ask(noisy, messages, seed=seed)
            assert reply.tokens is not None
            assert reply.tokens.prompt_ids[: len(before)].tolist() == before
            before = [*reply.tokens.prompt_ids.tolist(), *reply.tokens.completion_ids.tolist()]
            cut += not reply.tokens.stopped
            messages += [
                reply.message,
                *(
                    Message(role="tool", content="no", tool_call_id=call.id)
                    for call in reply.message.tool_calls
                ),
            ]
            if not reply.message.tool_calls:
                messages.append(Message(role="user", content="call a tool"))
    assert cut > 3


def test_all_that_training_replays_is_there(noisy: DSAPolicy) -> None:
    sampling = Sampling(max_tokens=16, temperature=0.7, top_p=0.9)
    tokens = ask(noisy, [QUESTION], sampling=sampling).tokens
    assert tokens is not None
    size = len(tokens.completion_ids)
    total = len(tokens.prompt_ids) + size - 1
    assert tokens.logprobs is not None
    assert tokens.full_logprobs is not None
    assert tokens.logprobs.shape == tokens.full_logprobs.shape == (size,)
    assert (tokens.logprobs >= tokens.full_logprobs - 1e-5).all()
    assert tokens.mask is not None
    widths = np.diff(tokens.mask.offsets)
    assert len(widths) == size
    assert widths.max() <= 64
    assert tokens.routing is not None
    assert tokens.routing.shape == (total, 1, 2)
    assert tokens.topk is not None
    assert tokens.topk.shape[:2] == (total, 2)
    assert tokens.policy_version == noisy.version
    assert not tokens.raw_logprobs


def test_the_same_seed_gives_the_same_reply_beside_others(noisy: DSAPolicy) -> None:
    alone = [ask(noisy, [QUESTION], seed=seed).message for seed in range(16)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda seed: ask(noisy, [QUESTION], seed=seed).message, range(16)))
    assert together == alone
    assert len({str(message) for message in alone}) == 16


def test_a_conversation_longer_than_the_window_overflows(noisy: DSAPolicy) -> None:
    with pytest.raises(ContextOverflowError, match="window 4096"):
        ask(noisy, [Message(role="user", content="hotel " * 5_000)])


def test_deadline_and_cancel_free_the_place(
    noisy: DSAPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noisy.local.encoding, "stop_ids", ())
    long = Sampling(max_tokens=4_000)
    with pytest.raises(DeadlineExceededError):
        ask(noisy, [QUESTION], sampling=long, deadline=time.monotonic() + 0.2)
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(CancelledPolicyError):
        ask(noisy, [QUESTION], sampling=long, cancel=cancel)
    assert time.monotonic() - started < 3
    while noisy.local.engine.stats().running:
        assert time.monotonic() - started < 10
        time.sleep(0.01)


def test_the_version_names_the_weights(
    random_model: Path, weather_model: Path, tmp_path: Path
) -> None:
    with closing(make(random_model)) as first, closing(make(weather_model)) as second:
        assert len(first.version) == 16
        assert first.version != second.version
        shutil.copytree(random_model, tmp_path / "copy")
        with closing(make(tmp_path / "copy", policy_version="step-7")) as named:
            assert named.version == "step-7"
        with closing(make(tmp_path / "copy")) as copied:
            assert copied.version == first.version


def test_options_are_checked(random_model: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"max_new_tokens": 0}, "'max_new_tokens'"),
        ({"temperature": 1}, "'temperature'"),
        ({"device": "toaster"}, "toaster"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(random_model, **options)
    with pytest.raises(ConfigError, match="unknown policy option 'thinkin'") as missed:
        make(random_model, thinkin=True)
    assert missed.value.hint == "did you mean 'thinking'?"
    with pytest.raises(ConfigError, match="is missing a model folder"):
        parse_policy("dsa:")
    with pytest.raises(CheckpointError, match="is not a folder"):
        make(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="unknown policy 'dsaa:m'") as caught:
        parse_policy("dsaa:m")
    assert "'dsa'" in caught.value.hint


def test_thinking_can_be_switched_off(weather_model: Path) -> None:
    assert load_encoding(weather_model).config.thinking
    with closing(make(weather_model, thinking=False)) as policy:
        assert not policy.local.encoding.config.thinking


def test_threads_are_set(random_model: Path) -> None:
    before = torch.get_num_threads()
    try:
        with closing(make(random_model, threads=2)):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)

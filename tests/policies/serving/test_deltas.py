"""Replies read while they are written are the replies that the encoding reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from tiny_models import TEXTS

from envgen.core.types import Message, ToolCall
from envgen.model.tokenizer import train_tokenizer
from envgen.policies.encoding import Encoding, EncodingConfig, make_encoding
from envgen.policies.encoding.files import tokenizer_config
from envgen.policies.serving import deltas as deltas_module
from envgen.policies.serving.deltas import Delta, ReplyReader

KINDS = [("compact", False), ("compact", True), ("dsml", False), ("dsml", True)]


@cache
def encoding(kind: str, thinking: bool) -> Encoding:
    config = EncodingConfig.model_validate({"kind": kind, "thinking": thinking})
    return make_encoding(config, train_tokenizer(TEXTS, tokenizer_config(config, vocab_size=400)))


def sample_reply(thinking: bool) -> Message:
    calls = (
        ToolCall(id="call_3_0", name="f", arguments={"x": 1, "y": "\u676d\n\n<"}),
        ToolCall(id="call_3_1", name="g", arguments={}),
    )
    return Message(
        role="assistant",
        content="h\u00e9llo \u676d\u5dde a\n\n<b",
        reasoning="think\n<\n" if thinking else None,
        tool_calls=calls,
    )


def read(
    used: Encoding, ids: list[int], stops: tuple[str, ...] = ()
) -> tuple[ReplyReader, list[Delta]]:
    reader = ReplyReader(used, [], 3, stops)
    deltas: list[Delta] = []
    for token in ids:
        if not reader.stopped:
            deltas += reader.feed(token)
    return reader, deltas + reader.finish()


def joined(deltas: list[Delta]) -> Message:
    return Message(
        role="assistant",
        content="".join(delta.content for delta in deltas),
        reasoning="".join(delta.reasoning for delta in deltas) or None,
        tool_calls=tuple(delta.call for delta in deltas if delta.call is not None),
    )


def spoiled(used: Encoding, thinking: bool, rng: random.Random) -> list[int]:
    """The ids of a reply with up to four ids too many, cut anywhere."""
    controls = sorted(used.tokenizer.control.values())
    ids = used.completion(sample_reply(thinking))[:-1]
    for _ in range(rng.randrange(5)):
        anything = rng.randrange(used.tokenizer.vocab_size)
        ids.insert(rng.randrange(len(ids)), rng.choice([rng.choice(controls), anything]))
    ids = ids[: rng.randrange(len(ids) + 1)]
    stop = next((i for i, token in enumerate(ids) if token in used.stop_ids), len(ids))
    return ids[: stop + 1]


@pytest.mark.parametrize(("kind", "thinking"), KINDS)
def test_pieces_of_a_good_reply_are_the_reply(kind: str, thinking: bool) -> None:
    used, reply = encoding(kind, thinking), sample_reply(thinking)
    reader, deltas = read(used, used.completion(reply))
    assert joined(deltas) == reader.message() == reply
    assert len([delta for delta in deltas if delta.content]) > 5
    assert [delta.index for delta in deltas if delta.call] == [0, 1]


@pytest.mark.parametrize(("kind", "thinking"), KINDS)
@pytest.mark.parametrize("seed", range(100))
def test_pieces_of_a_spoiled_reply_are_what_is_read(kind: str, thinking: bool, seed: int) -> None:
    used, rng = encoding(kind, thinking), random.Random(seed)
    ids = spoiled(used, thinking, rng)
    reader, deltas = read(used, ids)
    assert joined(deltas) == reader.message() == used.parse(ids, [], 3, lenient=True)


@pytest.mark.parametrize(("kind", "thinking"), KINDS)
@pytest.mark.parametrize("seed", range(60))
def test_pieces_that_wait_are_what_is_read(
    kind: str, thinking: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a reply may not be read again at every control token, its pieces come later, not otherwise."""
    used, rng = encoding(kind, thinking), random.Random(seed)
    monkeypatch.setattr(deltas_module, "READ_AGAIN_TOKENS", rng.randrange(200))
    monkeypatch.setattr(deltas_module, "READ_AGAIN_PER_TOKEN", rng.choice([0, 1, 2, 4]))
    ids = spoiled(used, thinking, rng)
    reader, deltas = read(used, ids)
    assert joined(deltas) == reader.message() == used.parse(ids, [], 3, lenient=True)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("kind", "thinking"), KINDS)
def test_nothing_but_control_tokens_is_read_in_linear_time(
    kind: str, thinking: bool, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, count = encoding(kind, thinking), 2_000
    parse, read_ids = used.parse, 0

    def counting(ids: Sequence[int], *more: Any, **settings: Any) -> Message:
        nonlocal read_ids
        read_ids += len(ids)
        return parse(ids, *more, **settings)

    monkeypatch.setattr(used, "parse", counting)
    limit = 3 * (deltas_module.READ_AGAIN_TOKENS + deltas_module.READ_AGAIN_PER_TOKEN * count)
    for control in sorted(set(used.tokenizer.control.values()) - set(used.stop_ids)):
        read_ids = 0
        reader = ReplyReader(used, [], 3, whole=whole)
        deltas = [delta for _ in range(count) for delta in reader.feed(control)]
        assert joined(deltas + reader.finish()) == reader.message()
        assert read_ids <= (3 * count if whole else limit + 3 * count)


@pytest.mark.parametrize(("kind", "thinking"), KINDS)
def test_a_stop_sequence_cuts_reasoning_or_content(kind: str, thinking: bool) -> None:
    used, reply = encoding(kind, thinking), sample_reply(thinking)
    reader, deltas = read(used, used.completion(reply), ("llo \u676d",))
    assert reader.stopped
    assert joined(deltas) == reader.message()
    assert reader.message().content == "h\u00e9"
    assert not reader.message().tool_calls
    if thinking:
        reader, deltas = read(used, used.completion(reply), ("ink",))
        assert (reader.message().reasoning, reader.message().content) == ("th", "")


def test_a_thought_of_a_model_that_does_not_think_is_content() -> None:
    used = encoding("compact", False)
    thought = used.tokenizer.token_id("<|thought|>")
    ids = [*used.tokenizer.encode_plain("hm"), thought, *used.tokenizer.encode_plain("yes")]
    reader, deltas = read(used, [*ids, *used.stop_ids])
    assert joined(deltas) == reader.message()
    assert reader.message().content == "hm<|thought|>yes"

"""What holds for every encoding."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path
from typing import Any

import pytest
from encoding_samples import (
    HOSTILE,
    TOOLS,
    call,
    replies,
    reply,
    results,
    sample_encoding,
    sample_tokenizer,
    texts,
    user_turns,
)
from hypothesis import given
from hypothesis import strategies as st

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError
from envgen.core.types import Message, ToolCall
from envgen.model.tokenizer import TokenizerConfig, train_tokenizer
from envgen.policies.encoding import (
    Encoding,
    EncodingConfig,
    EncodingError,
    control_tokens,
    load_encoding,
    make_encoding,
    save_encoding,
)

KINDS = ("compact", "dsml")
CONFIGS: list[dict[str, Any]] = [
    {"kind": kind, "thinking": thinking} for kind in KINDS for thinking in (False, True)
]
every = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(map(str, c.values())))
USER = Message(role="user", content="Which hotel?")


@every
@given(data=st.data())
def test_a_completion_reads_back(config: dict[str, Any], data: st.DataObject) -> None:
    encoding = sample_encoding(**config)
    message = data.draw(replies(thinking=config["thinking"]))
    ids = encoding.completion(message)
    assert ids[-1] in encoding.stop_ids
    assert not set(encoding.stop_ids) & set(ids[:-1])
    assert dumps(encoding.parse(ids, TOOLS, 0)) == dumps(message)


@every
@given(data=st.data())
def test_tokens_in_are_tokens_out(config: dict[str, Any], data: st.DataObject) -> None:
    """Prompt, reply, extension, reply, ... are the prompt of the longer conversation, id for id."""
    encoding = sample_encoding(**config)
    head = [Message(role="system", content=data.draw(texts))] if data.draw(st.booleans()) else []
    messages = head + data.draw(user_turns(thinking=config["thinking"]))
    starts = [i for i, m in enumerate(messages) if m.role == "assistant"]
    ids = encoding.prompt(messages[: starts[0]], TOOLS)
    for begin, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        assert encoding.extends(messages[:end], begin + 1)
        ids += encoding.completion(messages[begin])
        ids += encoding.extension(messages[:end], TOOLS, begin + 1)
        assert ids == encoding.prompt(messages[:end], TOOLS)


@every
@given(data=st.data())
def test_ids_of_any_kind_read_leniently_into_a_message_to_store(
    config: dict[str, Any], data: st.DataObject
) -> None:
    encoding = sample_encoding(**config)
    size = encoding.tokenizer.vocab_size
    special = st.sampled_from(sorted(encoding.tokenizer.control.values()))
    ids = data.draw(st.lists(st.integers(0, size + 3) | special, max_size=30))
    message = encoding.parse(ids, TOOLS, 7, lenient=True)
    stored = Message.model_validate_json(dumps(message).encode())
    assert stored == message
    assert "\0" not in json.dumps(message.model_dump(mode="json"))
    assert [c.id for c in message.tool_calls] == [
        f"call_7_{i}" for i in range(len(message.tool_calls))
    ]
    assert all((c.arguments is None) != (c.arguments_text is None) for c in message.tool_calls)


@every
@given(data=st.data())
def test_a_cut_reply_is_refused_strictly_and_goes_on_leniently(
    config: dict[str, Any], data: st.DataObject
) -> None:
    encoding = sample_encoding(**config)
    message = data.draw(replies(thinking=config["thinking"]))
    whole = encoding.completion(message)
    ids = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(EncodingError):
        encoding.parse(ids, TOOLS, 0)
    read = encoding.parse(ids, TOOLS, 0, lenient=True)
    for kept, original in zip(read.tool_calls, message.tool_calls, strict=False):
        assert kept.arguments is None or dumps(kept) == dumps(original)
    if read.tool_calls:
        assert len(read.tool_calls) <= len(message.tool_calls)
        conversation = [USER, read, *results(read, *["error"] * len(read.tool_calls))]
        ids = encoding.extension(conversation, TOOLS, 2, closed=False)
        assert ids[0] in encoding.stop_ids
        assert ids[1:] == encoding.extension(conversation, TOOLS, 2)
        assert encoding.prompt(conversation, TOOLS)[-len(ids) :] == ids


@every
@given(parts=st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), min_size=1, max_size=4))
def test_no_text_injects_control_tokens(config: dict[str, Any], parts: list[str]) -> None:
    """As many control tokens come out as with harmless texts, and in the same order."""
    encoding = sample_encoding(**config)
    control = set(encoding.tokenizer.control.values())

    def skeleton(text: str) -> list[int]:
        message = reply(
            "", call("f", a=text, b=[text]), reasoning="r" if config["thinking"] else None
        )
        bad = ToolCall(id="call_0_1", name="g", arguments_text=text)
        message = message.model_copy(update={"tool_calls": (*message.tool_calls, bad)})
        ids = encoding.prompt(
            [
                Message(role="system", content=text),
                Message(role="user", content=text),
                message.model_copy(
                    update={"content": text, "reasoning": message.reasoning and text}
                ),
                *results(message, text, text),
            ],
            [],
        )
        return [i for i in ids if i in control]

    assert skeleton("".join(["x", *parts])) == skeleton("harmless")


@every
def test_text_encoded_with_control_tokens_would_be_caught(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: an encoding that trusts texts fails the test above."""
    tokenizer = train_tokenizer(
        ["x"], TokenizerConfig(control_tokens=control_tokens(EncodingConfig(**config)))
    )
    monkeypatch.setattr(tokenizer, "encode_plain", tokenizer.encode)
    encoding = make_encoding(EncodingConfig(**config), tokenizer)
    stop = tokenizer.decode(encoding.stop_ids)
    ids = encoding.prompt([Message(role="user", content=stop)], [])
    assert encoding.stop_ids[0] in ids


@every
@given(data=st.data())
def test_replies_that_are_not_canonical_keep_their_ids(
    config: dict[str, Any], data: st.DataObject
) -> None:
    """The same text in other ids reads the same and is not written anew."""
    encoding = sample_encoding(**config)
    message = data.draw(replies(thinking=config["thinking"]).filter(lambda m: m.tool_calls))
    tokenizer = encoding.tokenizer
    single = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.vocab_size))}
    control = set(tokenizer.control.values())
    ids: list[int] = []
    for token in encoding.completion(message):
        text = tokenizer.token_bytes(token)
        ids += [token] if token in control else [single[bytes([b])] for b in text]
    assert dumps(encoding.parse(ids, TOOLS, 0)) == dumps(message)
    conversation = [USER, message, *results(message, *["x"] * len(message.tool_calls))]
    canonical = encoding.prompt(conversation, TOOLS)
    before = encoding.prompt(conversation[:1], TOOLS)
    assert [*before, *ids, *encoding.extension(conversation, TOOLS, 2)][: len(before)] == canonical[
        : len(before)
    ]


@every
def test_a_new_user_message_re_renders_where_reasoning_is_forgotten(config: dict[str, Any]) -> None:
    encoding = sample_encoding(**config)
    first = reply("", call("f"), reasoning="secret thought" if config["thinking"] else None)
    messages = [USER, first, *results(first, "1"), Message(role="user", content="And now?")]
    answer = reply("done", reasoning="ok" if config["thinking"] else None, turn=1)
    messages.insert(3, answer)
    assert encoding.extends(messages, 2) is not config["thinking"]
    text = encoding.tokenizer.decode(encoding.prompt(messages, TOOLS))
    assert "secret thought" not in text
    assert "done" in text
    if config["thinking"]:
        assert "secret thought" in encoding.tokenizer.decode(encoding.prompt(messages[:3], TOOLS))
        with pytest.raises(EncodingError, match="reasoning"):
            encoding.extension(messages, TOOLS, 4)
    else:
        ids = encoding.prompt(messages[:3], TOOLS) + encoding.completion(answer)
        assert ids + encoding.extension(messages, TOOLS, 4) == encoding.prompt(messages, TOOLS)


@every
def test_calls_get_ids_by_turn(config: dict[str, Any]) -> None:
    encoding = sample_encoding(**config)
    thought = "t" if config["thinking"] else None
    ids = encoding.completion(reply("", call("f"), call("g", x=1), reasoning=thought))
    assert [c.id for c in encoding.parse(ids, TOOLS, 4).tool_calls] == ["call_4_0", "call_4_1"]


@every
@pytest.mark.parametrize(
    ("message", "words"),
    [
        (USER, "assistant messages"),
        (reply("", ToolCall(id="a", name="f", arguments_text="{")), "malformed"),
        (reply("", ToolCall.model_construct(id="a", name="f", arguments={"x": nan})), "NaN"),
        (reply("", call("f", x=10**30)), "too large"),
        (reply("", call("f", x="a\0b")), "NUL"),
        (reply("", call("")), "name"),
        (reply("a\ud800"), "lone surrogate"),
    ],
)
def test_what_can_not_be_written_is_an_error(
    config: dict[str, Any], message: Message, words: str
) -> None:
    if config["thinking"] and message.role == "assistant":
        message = message.model_copy(update={"reasoning": "t"})
    with pytest.raises(EncodingError, match=words):
        sample_encoding(**config).completion(message)


@pytest.mark.parametrize("kind", KINDS)
def test_reasoning_needs_thinking(kind: str) -> None:
    with pytest.raises(EncodingError, match="no thinking"):
        sample_encoding(kind=kind, thinking=False).completion(reply("a", reasoning="b"))


ASKED = reply("", call("f"), call("g"))


@every
@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "ends with nothing"),
        ([USER, reply("a")], "ends with assistant"),
        ([USER, ASKED, *results(ASKED, "1", "2")[:1]], "has no result"),
        ([USER, ASKED, USER], "has no result"),
        ([USER, ASKED, *reversed(results(ASKED, "1", "2"))], "in the order|expected the result"),
        ([USER, Message(role="tool", content="1")], "answers no call"),
    ],
)
def test_conversations_that_make_no_sense_are_refused(
    config: dict[str, Any], messages: list[Message], words: str
) -> None:
    with pytest.raises(EncodingError, match=words):
        sample_encoding(**config).prompt(messages, TOOLS)


@every
@pytest.mark.parametrize("start", [0, 1, 3])
def test_an_extension_follows_a_reply(config: dict[str, Any], start: int) -> None:
    message = reply("", call("f"))
    with pytest.raises(EncodingError, match="must be a reply"):
        sample_encoding(**config).extension([USER, message, *results(message, "1")], TOOLS, start)


@every
def test_model_folders_keep_the_encoding(config: dict[str, Any], tmp_path: Path) -> None:
    encoding = sample_encoding(**config)
    save_encoding(encoding.config, tmp_path / "m")
    encoding.tokenizer.save(tmp_path / "m")
    loaded = load_encoding(tmp_path / "m")
    assert isinstance(loaded, Encoding)
    assert loaded.config == encoding.config
    assert loaded.prompt([USER], TOOLS) == encoding.prompt([USER], TOOLS)


def test_folders_without_an_encoding_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        load_encoding(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"encoding\.json"):
        load_encoding(tmp_path)
    (tmp_path / "encoding.json").write_text('{"kind": "morse"}')
    with pytest.raises(ConfigError, match="morse"):
        load_encoding(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_without_the_control_tokens_is_refused(kind: str) -> None:
    plain = train_tokenizer(["x"], TokenizerConfig(vocab_size=300))
    with pytest.raises(ConfigError, match="has no control tokens"):
        make_encoding(EncodingConfig(kind=kind), plain)


def test_options_of_the_other_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="has no tools"):
        EncodingConfig(kind="dsml", tools="schemas")
    with pytest.raises(ValueError, match="has no block"):
        EncodingConfig(kind="compact", block="tool_calls")


def test_ids_outside_the_vocabulary_are_no_text() -> None:
    encoding = sample_encoding(kind="compact")
    ids = [sample_tokenizer("compact").vocab_size + 5, *encoding.stop_ids]
    with pytest.raises(EncodingError, match="not valid UTF-8"):
        encoding.parse(ids, TOOLS, 0)
    assert encoding.parse(ids, TOOLS, 0, lenient=True).content == "\ufffd"

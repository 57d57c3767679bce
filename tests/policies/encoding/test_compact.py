from __future__ import annotations

import pytest
from encoding_samples import TOOLS, call, reply, results, sample_encoding

from envgen.core.types import Message
from envgen.policies.encoding import EncodingError

ASKED = reply(
    "Let me see.", call("list_hotels", city="Suzhou", limit=3), call("get_weather"), turn=0
)
MESSAGES = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="Which hotel?"),
    ASKED,
    *results(ASKED, '[{"name":"Lotus Inn","price":180},{"name":"West Lake","price":420}]', "sunny"),
]
REPLY = (
    "Let me see.<|call|>list_hotels<|arg|>city<|text|>Suzhou<|arg|>limit<|json|>3"
    "<|call|>get_weather<|end|>"
)
RESULTS = '<|tool|>[{"name":"Lotus Inn","price":180},{"name":"West Lake","price":420}]<|tool|>sunny'


def rendered(**config: object) -> str:
    encoding = sample_encoding(kind="compact", **config)
    return encoding.tokenizer.decode(encoding.prompt(MESSAGES, TOOLS))


def test_a_conversation_in_full() -> None:
    names = "<|tools|><|call|>get_weather<|call|>list_hotels"
    assert rendered() == (
        f"<|system|>Be brief.{names}<|user|>Which hotel?<|assistant|>{REPLY}{RESULTS}<|assistant|>"
    )


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("none", ""),
        (
            "signatures",
            "<|tools|><|call|>get_weather<|arg|>city<|call|>list_hotels<|arg|>city<|arg|>limit",
        ),
        (
            "schemas",
            '<|tools|>{"name":"get_weather","description":"Tell the weather","parameters":'
            '{"type":"object","properties":{"city":{"type":"string"}}}}\n'
            '{"name":"list_hotels","description":"Tell the weather","parameters":'
            '{"type":"object","properties":{"city":{},"limit":{}}}}',
        ),
    ],
)
def test_tools_are_told_as_asked_for(tools: str, expected: str) -> None:
    assert rendered(tools=tools, system=False).startswith(f"{expected}<|user|>Which hotel?")


def test_results_as_tables() -> None:
    assert "<|tool|>[name,price;Lotus Inn,180;West Lake,420]<|tool|>sunny<|assistant|>" in rendered(
        results="table"
    )


def test_a_call_costs_two_control_tokens_an_argument_and_one_each_for_known_words() -> None:
    encoding = sample_encoding(kind="compact")
    ids = encoding.completion(reply("", call("list_hotels", city="name")))
    texts = [encoding.tokenizer.decode([i]) for i in ids]
    assert texts == ["<|call|>", "list_hotels", "<|arg|>", "city", "<|text|>", "name", "<|end|>"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hi", "cut"),
        ("hi<|end|>there", "goes on"),
        ("hi<|user|>there<|end|>", r"content holds a stray <\|user\|>"),
        ("so<|thought|>hi<|end|>", "no thinking"),
        ("<|call|><|end|>", "expected a tool name"),
        ("<|call|>f<|arg|>a<|end|>", "has no value"),
        ("<|call|>f<|arg|>a<|text|>b<|json|>1<|end|>", r"stray <\|json\|>"),
        ("<|call|>f<|arg|>a<|json|>{bad<|end|>", "not valid JSON"),
        ("<|call|>f<|arg|>a<|json|>NaN<|end|>", "NaN"),
        ("<|call|>f<|arg|>a<|text|>1<|arg|>a<|text|>2<|end|>", "twice"),
        ("<|call|>f<|arg|>a<|text|>1<|user|><|end|>", r"stray <\|user\|>"),
        ("<|call|>f<|text|>1<|end|>", "expected a tool name"),
    ],
)
def test_the_strict_reader_says_what_is_wrong(text: str, words: str) -> None:
    encoding = sample_encoding(kind="compact")
    with pytest.raises(EncodingError, match=words):
        encoding.parse(encoding.tokenizer.encode(text), TOOLS, 0)


def test_empty_reasoning_has_no_marker() -> None:
    encoding = sample_encoding(kind="compact", thinking=True)
    with pytest.raises(EncodingError, match="empty"):
        encoding.parse(encoding.tokenizer.encode("<|thought|>hi<|end|>"), TOOLS, 0)


def test_the_lenient_reader_keeps_good_calls_and_the_text_of_bad_ones() -> None:
    encoding = sample_encoding(kind="compact")
    text = "hm<|user|><|call|>f<|arg|>a<|text|>b<|call|>g<|arg|>x<|json|>{bad<|call|>h<|arg|>y"
    message = encoding.parse(encoding.tokenizer.encode(text), TOOLS, 2, lenient=True)
    assert message.content == "hm<|user|>"
    first, second, third = message.tool_calls
    assert first == call("f", turn=2, a="b")
    assert (second.name, second.arguments, second.arguments_text) == (
        "g",
        None,
        "<|arg|>x<|json|>{bad",
    )
    assert (third.id, third.name, third.arguments_text) == ("call_2_2", "h", "<|arg|>y")


def test_broken_utf8_spoils_only_its_call() -> None:
    encoding = sample_encoding(kind="compact")
    half = encoding.tokenizer.encode("\u2603")[:1]
    ids = [
        *encoding.tokenizer.encode("ok<|call|>f<|arg|>a<|text|>"),
        *half,
        *encoding.tokenizer.encode("<|call|>g<|end|>"),
    ]
    message = encoding.parse(ids, TOOLS, 0, lenient=True)
    assert [c.arguments for c in message.tool_calls] == [None, {}]
    assert message.tool_calls[0].arguments_text == "<|arg|>a<|text|>\ufffd"
    with pytest.raises(EncodingError, match="not valid UTF-8"):
        encoding.parse(ids, TOOLS, 0)


def test_reasoning_may_be_kept_for_ever() -> None:
    encoding = sample_encoding(kind="compact", thinking=True, drop_thinking=False)
    answer = reply("Lotus Inn", reasoning="cheap")
    messages = [
        Message(role="user", content="Which?"),
        answer,
        Message(role="user", content="Sure?"),
    ]
    ids = encoding.prompt(messages[:1], TOOLS) + encoding.completion(answer)
    assert encoding.extends(messages, 2)
    assert ids + encoding.extension(messages, TOOLS, 2) == encoding.prompt(messages, TOOLS)
    assert "cheap<|thought|>" in encoding.tokenizer.decode(encoding.prompt(messages, TOOLS))

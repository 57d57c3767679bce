"""Golden cases, derived by hand from the published description of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from encoding_samples import call, reply, results, sample_encoding, weather_tool

from envgen.core.types import Message, ToolCall
from envgen.model.tokenizer import TokenizerConfig, train_tokenizer
from envgen.policies.encoding import (
    EncodingConfig,
    EncodingError,
    control_tokens,
    load_encoding,
    make_encoding,
    save_encoding,
    tokenizer_config,
)

BAR, LOW = "\uff5c", "\u2581"
BOS, EOS = f"<{BAR}begin{LOW}of{LOW}sentence{BAR}>", f"<{BAR}end{LOW}of{LOW}sentence{BAR}>"
USER, ASSISTANT, D = f"<{BAR}User{BAR}>", f"<{BAR}Assistant{BAR}>", f"{BAR}DSML{BAR}"
TOOL = weather_tool(city={"type": "string"}, days={"type": "integer"})
TOLD = f"""## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{D}function_calls>" block like the following as part of your reply to the user:
<{D}function_calls>
<{D}invoke name="$FUNCTION_NAME">
<{D}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{D}parameter>
...
</{D}invoke>
<{D}invoke name="$FUNCTION_NAME2">
...
</{D}invoke>
</{D}function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<{D}function_calls>
...
</{D}function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
{{"name": "get_weather", "description": "Tell the weather", "parameters": {{"type": "object", "properties": {{"city": {{"type": "string"}}, "days": {{"type": "integer"}}}}}}}}
</functions>
"""  # noqa: E501  # the format's own lines
FORMAT = {"type": "object", "title": "\u00e9t\u00e9"}
ASKED_FORMAT = (
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
    '{"type": "object", "title": "\u00e9t\u00e9"}'
)
ASKS = reply(
    "I look.",
    call("get_weather", city="New York", days=2),
    call("get_weather", city='"a" <b>\n', more=[1, {"x": None}], days=2.5),
    reasoning="Two cities.",
)
CALLS = (
    f"I look.\n\n<{D}function_calls>\n"
    f'<{D}invoke name="get_weather">\n'
    f'<{D}parameter name="city" string="true">New York</{D}parameter>\n'
    f'<{D}parameter name="days" string="false">2</{D}parameter>\n'
    f"</{D}invoke>\n"
    f'<{D}invoke name="get_weather">\n'
    f'<{D}parameter name="city" string="true">"a" <b>\n</{D}parameter>\n'
    f'<{D}parameter name="more" string="false">[1, {{"x": null}}]</{D}parameter>\n'
    f'<{D}parameter name="days" string="false">2.5</{D}parameter>\n'
    f"</{D}invoke>\n</{D}function_calls>{EOS}"
)
RESULTS = (
    "\n\n<function_results>\n<result>sunny</result>\n<result>rain</result>\n</function_results>\n\n"
)
SYSTEM = Message(role="system", content="Be brief.")
ASK, AGAIN = Message(role="user", content="Weather?"), Message(role="user", content="And now?")
TURN = [ASK, ASKS, *results(ASKS, "sunny", "rain")]
DONE = reply("It rains.", reasoning="Clear.", turn=1)


def prompt(messages: list[Message], tools: Any = (), **config: Any) -> str:
    encoding = sample_encoding(kind="dsml", **config)
    return encoding.tokenizer.decode(encoding.prompt(messages, tools))


def test_a_thinking_turn() -> None:
    asked = f"{BOS}Be brief.\n\n{TOLD}{USER}Weather?{ASSISTANT}<think>"
    assert prompt([SYSTEM, ASK], [TOOL], thinking=True) == asked
    assert prompt([SYSTEM, *TURN], [TOOL], thinking=True) == (
        f"{asked}Two cities.</think>{CALLS}{RESULTS}<think>"
    )


def test_a_turn_without_thinking() -> None:
    plain = [m.model_copy(update={"reasoning": None}) for m in TURN]
    assert prompt([SYSTEM, *plain]) == (
        f"{BOS}Be brief.{USER}Weather?{ASSISTANT}</think>{CALLS}{RESULTS}</think>"
    )
    assert prompt([SYSTEM, *TURN]) == prompt([SYSTEM, *plain])


def test_a_new_user_message_drops_reasoning_and_keeps_calls() -> None:
    assert prompt([*TURN, DONE, AGAIN], thinking=True) == (
        f"{BOS}{USER}Weather?{ASSISTANT}</think>{CALLS}{RESULTS}</think>It rains.{EOS}"
        f"{USER}And now?{ASSISTANT}<think>"
    )


def test_without_a_system_message_the_tools_stand_alone() -> None:
    assert prompt([ASK], [TOOL]) == f"{BOS}\n\n{TOLD}{USER}Weather?{ASSISTANT}</think>"


def test_the_response_format_stands_behind_the_tools() -> None:
    assert prompt([SYSTEM, ASK], [TOOL], response_format=FORMAT) == (
        f"{BOS}Be brief.\n\n{TOLD}\n\n{ASKED_FORMAT}{USER}Weather?{ASSISTANT}</think>"
    )
    assert prompt([ASK], response_format=FORMAT) == (
        f"{BOS}\n\n{ASKED_FORMAT}{USER}Weather?{ASSISTANT}</think>"
    )


def test_a_saved_response_format_keeps_its_order(tmp_path: Path) -> None:
    encoding = sample_encoding(kind="dsml", response_format=FORMAT)
    save_encoding(encoding.config, tmp_path)
    encoding.tokenizer.save(tmp_path)
    assert load_encoding(tmp_path).prompt([ASK], ()) == encoding.prompt([ASK], ())


def test_a_developer_message_takes_tools_and_format() -> None:
    config = {"thinking": True, "tools_in": "developer", "response_format": FORMAT}
    assert prompt([SYSTEM, ASK, DONE, AGAIN], [TOOL], **config) == (
        f"{BOS}Be brief.{USER}Weather?{ASSISTANT}</think>It rains.{EOS}"
        f"{USER}\n\n{TOLD}\n\n{ASKED_FORMAT}\n\n# The user's message is: And now?{ASSISTANT}<think>"
    )
    with pytest.raises(EncodingError, match="content"):
        prompt([Message(role="user")], [TOOL], **config)


@pytest.mark.parametrize("thinking", [False, True])
def test_moving_the_tools_re_renders(thinking: bool) -> None:
    encoding = sample_encoding(kind="dsml", thinking=thinking, tools_in="developer")
    assert encoding.extends(TURN, 2)
    assert not encoding.extends([*TURN, DONE, AGAIN], 5)


def test_the_block_may_have_another_name() -> None:
    encoding = sample_encoding(kind="dsml", block="tool_calls")
    text = encoding.tokenizer.decode(encoding.completion(reply("", call("f"))))
    assert text == (
        f'\n\n<{D}tool_calls>\n<{D}invoke name="f">\n\n</{D}invoke>\n</{D}tool_calls>{EOS}'
    )
    assert f'writing a "<{D}tool_calls>" block' in prompt([ASK], [TOOL], block="tool_calls")


def test_a_call_without_parameters_needs_no_empty_line() -> None:
    text = f'\n\n<{D}function_calls>\n<{D}invoke name="f">\n</{D}invoke>\n</{D}function_calls>{EOS}'
    assert read(text).tool_calls == (call("f"),)


def test_ids_are_those_of_the_whole_text() -> None:
    """Templates and contents are tokenized together, as a tokenizer does that sees one string."""
    encoding = sample_encoding(kind="dsml", thinking=True)
    ids = encoding.prompt([SYSTEM, *TURN], [TOOL])
    assert ids == encoding.tokenizer.encode(encoding.tokenizer.decode(ids))


def test_tags_are_cheap_with_the_tokenizer_made_for_them() -> None:
    config = EncodingConfig(kind="dsml")
    message = reply("", call("list_hotels", city="Suzhou"))
    bare = TokenizerConfig(vocab_size=400, control_tokens=control_tokens(config))
    config_file = tokenizer_config(config, ["list_hotels", "city", "name"], vocab_size=400)
    costs = []
    for settings in (bare, config_file):
        tokenizer = train_tokenizer(["in Suzhou, in Suzhou"], settings)
        costs.append(len(make_encoding(config, tokenizer).completion(message)))
    assert costs[1] < costs[0] / 2


def test_a_thinking_model_must_think_or_call() -> None:
    encoding = sample_encoding(kind="dsml", thinking=True)
    with pytest.raises(EncodingError, match="needs reasoning"):
        encoding.completion(reply("It rains."))
    silent = reply("", call("f"))
    ids = encoding.completion(silent)
    assert encoding.tokenizer.decode(ids).startswith("</think>\n\n<")
    assert encoding.parse(ids, (), 0) == silent


def read(text: str, *, thinking: bool = False, lenient: bool = False) -> Message:
    encoding = sample_encoding(kind="dsml", thinking=thinking)
    return encoding.parse(encoding.tokenizer.encode(text), (), 0, lenient=lenient)


OPEN, CLOSE = f"\n\n<{D}function_calls>\n", f"</{D}function_calls>{EOS}"


def invoke(name: str, parameters: str = "") -> str:
    return f'<{D}invoke name="{name}">\n{parameters}\n</{D}invoke>\n'


def parameter(name: str, value: str, kind: str = "true") -> str:
    return f'<{D}parameter name="{name}" string="{kind}">{value}</{D}parameter>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hi", "cut"),
        (f"hi{EOS}x", "goes on after its end"),
        (f"hi</think>{EOS}", "stray </think>"),
        (f"hi{USER}{EOS}", "content holds a stray"),
        (f"hi\n<{D}function_calls>\n{invoke('f')}{CLOSE}", "empty line"),
        (f"hi{D}{EOS}", "empty line"),
        (f"{OPEN}{CLOSE}", "no call"),
        (f"{OPEN}x{invoke('f')}{CLOSE}", "no call but 'x'"),
        (f"{OPEN}{invoke('f')}", "cut"),
        (f"{OPEN}{invoke('f')}{EOS}", "block of calls is cut"),
        (f"{OPEN}{invoke('f')}</{D}function_calls>x{EOS}", "goes on after its calls"),
        (f"{OPEN}{invoke('f')}x{CLOSE}", "does not end with its tag"),
        (f"{OPEN}{invoke('')}{CLOSE}", "expected a tool name"),
        (f"{OPEN}{invoke('f', 'x')}{CLOSE}", "expected a parameter, got 'x'"),
        (f"{OPEN}{invoke('f', parameter('a', '1') * 2)}{CLOSE}", "expected a parameter"),
        (f"{OPEN}{invoke('f', parameter('a', '1') + chr(10))}{CLOSE}", "empty line"),
        (f"{OPEN}{invoke('f', parameter('a', '1', 'maybe'))}{CLOSE}", "expected a parameter"),
        (f"{OPEN}{invoke('f', parameter('a', '{', 'false'))}{CLOSE}", "not valid JSON"),
        (f"{OPEN}{invoke('f', parameter('a', '<think>'))}{CLOSE}", "stray <think>"),
        (
            f"{OPEN}{invoke('f', parameter('a', '1') + chr(10) + parameter('a', '2'))}{CLOSE}",
            "twice",
        ),
    ],
)
def test_the_strict_reader_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(EncodingError, match=words):
        read(text)
    assert read(text, lenient=True).role == "assistant"


def test_thinking_must_end() -> None:
    with pytest.raises(EncodingError, match="does not end with </think>"):
        read(f"hm{EOS}", thinking=True)
    assert read(f"hm{EOS}", thinking=True, lenient=True) == reply(reasoning="hm")
    unended = f"hm{OPEN}{invoke('f')}{CLOSE}"
    assert read(unended, thinking=True, lenient=True) == reply("", call("f"), reasoning="hm")


def test_text_that_looks_like_a_tag_is_text() -> None:
    """Control tokens count by id: a value may spell out the whole format."""
    encoding = sample_encoding(kind="dsml")
    message = reply(CALLS, call("f", a=CALLS, b=[EOS]))
    assert encoding.parse(encoding.completion(message), (), 0) == message


@pytest.mark.parametrize(("name", "key"), [('a">\nb', "x"), ("f", 'x" string="true">y')])
def test_names_that_would_read_back_otherwise_are_refused(name: str, key: str) -> None:
    encoding = sample_encoding(kind="dsml")
    with pytest.raises(EncodingError):
        encoding.completion(reply("", ToolCall(id="call_0_0", name=name, arguments={key: "1"})))


def test_the_lenient_reader_keeps_good_calls_and_the_text_of_bad_ones() -> None:
    good, bad = invoke("f", parameter("a", "b")), invoke("g", parameter("n", "{", "false"))
    message = read(f'ok{OPEN}{good}{bad}<{D}invoke name="h">\n<{D}para', lenient=True)
    first, second, third = message.tool_calls
    assert (message.content, first) == ("ok", call("f", a="b"))
    assert (second.name, second.arguments) == ("g", None)
    assert second.arguments_text == parameter("n", "{", "false")
    assert (third.name, third.arguments_text) == ("h", f"<{D}para")


def test_a_block_without_invokes_is_one_malformed_call() -> None:
    message = read(f'{OPEN}{{"name": "f"}}\n{CLOSE}', lenient=True)
    assert [(c.name, c.arguments_text) for c in message.tool_calls] == [("", '{"name": "f"}\n')]


def test_malformed_calls_can_be_told_again() -> None:
    encoding = sample_encoding(kind="dsml")
    bad = ToolCall(id="call_0_0", name="f", arguments_text=f"{{{EOS}")
    message = Message(role="assistant", tool_calls=(bad,))
    ids = encoding.prompt([ASK, message, *results(message, "error")], ())
    assert ids.count(encoding.stop_ids[0]) == 1
    assert invoke("f", f"{{{EOS}") in encoding.tokenizer.decode(ids)

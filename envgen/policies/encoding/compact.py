"""``compact``: as few tokens as a conversation can have and still be read strictly; for tiny models.

A conversation, one line here for each piece (nothing stands between the pieces)::

    <|system|>text
    <|tools|><|call|>list_hotels<|call|>get_hotel        names; see EncodingConfig.tools
    <|user|>text
    <|assistant|>                                        here the model writes
    reasoning<|thought|>text<|call|>list_hotels<|arg|>city<|text|>Suzhou<|arg|>limit<|json|>3<|end|>
    <|tool|>result<|tool|>result                         in the order of the calls
    <|assistant|>

Reasoning and its ``<|thought|>``, text and calls may each be absent. ``<|text|>`` starts a raw string,
``<|json|>`` any other value: two control tokens an argument, and no text is quoted or escaped. A name or key
runs to the next control token, so one that is a word of the tokenizer costs one token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from envgen.core.canonical import compact as compact_json
from envgen.core.jsonvalues import unsafe_text
from envgen.core.types import Message, ToolCall
from envgen.policies.base import Tool, tool_name
from envgen.policies.context import retain_thinking
from envgen.policies.encoding.base import EncodingConfig, EncodingError
from envgen.policies.encoding.codec import Codec, Control, Part
from envgen.policies.encoding.reply import (
    called,
    function,
    has_user,
    load_json,
    require_expressible,
    require_prompt,
    require_reply,
    require_same,
)
from envgen.policies.encoding.tables import as_table

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer

SYSTEM, TOOLS = Control("<|system|>"), Control("<|tools|>")
USER, ASSISTANT, TOOL = Control("<|user|>"), Control("<|assistant|>"), Control("<|tool|>")
CALL, ARG, TEXT, JSON = (Control(f"<|{name}|>") for name in ("call", "arg", "text", "json"))
THOUGHT, END = Control("<|thought|>"), Control("<|end|>")
CONTROLS = (SYSTEM, TOOLS, USER, ASSISTANT, TOOL, CALL, ARG, TEXT, JSON, THOUGHT, END)


class CompactEncoding:
    """The short form for tiny models."""

    def __init__(self, config: EncodingConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._codec = Codec(tokenizer, CONTROLS)
        self.stop_ids: tuple[int, ...] = (self._codec.id(END),)
        mark = self._codec.mark
        self._call, self._arg, self._end = mark(CALL), mark(ARG), mark(END)
        self._thought, self._json = mark(THOUGHT), mark(JSON)
        self._value = re.compile(f"([{mark(TEXT)}{mark(JSON)}])")

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """System, tools, the conversation, the opening of the reply."""
        require_prompt(messages)
        seen = retain_thinking(messages) if self.config.drop_thinking else messages
        return self._codec.ids([*self._conversation(seen, tools), ASSISTANT])

    def extension(
        self, messages: Sequence[Message], tools: Sequence[Tool], start: int, *, closed: bool = True
    ) -> list[int]:
        """The new messages and the opening of the reply."""
        require_reply(messages, start)
        require_prompt(messages)
        if not self.extends(messages, start):
            raise EncodingError("a new user message drops reasoning", "render the prompt again")
        new = [part for message in messages[start:] for part in self._message(message)]
        return self._codec.ids([*([] if closed else [END]), *new, ASSISTANT])

    def extends(self, messages: Sequence[Message], start: int) -> bool:
        """False where a user message makes a thinking model forget."""
        forgets = self.config.thinking and self.config.drop_thinking
        return not (forgets and has_user(messages[start:]))

    def completion(self, message: Message) -> list[int]:
        """What ``parse`` reads as ``message``."""
        require_expressible(message, self.config)
        ids = self._codec.ids(self._reply(message))
        require_same(message, self.parse(ids, (), 0))
        return ids

    def parse(
        self, ids: Sequence[int], tools: Sequence[Tool], turn: int, *, lenient: bool = False
    ) -> Message:
        """Split at control tokens."""
        body, end, rest = self._codec.marked(ids).partition(self._end)
        problems = [] if end else ["the reply is cut: it does not end with <|end|>"]
        if rest:
            problems.append("the reply goes on after <|end|>")
        head, *written = body.split(self._call)
        reasoning, content = self._split_head(head, problems)
        calls = []
        for i, text in enumerate(written):
            cut = not end and i == len(written) - 1
            calls.append(self._read_call(text, turn, i, problems, cut=cut))
        if problems and not lenient:
            raise EncodingError(problems[0])
        if lenient:
            reasoning, content = self._codec.unmarked(reasoning), self._codec.unmarked(content)
        return Message(
            role="assistant",
            content=content,
            reasoning=reasoning or None,
            tool_calls=tuple(calls),
        )

    def _split_head(self, head: str, problems: list[str]) -> tuple[str, str]:
        """Reasoning and content."""
        reasoning, thought, content = head.partition(self._thought)
        if not thought:
            reasoning, content = "", head
        elif not self.config.thinking:
            problems.append("the reply reasons, but this encoding has no thinking")
            reasoning, content = "", head  # a stream has sent it as content by now
        elif not reasoning:
            problems.append("the reasoning before <|thought|> is empty")
        for name, text in (("reasoning", reasoning), ("content", content)):
            found = self._codec.stray(text)
            if found:
                problems.append(f"the {name} {found}")
        return reasoning, content

    def _read_call(
        self, text: str, turn: int, number: int, problems: list[str], *, cut: bool
    ) -> ToolCall:
        name, *written = text.split(self._arg)
        try:
            if cut:
                raise EncodingError("the call is cut")
            if not name or self._codec.stray(name) or unsafe_text(name):
                raise EncodingError(f"expected a tool name, got {self._codec.unmarked(name)!r}")
            return called(turn, number, name, self._read_arguments(written), None)
        except EncodingError as error:
            problems.append(f"call {number} is malformed: {error}")
        name = self._value.split(name)[0]
        rest = self._codec.unmarked(text[len(name) :])
        return called(turn, number, self._codec.unmarked(name), None, rest)

    def _read_arguments(self, written: list[str]) -> dict[str, JsonValue]:
        arguments: dict[str, JsonValue] = {}
        for text in written:
            key, *value = self._value.split(text)
            argument = "".join([key, *value[1:]])
            found = self._codec.stray(argument) or unsafe_text(argument, len(argument))
            if len(value) != 2 or found:
                raise EncodingError(f"an argument {found or 'has no value'}")
            if key in arguments:
                raise EncodingError(f"the argument {key!r} is given twice")
            arguments[key] = load_json(value[1]) if value[0] == self._json else value[1]
        return arguments

    def _conversation(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[Part]:
        """All messages, with the tools behind leading system messages."""
        head = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
        for message in messages[:head]:
            yield from self._message(message)
        yield from self._tools(tools)
        for message in messages[head:]:
            yield from self._message(message)

    def _message(self, message: Message) -> Iterator[Part]:
        if message.role == "assistant":
            yield ASSISTANT
            yield from self._reply(message)
        elif message.role == "user":
            yield from (USER, message.content)
        elif message.role == "tool":
            table = self.config.results == "table"
            yield from (TOOL, as_table(message.content) if table else message.content)
        elif self.config.system:
            yield from (SYSTEM, message.content)

    def _reply(self, message: Message) -> Iterator[Part]:
        if message.reasoning and self.config.thinking:
            yield from (message.reasoning, THOUGHT)
        yield message.content
        for call in message.tool_calls:
            yield from (CALL, call.name)
            yield from _arguments(call)
        yield END

    def _tools(self, tools: Sequence[Tool]) -> Iterator[Part]:
        kind = self.config.tools
        if kind == "none" or not tools:
            return
        yield TOOLS
        if kind == "schemas":
            yield "\n".join(compact_json(function(tool)) for tool in tools)
            return
        for tool in tools:
            yield from (CALL, tool_name(tool))
            if kind == "signatures":
                for key in function(tool).get("parameters", {}).get("properties", {}):
                    yield from (ARG, key)


def _arguments(call: ToolCall) -> Iterator[Part]:
    if call.arguments is None:
        yield call.arguments_text or ""  # only in a prompt: plain text, whatever it looks like
        return
    for key, value in call.arguments.items():
        yield from (ARG, key)
        yield from (TEXT, value) if isinstance(value, str) else (JSON, compact_json(value))

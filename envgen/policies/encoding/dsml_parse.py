"""Reads replies in DeepSeek-V3.2's encoding: strictly, or as well as can be."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import JsonValue

from envgen.core.jsonvalues import unsafe_text
from envgen.core.types import Message, ToolCall
from envgen.policies.encoding.base import EncodingConfig, EncodingError
from envgen.policies.encoding.codec import Codec
from envgen.policies.encoding.dsml_text import DSML, END_THINK, EOS
from envgen.policies.encoding.reply import called, load_json


class DsmlReader:
    """Ids of a reply to a message."""

    def __init__(self, codec: Codec, config: EncodingConfig) -> None:
        self._codec = codec
        self._thinking = config.thinking
        self._end, self._end_think = codec.mark(EOS), codec.mark(END_THINK)
        tag = codec.mark(DSML)
        block = re.escape(config.block)
        self._open = f"\n\n<{tag}{config.block}>\n"
        self._close = f"</{tag}{config.block}>"
        self._loose_open = re.compile(rf"\n*<?{tag}(?:{block}>?\n?)?")
        self._invoke = f'<{tag}invoke name="'
        self._head = re.compile(r'(.*?)">\n', re.DOTALL)
        self._tail = f"\n</{tag}invoke>"
        self._parameter = re.compile(
            rf'<{tag}parameter name="([^{tag}]*?)" string="(true|false)">([^{tag}]*)</{tag}parameter>'
        )

    def read(self, ids: Sequence[int], turn: int, *, lenient: bool) -> Message:
        """The message.

        Raises:
            EncodingError: if not ``lenient`` and something is amiss.
        """
        problems: list[str] = []
        body, end, rest = self._codec.marked(ids).partition(self._end)
        if not end:
            problems.append("the reply is cut: it does not end with the end of sentence")
        if rest:
            problems.append("the reply goes on after its end")
        reasoning, answer = self._split_thinking(body, problems)
        content, block = self._split_block(answer, problems)
        for name, text in (("reasoning", reasoning), ("content", content)):
            stray = self._codec.stray(text)
            if stray:
                problems.append(f"the {name} {stray}")
        calls = () if block is None else self._read_block(block, turn, problems)
        if problems and not lenient:
            raise EncodingError(problems[0])
        if lenient:
            reasoning, content = self._codec.unmarked(reasoning), self._codec.unmarked(content)
        return Message(
            role="assistant", content=content, reasoning=reasoning or None, tool_calls=calls
        )

    def _split_thinking(self, body: str, problems: list[str]) -> tuple[str, str]:
        """Reasoning, and what comes behind it; without a ``</think>`` the first block ends reasoning."""
        if not self._thinking:
            return "", body
        reasoning, mark, answer = body.partition(self._end_think)
        if mark:
            return reasoning, answer
        problems.append("the reasoning does not end with </think>")
        start = body.find(self._open)
        return (body, "") if start < 0 else (body[:start], body[start:])

    def _split_block(self, text: str, problems: list[str]) -> tuple[str, str | None]:
        """Content, and what stands in the block of calls if there is one."""
        content, mark, block = text.partition(self._open)
        if mark:
            return content, block
        loose = self._loose_open.search(text)
        if loose is None:
            return text, None
        problems.append("a block of calls does not begin with an empty line and its tag")
        return text[: loose.start()], text[loose.end() :]

    def _read_block(self, block: str, turn: int, problems: list[str]) -> tuple[ToolCall, ...]:
        inner, mark, rest = block.partition(self._close)
        if not mark:
            problems.append("the block of calls is cut")
        if rest:
            problems.append("the reply goes on after its calls")
        junk, *written = inner.split(self._invoke)
        if junk or not written:
            problems.append(f"the block begins with no call but {self._codec.unmarked(junk)!r}")
        if not written and junk.strip():
            return (called(turn, 0, "", None, self._codec.unmarked(junk)),)
        return tuple(self._read_call(text, turn, i, problems) for i, text in enumerate(written))

    def _read_call(self, text: str, turn: int, number: int, problems: list[str]) -> ToolCall:
        head = self._head.match(text)
        name = head.group(1) if head else ""
        start = (
            head.end() - 1 if head else 0
        )  # keeps the line break: without parameters it is the only one
        body, tail, rest = text[start:].partition(self._tail)
        body = body.removeprefix("\n")
        if rest != "\n":
            problems.append(f"call {number} does not end with its tag and a line break")
        try:
            if not tail:
                raise EncodingError("it is cut")
            if not name or self._codec.stray(name) or unsafe_text(name):
                raise EncodingError(f"expected a tool name, got {self._codec.unmarked(name)!r}")
            return called(turn, number, name, self._read_parameters(body), None)
        except EncodingError as error:
            problems.append(f"call {number} is malformed: {error}")
        value = self._codec.unmarked(body)
        return called(turn, number, self._codec.unmarked(name), None, value)

    def _read_parameters(self, body: str) -> dict[str, JsonValue]:
        arguments: dict[str, JsonValue] = {}
        at = 0
        while at < len(body):
            found = self._parameter.match(body, at)
            if found is None or body[found.end() : found.end() + 1] not in ("", "\n"):
                raise EncodingError(
                    f"expected a parameter, got {self._codec.unmarked(body[at : at + 60])!r}"
                )
            key, kind, value = found.groups()
            wrong = self._codec.stray(key + value) or unsafe_text(key + value, len(key + value))
            if wrong:
                raise EncodingError(f"an argument {wrong}")
            if key in arguments:
                raise EncodingError(f"the argument {key!r} is given twice")
            arguments[key] = value if kind == "true" else load_json(value)
            at = found.end() + 1
        if body.endswith("\n"):
            raise EncodingError("its parameters end with an empty line")
        return arguments

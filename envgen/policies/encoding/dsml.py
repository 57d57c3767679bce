r"""``dsml``: the message encoding of DeepSeek-V3.2 (published as ``encoding_dsv32``), byte for byte.

A conversation, with ``|`` for the fullwidth bar; line breaks are where ``\n`` is written::

    <|begin of sentence|>system text [\n\n tools] [\n\n response format]
    <|User|>text<|Assistant|><think>                             </think> where the model does not think
    reasoning</think>text\n\n<|DSML|function_calls>\n
    <|DSML|invoke name="list_hotels">\n
    <|DSML|parameter name="city" string="true">Suzhou</|DSML|parameter>\n
    </|DSML|invoke>\n</|DSML|function_calls><|end of sentence|>
    \n\n<function_results>\n<result>...</result>\n</function_results>\n\n<think>

The opening ``<think>`` or ``</think>`` belongs to the prompt, the closing ``</think>`` and the end to the
reply. Reasoning is shown behind the last user message only, so a thinking model's past is rendered again when
a user speaks.
Tools and response format stand in the first system message (an empty one is added if need be), or
turn the last user message into a *developer* message (``tools_in``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from envgen.core.types import Message, ToolCall
from envgen.policies.base import Tool
from envgen.policies.encoding.base import EncodingConfig, EncodingError
from envgen.policies.encoding.codec import Codec, Part
from envgen.policies.encoding.dsml_parse import DsmlReader
from envgen.policies.encoding.dsml_text import (
    ASSISTANT,
    BOS,
    CONTROLS,
    END_THINK,
    EOS,
    THINK,
    USER,
    closing,
    opening,
    to_json,
    told_format,
    told_tools,
)
from envgen.policies.encoding.reply import (
    has_user,
    require_expressible,
    require_prompt,
    require_reply,
    require_same,
)

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer


class DsmlEncoding:
    """DeepSeek-V3.2's message encoding."""

    def __init__(self, config: EncodingConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._codec = Codec(tokenizer, CONTROLS)
        self._reader = DsmlReader(self._codec, config)
        self.stop_ids: tuple[int, ...] = (self._codec.id(EOS),)

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """Begin of sentence, the conversation with the tools, the opening of the reply."""
        require_prompt(messages)
        parts: list[Part] = [BOS]
        if messages[0].role != "system" and self.config.tools_in == "system":
            parts += self._preamble(tools)
        parts += self._conversation(messages, 0, tools)
        return self._codec.ids(parts)

    def extension(
        self, messages: Sequence[Message], tools: Sequence[Tool], start: int, *, closed: bool = True
    ) -> list[int]:
        """The new messages; each ends with the opening of the reply."""
        require_reply(messages, start)
        require_prompt(messages)
        if not self.extends(messages, start):
            raise EncodingError(
                "a new user message drops reasoning or moves the tools", "render the prompt again"
            )
        new = self._conversation(messages, start, tools)
        return self._codec.ids([*([] if closed else [EOS]), *new])

    def extends(self, messages: Sequence[Message], start: int) -> bool:
        """False where a user message makes a thinking model forget, or takes over the tools."""
        rewrites = self.config.thinking or self.config.tools_in == "developer"
        return not (rewrites and has_user(messages[start:]))

    def completion(self, message: Message) -> list[int]:
        """What ``parse`` reads as ``message``."""
        require_expressible(message, self.config)
        ids = self._codec.ids(self._reply(message, thinking=self.config.thinking))
        require_same(message, self.parse(ids, (), 0))
        return ids

    def parse(
        self, ids: Sequence[int], tools: Sequence[Tool], turn: int, *, lenient: bool = False
    ) -> Message:
        """As the published parser reads; but it knows control tokens by id, not by text."""
        return self._reader.read(ids, turn, lenient=lenient)

    def _conversation(
        self, messages: Sequence[Message], start: int, tools: Sequence[Tool]
    ) -> Iterator[Part]:
        last_user = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
        for i in range(start, len(messages)):
            yield from self._message(messages, i, last_user, tools)

    def _message(
        self, messages: Sequence[Message], index: int, last_user: int, tools: Sequence[Tool]
    ) -> Iterator[Part]:
        message = messages[index]
        if message.role == "system":
            yield message.content
            if index == 0 and self.config.tools_in == "system":
                yield from self._preamble(tools)
        elif message.role == "user":
            yield USER
            yield from self._asked(message, tools, last=index == last_user)
            yield from (ASSISTANT, self._begin(index == last_user))
        elif message.role == "tool":
            yield from self._result(messages, index, self._begin(index > last_user))
        else:
            yield from self._reply(message, thinking=self.config.thinking and index > last_user)

    def _begin(self, current: bool) -> Part:
        return THINK if self.config.thinking and current else END_THINK

    def _preamble(self, tools: Sequence[Tool]) -> Iterator[Part]:
        if tools:
            yield "\n\n"
            yield from told_tools(tools, self.config.block)
        if self.config.response_format is not None:
            yield "\n\n"
            yield from told_format(self.config.response_format)

    def _asked(self, message: Message, tools: Sequence[Tool], *, last: bool) -> Iterator[Part]:
        if self.config.tools_in == "developer" and last:
            if not message.content:
                raise EncodingError("a developer message needs content")
            yield from self._preamble(tools)
            yield "\n\n# The user's message is: "
        yield message.content

    def _result(self, messages: Sequence[Message], index: int, begin: Part) -> Iterator[Part]:
        if messages[index - 1].role != "tool":
            yield "\n\n<function_results>"
        yield f"\n<result>{messages[index].content}</result>"
        if index + 1 == len(messages) or messages[index + 1].role != "tool":
            yield from ("\n</function_results>\n\n", begin)

    def _reply(self, message: Message, *, thinking: bool) -> Iterator[Part]:
        if thinking:
            if not (message.reasoning or message.tool_calls):
                raise EncodingError("a thinking model's reply needs reasoning or tool calls")
            yield from (message.reasoning or "", END_THINK)
        yield message.content
        if message.tool_calls:
            yield "\n\n"
            yield from opening(self.config.block, ">\n")
            for call in message.tool_calls:
                yield from _invoke(call)
                yield "\n"
            yield from closing(self.config.block)
        yield EOS


def _invoke(call: ToolCall) -> Iterator[Part]:
    yield from opening("invoke", f' name="{call.name}">\n')
    if call.arguments is None:
        yield call.arguments_text or ""  # only in a prompt: plain text, whatever it looks like
    for i, (key, value) in enumerate((call.arguments or {}).items()):
        text = isinstance(value, str)
        yield "\n" if i else ""
        yield from opening("parameter", f' name="{key}" string="{"true" if text else "false"}">')
        yield str(value) if text else to_json(value)
        yield from closing("parameter")
    yield "\n"
    yield from closing("invoke")

"""The contract of an encoding: conversations to token ids, a model's ids to a message.

Tokens in = tokens out: within one user turn a policy never renders the past again. With

    ids = encoding.prompt(messages, tools)
    reply = the ids that the model wrote
    messages += [encoding.parse(reply, tools, turn, lenient=True), *results]

the next prompt is ``[*ids, *reply, *encoding.extension(messages, tools, start)]``. Where the reply is what
``completion`` would have written, that equals ``encoding.prompt(messages, tools)``, id for id; where it is
not, the model's ids stay as they were. ``extends`` says when this does not hold: a new user message makes a
thinking model forget its reasoning, so the conversation is rendered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pydantic import Field, model_validator

from envgen.core.errors import PolicyError
from envgen.core.types import Message, Record, Schema
from envgen.policies.base import Tool

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer


class EncodingError(PolicyError):
    """Raised when ids are no message in the encoding's form, or a message can't be written in it."""


class EncodingConfig(Record):
    """Which encoding a model speaks; ``encoding.json`` in its folder."""

    kind: Literal["dsml", "compact"]
    """dsml: DeepSeek-V3.2's. compact: as few tokens as can be, for tiny models."""
    thinking: bool = False
    """The model reasons before it answers."""
    drop_thinking: bool = True
    """Forget reasoning, once a new user message arrives (V3.2, section 3.2.2); dsml always does."""

    block: str = Field(default="function_calls", pattern=r"^[a-z_]+$")
    """dsml: the tag around tool calls; DeepSeek-V4 calls it ``tool_calls``."""
    tools_in: Literal["system", "developer"] = "system"
    """dsml: where tools are described: the system message, or the last user message (role developer)."""
    response_format: Schema | None = None
    """dsml: JSON Schema that replies must follow; stands behind the tools."""

    system: bool = True
    """compact: show system messages; False leaves them out."""
    tools: Literal["none", "names", "signatures", "schemas"] = "names"
    """compact: how tools are described: not at all, names, names with argument names, whole JSON."""
    results: Literal["raw", "table"] = "raw"
    """compact: JSON results of tools as they are, or with keys said once and quotes left out."""

    @model_validator(mode="after")
    def _own_options(self) -> EncodingConfig:
        foreign = _COMPACT_ONLY if self.kind == "dsml" else _DSML_ONLY
        fields = type(self).model_fields
        wrong = [name for name in foreign if getattr(self, name) != fields[name].default]
        if wrong:
            raise ValueError(f"the {self.kind} encoding has no {', '.join(wrong)}")
        return self


_DSML_ONLY = ("block", "tools_in", "response_format")
_COMPACT_ONLY = ("drop_thinking", "system", "tools", "results")


@runtime_checkable
class Encoding(Protocol):
    """Writes conversations for one model and reads what it writes; safe to share between threads."""

    config: EncodingConfig
    tokenizer: Tokenizer
    stop_ids: tuple[int, ...]
    """Ids that end a reply; the engine stops after one of them."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """The whole conversation, up to where the model writes.

        Args:
            messages: ends with a user message or with the results of all calls of the last reply.
            tools: the callable tools in OpenAI's form, the submit tool included.

        Raises:
            EncodingError: if the conversation has no such form.
        """
        ...

    def extension(
        self, messages: Sequence[Message], tools: Sequence[Tool], start: int, *, closed: bool = True
    ) -> list[int]:
        """The ids between the model's own reply and its next one.

        Args:
            messages: the longer conversation; ``messages[start - 1]`` is the reply.
            tools: as in ``prompt``.
            start: index of the first message behind the reply.
            closed: the reply ends with one of ``stop_ids``; if not (the length limit cut it), the ids
                start with the end that it lacks.

        Raises:
            EncodingError: if the past must be rendered again; see ``extends``.
        """
        ...

    def extends(self, messages: Sequence[Message], start: int) -> bool:
        """Whether ``extension`` may follow the reply ``messages[start - 1]``, or ``prompt`` must."""
        ...

    def completion(self, message: Message) -> list[int]:
        """The ids that a perfect model writes for an assistant message, its end included.

        ``parse`` gives the message back, save for call ids, which count, and empty reasoning, which is None.

        Raises:
            EncodingError: if the encoding can't express the message.
        """
        ...

    def parse(
        self, ids: Sequence[int], tools: Sequence[Tool], turn: int, *, lenient: bool = False
    ) -> Message:
        """The message that the model's ids say.

        Control tokens count by id only: text that looks like one is text.

        Args:
            ids: the reply, its stop id included where there is one.
            tools: as in ``prompt``.
            turn: number of the reply in its episode; call i gets the id ``call_{turn}_{i}``.
            lenient: make the best of ids that have no strict form: a malformed or cut call becomes one
                without ``arguments`` whose ``arguments_text`` tells what was written; stray control tokens
                become text, broken UTF-8 becomes U+FFFD. The message can always be stored.

        Raises:
            EncodingError: if not ``lenient`` and the ids are not exactly one whole message.
        """
        ...

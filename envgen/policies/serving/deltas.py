"""A reply while it is written: ids in, pieces of reasoning, content and calls out.

Between control tokens a reply is plain text of one section. Which one is asked of the encoding, by
reading the ids with a letter behind them. At a control token all ids are read (leniently), and what is
settled by then is sent: the rest of a text, whole calls. Together the pieces are the message.

Where a control token makes no sense, nothing is sent until the section ends: only then is known what it
means. The same where a reply is read again too often (a model that writes nothing but control tokens):
reading is kept linear in the reply's length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from envgen.core.types import Message, ToolCall
from envgen.policies.base import Tool
from envgen.policies.encoding.base import Encoding
from envgen.policies.serving.text import Characters, StopText

_BLOCK_BEGINS = re.compile(r"\n*<?$")
"""What DSML writes before the control token of a block of calls; it is not content."""

READ_AGAIN_TOKENS, READ_AGAIN_PER_TOKEN = 16_384, 16
"""How many ids a reply may be read again: some, and some more per id."""

Section = Literal["reasoning", "content", "call", "unsure"]
_TEXTS = ("reasoning", "content")


@dataclass(frozen=True)
class Delta:
    """A piece of a reply: text of a section, or a whole call."""

    reasoning: str = ""
    content: str = ""
    call: ToolCall | None = None
    index: int = 0
    """Number of the call."""


class ReplyReader:
    """Reads one reply as its ids come.

    Args:
        encoding: of the model.
        tools: as in the prompt.
        turn: number of the reply; call ids carry it.
        stops: sequences that end the reply when they appear in reasoning or content.
        whole: the pieces are not sent as they come; then most of the work is saved.

    Attributes:
        stopped: a stop sequence was found; ids after it don't count.
    """

    def __init__(
        self,
        encoding: Encoding,
        tools: Sequence[Tool],
        turn: int,
        stops: Sequence[str] = (),
        *,
        whole: bool = False,
    ) -> None:
        self.stopped = False
        self._encoding = encoding
        self._tools = tools
        self._turn = turn
        self._controls = frozenset(encoding.tokenizer.control.values())
        self._probe = encoding.tokenizer.encode_plain("x")
        self._ids: list[int] = []
        self._characters = Characters()
        self._texts: dict[str, StopText] = {name: StopText(stops, _BLOCK_BEGINS) for name in _TEXTS}
        self._sent: dict[str, str] = dict.fromkeys(_TEXTS, "")
        self._calls: list[ToolCall] = []
        self._stray: Section | None = None
        self._skipped = False
        self._whole = whole and not stops
        self._read_again = 0
        self._section = self._ask()

    def feed(self, token: int) -> list[Delta]:
        """What the next id adds."""
        self._ids.append(token)
        if token in self._controls:
            self._characters = Characters()
            if not self._may_read_again():
                self._section, self._skipped = "unsure", True
                return []
            return self._turn_to(self._ask())
        if self._section not in _TEXTS:
            return []
        text = self._characters.feed(self._encoding.tokenizer.token_bytes(token))
        return self._send(self._section, self._texts[self._section].feed(text))

    def finish(self) -> list[Delta]:
        """What is left when the last id was fed."""
        return [] if self.stopped else self._settle(final=True)

    def message(self) -> Message:
        """The whole reply as the encoding reads it; what was sent, if a stop sequence cut it."""
        if not self.stopped:
            return self._read(self._ids)
        return Message(
            role="assistant",
            content=self._sent["content"],
            reasoning=self._sent["reasoning"] or None,
            tool_calls=tuple(self._calls),
        )

    def _read(self, ids: Sequence[int]) -> Message:
        return self._encoding.parse(ids, self._tools, self._turn, lenient=True)

    def _may_read_again(self) -> bool:
        size = len(self._ids)
        if self._whole or self._read_again + size > READ_AGAIN_TOKENS + READ_AGAIN_PER_TOKEN * size:
            return False
        self._read_again += size
        return True

    def _ask(self) -> Section:
        """Where plain text that comes next would belong."""
        now, then = self._read(self._ids), self._read([*self._ids, *self._probe])
        if (then.reasoning or "") != (now.reasoning or ""):
            return "reasoning"
        if then.content == now.content:
            return "call"
        config = self._encoding.config
        if config.kind == "compact" and config.thinking:
            thought = self._encoding.tokenizer.token_id("<|thought|>")
            if thought not in self._ids:
                return "unsure"  # it will have been reasoning if <|thought|> follows
        return "content"

    def _turn_to(self, section: Section) -> list[Delta]:
        """Go on behind a control token; a text that it did not end makes its section unsure."""
        if section in _TEXTS and (section == self._section or self._skipped):
            self._stray = section
        self._skipped = False
        if section == self._stray:
            section = "unsure"
        self._section = section
        if section == "unsure":
            return []
        self._stray = None
        return self._settle(final=False)

    def _settle(self, *, final: bool) -> list[Delta]:
        """Send all that will not change any more."""
        message = self._read(self._ids)
        found: list[Delta] = []
        for section, text in (("reasoning", message.reasoning or ""), ("content", message.content)):
            sent = self._sent[section]
            if not self.stopped and text.startswith(sent):
                found += self._send(section, self._texts[section].settle(text[len(sent) :]))
        if self.stopped:
            return found
        for i, call in enumerate(message.tool_calls):
            whole = final or call.arguments is not None or i + 1 < len(message.tool_calls)
            if i == len(self._calls) and whole:
                self._calls.append(call)
                found.append(Delta(call=call, index=i))
        return found

    def _send(self, section: str, text: str) -> list[Delta]:
        self.stopped = self.stopped or self._texts[section].stopped
        if not text:
            return []
        self._sent[section] += text
        return [Delta(content=text) if section == "content" else Delta(reasoning=text)]

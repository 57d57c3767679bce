"""``scripted``: given messages, one per turn. For tests, examples and demonstrations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from pydantic import TypeAdapter

from envgen.core.errors import ConfigError
from envgen.core.types import Message, PublicTask, Sampling
from envgen.policies.base import PolicyReply, Tool, assistant_turns

_MESSAGES = TypeAdapter(tuple[Message, ...])


class ScriptedPolicy:
    """Says ``messages[i]`` on turn i, and an empty text once they are used up."""

    name = "scripted"
    version = "1"

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = tuple(messages)

    @classmethod
    def load(cls, path: Path) -> ScriptedPolicy:
        """From a JSON file that holds a list of messages."""
        try:
            return cls(_MESSAGES.validate_python(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{str(path)!r} must hold a list of messages: {error}") from error

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """The message of this turn."""
        turn = assistant_turns(messages)
        if turn < len(self._messages):
            return PolicyReply(self._messages[turn])
        return PolicyReply(Message(role="assistant"))

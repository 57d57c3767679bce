"""A wrapper for policies that read one text: the whole conversation so far."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from envgen.core.errors import ConfigError
from envgen.core.jsonvalues import clean_text
from envgen.environments.episodes import EpisodeEnv
from envgen.environments.rendering import clip, render_messages, render_tools
from envgen.environments.spaces import UnicodeText


class TextHistory(gymnasium.ObservationWrapper[str, str, str], RecordConstructorArgs):
    """Makes each observation the conversation so far, the tools listed first.

    Args:
        env: a general environment, wrapped or not.
        max_length: in characters; a longer conversation is cut in its middle.
        tools: whether to list the tools.
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        max_length: int = 262_144,
        tools: bool = True,
    ) -> None:
        if not isinstance(env.unwrapped, EpisodeEnv):
            raise ConfigError(f"TextHistory needs a EpisodeEnv, not {type(env.unwrapped).__name__}")
        RecordConstructorArgs.__init__(self, max_length=max_length, tools=tools)
        gymnasium.ObservationWrapper.__init__(self, env)
        self._inner: EpisodeEnv = env.unwrapped
        self._tools = tools
        self._max_length = max_length
        self.observation_space: gymnasium.Space[Any] = UnicodeText(max_length)

    def observation(self, observation: str) -> str:
        """The conversation so far, whatever the turn's own observation was."""
        text = render_messages(self._inner.messages)
        if self._tools and self._inner.tools:
            text = f"[tools]\n{render_tools(self._inner.tools)}\n\n{text}"
        return clip(clean_text(text, 1 << 30), self._max_length)

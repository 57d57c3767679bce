"""An environment's tools as an episode uses them: specs for the agent, checks for its calls."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from envgen.core.registry import near_names
from envgen.core.sampler import submit_tool_spec
from envgen.core.schema import Validator, argument_fault
from envgen.core.types import EnvironmentSpec, ToolSpec

UNKNOWN_TOOL = "unknown_tool"
INVALID_ARGUMENTS = "invalid_arguments"
EPISODE_OVER = "episode_over"
"""Error codes of the environment itself, beside those that tools document."""


class Toolbox:
    """The tools of one environment, with the submit tool if it has one, compiled once.

    Attributes:
        specs: what agents may call, the submit tool last.
        submit: name of the submit tool, or None where plain text is the answer.
    """

    def __init__(self, environment: EnvironmentSpec, submit: ToolSpec | None = None) -> None:
        """Compile the tools; ``submit`` replaces the submit tool that takes an answer."""
        self.submit = environment.submit_tool if submit is None else submit.name
        extra = () if self.submit is None else (submit or submit_tool_spec(self.submit),)
        self.specs: tuple[ToolSpec, ...] = (*environment.tools, *extra)
        self._by_name: Mapping[str, ToolSpec] = {spec.name: spec for spec in self.specs}
        self._validators = {
            spec.name: Validator({"type": "object", **spec.parameters}) for spec in self.specs
        }
        self._openai = tuple(spec.openai() for spec in self.specs)

    def openai(self) -> list[dict[str, object]]:
        """The tools in OpenAI's form; a new list each time."""
        return list(self._openai)

    def mutates(self, name: str) -> bool:
        """Whether a known tool writes."""
        return self._by_name[name].mutates

    def fault(self, name: str, arguments: JsonValue) -> tuple[str, str] | None:
        """(code, message) of what is wrong with a call, or None when it may be made."""
        validator = self._validators.get(name)
        if validator is None:
            return UNKNOWN_TOOL, f"there is no tool {name[:100]!r}{near_names(name, self._by_name)}"
        found = argument_fault(validator, arguments)
        return None if found is None else (INVALID_ARGUMENTS, found)

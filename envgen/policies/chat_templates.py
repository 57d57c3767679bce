"""A model's chat template, rendered as Hugging Face's ``apply_chat_template`` renders it.

Templates are written for that function: their ``tojson`` escapes no HTML and keeps the order of keys, calls
of earlier turns come with their arguments as objects, and special tokens are variables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.sandbox

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.jsonvalues import JsonError, strict_loads
from envgen.core.types import Message
from envgen.policies.base import Tool
from envgen.policies.context import retain_thinking

_BREAKS = (
    jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError,
    MemoryError,
)  # fmt: skip
"""What a template may raise."""
TOKENIZER = "tokenizer_config.json"
MAX_BYTES = 4 << 20


class _Generation(jinja2.ext.Extension):
    """``{% generation %}``: marks what the model wrote, which changes no text."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """The body as it is."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A template and the special tokens that it names.

    Args:
        source: the Jinja text.
        special: variables such as ``bos_token``.

    Raises:
        ConfigError: if it is no template, or names a token that is not given.
    """

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            named = jinja2.meta.find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"the chat template can't be read: {error}") from error
        wanted = {name for name in named if name in ("bos_token", "eos_token")}
        if missing := sorted(wanted - set(special)):
            raise ConfigError(
                f"the chat template uses {missing[0]}, and nothing says what that is",
                f"put the model's {TOKENIZER} beside it",
            )
        self._special = dict(special)

    @classmethod
    def read(cls, path: Path) -> ChatTemplate:
        """Read ``chat_template.jinja`` and the ``tokenizer_config.json`` beside it, or one that holds both.

        Raises:
            ConfigError: if a file can't be read.
        """
        tokenizer = path if path.suffix == ".json" else path.parent / TOKENIZER
        settings: Any = {}
        if tokenizer.exists():
            try:
                settings = strict_loads(_text(tokenizer), max_bytes=MAX_BYTES)
            except JsonError as error:
                raise ConfigError(f"{str(tokenizer)!r} {error}") from error
        if not isinstance(settings, dict):
            raise ConfigError(f"{str(tokenizer)!r} is no {TOKENIZER}", "it is a JSON object")
        source = settings.get("chat_template") if path.suffix == ".json" else _text(path)
        if isinstance(source, list):  # several, by name
            named = {
                one.get("name"): one.get("template") for one in source if isinstance(one, dict)
            }
            source = named.get("tool_use") or named.get("default")
        if not isinstance(source, str):
            raise ConfigError(f"{str(path)!r} holds no chat template", "name chat_template.jinja")
        return cls(source, _special(settings))

    def render(self, messages: Sequence[Message], tools: Sequence[Tool], *, generate: bool) -> str:
        """The conversation as text, with the assistant's opening where ``generate``.

        Raises:
            PolicyError: if the template refuses the conversation, or breaks on it.
        """
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        try:
            return self._template.render(
                messages=[_message(one, names) for one in retain_thinking(messages)],
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=generate,
                **self._special,
            )
        except _BREAKS as error:
            raise PolicyError(
                f"the chat template does not take this conversation: {error}",
                "look whether it is the model's own, and whether it takes tools and system messages",
            ) from error


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{str(path)!r} is larger than {MAX_BYTES} bytes")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the chat template {str(path)!r} can't be read: {error}") from error


def _special(settings: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens of a tokenizer_config.json: texts, or objects that hold one."""
    found = {}
    for name, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _message(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    """A message in the form that templates read; arguments that are no object stay text."""
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        wire |= dict.fromkeys(("reasoning_content", "thinking", "reasoning"), message.reasoning)
    if message.tool_calls:
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments_text if call.arguments is None else call.arguments,
                },
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id or ""
        wire["name"] = names.get(message.tool_call_id or "", "")
    return wire


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> str:
    raise jinja2.TemplateError(message)

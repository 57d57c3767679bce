"""Chat templates render as Hugging Face's own function renders them.

Each template of the data file does what those of one family of models do with calls, tools and tokens.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from envgen.core.errors import ConfigError, PolicyError
from envgen.core.types import Message, ToolCall
from envgen.policies.chat_templates import ChatTemplate

pytest.importorskip("transformers")

FILE = Path(__file__).parents[1] / "data" / "chat_templates.toml"
TEMPLATES = {name: one["template"] for name, one in tomllib.loads(FILE.read_text("utf-8")).items()}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "find", "description": "The guest's <rooms> & beds.",
            "parameters": {
                "type": "object", "required": ["zeta"],
                "properties": {"zeta": {"type": "string"}, "alpha": {"type": "integer"}},
            },
        },
    }
]  # fmt: skip
CONVERSATION = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="Where's a room < 3 & quiet? 中"),
    Message(
        role="assistant", content="", reasoning="first look",
        tool_calls=(ToolCall(id="call_0", name="find", arguments={"zeta": "o'neil <b>", "alpha": 1}),),
    ),
    Message(role="tool", content='{"rooms": ["R&B"]}', tool_call_id="call_0"),
    Message(role="assistant", content="R&B"),
]  # fmt: skip


def reference(
    template: str, messages: list[Message], tools: list[dict[str, Any]], generate: bool
) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    told: list[dict[str, Any]] = []
    for one in messages:
        wire: dict[str, Any] = {"role": one.role, "content": one.content}
        if one.reasoning:
            wire["reasoning_content"] = one.reasoning
        if one.tool_calls:
            wire["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": c.arguments},
                }
                for c in one.tool_calls
            ]
        if one.role == "tool":
            wire |= {"tool_call_id": one.tool_call_id, "name": "find"}
        told.append(wire)
    render: Any = render_jinja_template
    rendered, _ = render(
        conversations=[told],
        chat_template=template,
        tools=tools,
        add_generation_prompt=generate,
        **TOKENS,
    )
    text: str = rendered[0]
    return text


@pytest.mark.parametrize("name", TEMPLATES)
def test_as_transformers_renders(name: str) -> None:
    template = ChatTemplate(TEMPLATES[name], TOKENS)
    messages = CONVERSATION[1:] if "no system" in name else CONVERSATION
    for some in (messages[:2], messages):
        for generate in (True, False):
            expected = reference(TEMPLATES[name], some, TOOLS, generate)
            assert template.render(some, TOOLS, generate=generate) == expected


def test_a_template_that_refuses_says_so() -> None:
    template = ChatTemplate(
        TEMPLATES["alternating turns that take no system message (Gemma)"], TOKENS
    )
    with pytest.raises(PolicyError, match="System role not supported"):
        template.render(CONVERSATION, TOOLS, generate=True)
    with pytest.raises(PolicyError, match="does not take this conversation"):
        ChatTemplate("{{ messages[0].no.such }}", {}).render(CONVERSATION, [], generate=True)


def test_tokens_come_from_the_tokenizers_own_file(tmp_path: Path) -> None:
    path, settings = tmp_path / "chat_template.jinja", tmp_path / "tokenizer_config.json"
    path.write_text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    with pytest.raises(ConfigError, match="bos_token"):
        ChatTemplate.read(path)
    settings.write_text(
        json.dumps({"bos_token": {"content": "<B>"}, "eos_token": "<E>", "pad_token": None})
    )
    assert ChatTemplate.read(path).render(CONVERSATION[:1], [], generate=True) == "<B>Be brief.<E>"
    named = [
        {"name": "default", "template": "d"},
        {"name": "tool_use", "template": "t{{ bos_token }}"},
    ]
    settings.write_text(json.dumps({"bos_token": "<B>", "chat_template": named}))
    assert ChatTemplate.read(settings).render(CONVERSATION, [], generate=True) == "t<B>"


@pytest.mark.parametrize(
    "content", [b"\xff", b"{", b"[]", b'{"chat_template": 3}', b'{"chat_template": "{% x"}']
)
def test_files_that_hold_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        ChatTemplate.read(path)


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}", "{{ messages.append(1) }}",
        "{{ messages[0].update(x=1) }}", "{{ 1 / 0 }}", "{{ messages[9]['role'] }}", "{{ range(10 ** 9) }}",
    ],
)  # fmt: skip
def test_a_template_that_reaches_out_or_breaks_is_an_error_of_the_policy(attack: str) -> None:
    with pytest.raises(PolicyError, match="does not take this conversation"):
        ChatTemplate(attack, {}).render(CONVERSATION, [], generate=True)

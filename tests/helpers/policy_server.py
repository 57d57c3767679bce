"""An offline policy behind OpenAI's API: what peers' own loops talk to when they play an export.

The conversation's first user message says which task it is. Tools may come under other names
(``envgen_NAME``, ``mcp__envgen__NAME``): the policy's calls are renamed to what was offered.
"""

from __future__ import annotations

import json
from typing import Any

from model_server import ModelServer, chat, deltas

from envgen.core.types import Message, Sampling, ToolCall
from envgen.rollout.gold import make_policy
from envgen.store.dataset import Dataset

WHOSE = {"id": "c", "created": 1, "model": "scripted"}


def policy_server(dataset: Dataset, spec: str, seed: int = 0) -> ModelServer:
    """A server that answers as ``spec`` would."""
    policy = make_policy(spec, dataset)
    publics = {}
    for task_id in dataset.tasks:
        task = dataset.tasks[task_id]
        public = task.public(dataset.environments[task.environment_id])
        publics[public.prompt.strip()] = public

    def answer(body: dict[str, Any]) -> Any:
        told = next(text_of(m) for m in body["messages"] if m["role"] == "user")
        public = next(p for prompt, p in publics.items() if prompt in told)
        names = [tool["function"]["name"] for tool in body.get("tools") or ()]
        short = {
            full.removeprefix("mcp__").split("envgen_")[-1].lstrip("_"): full for full in names
        }
        tools = [
            {**tool, "function": {**tool["function"], "name": name}}
            for (name, _), tool in zip(short.items(), body.get("tools") or (), strict=True)
        ]
        messages = [_message(one, short) for one in body["messages"]]
        reply = policy.respond(messages, tools, Sampling(), seed=seed, task=public).message
        calls = [
            {
                "index": i,
                "id": f"call_{len(messages)}_{i}",
                "type": "function",
                "function": {
                    "name": short.get(call.name, call.name),
                    "arguments": json.dumps(call.arguments),
                },
            }
            for i, call in enumerate(reply.tool_calls)
        ]
        more = {"tool_calls": calls} if calls else {}
        if body.get("stream"):
            finish = "tool_calls" if calls else "stop"
            events = deltas({"role": "assistant", "content": reply.content, **more}, finish=finish)
            events[-1]["usage"]["total_tokens"] = 110
            return [{**WHOSE, "object": "chat.completion.chunk", **event} for event in events]
        whole = chat(reply.content, **more)
        whole["choices"][0]["finish_reason"] = "tool_calls" if calls else "stop"
        whole["usage"]["total_tokens"] = 110
        return {**WHOSE, "object": "chat.completion", **whole}

    return ModelServer([answer], "openai", models=["scripted"])


def text_of(message: dict[str, Any]) -> str:
    """A message's words, in either form."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _message(one: dict[str, Any], short: dict[str, str]) -> Message:
    back = {full: name for name, full in short.items()}
    calls = [
        ToolCall(
            id=call["id"],
            name=back.get(call["function"]["name"], call["function"]["name"]),
            arguments=json.loads(call["function"]["arguments"] or "{}"),
        )
        for call in one.get("tool_calls") or ()
    ]
    return Message(
        role=one["role"], content=text_of(one), tool_calls=tuple(calls),
        tool_call_id=one.get("tool_call_id"),
    )  # fmt: skip

"""Runs under OpenEnv's Python: its own client plays a server of ours, with a scripted agent behind an API.

``openenv_player.py URL MODEL_URL TASKS``: the rewards, as JSON.
"""

from __future__ import annotations

import json
import sys
from urllib.request import Request, urlopen

from openenv import GenericEnvClient


def reply(url: str, messages: list, tools: list) -> dict:
    """The model's next message."""
    body = json.dumps({"model": "scripted", "messages": messages, "tools": tools}).encode()
    with urlopen(Request(f"{url}/chat/completions", body), timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]


def main(url: str, model: str, tasks: str) -> None:
    """Play each task once."""
    rewards = {}
    with GenericEnvClient(base_url=url).sync() as env:
        for task_id in json.loads(tasks):
            result = env.reset(task_id=task_id)
            messages, tools = list(result.observation["messages"]), result.observation["tools"]
            while not result.done:
                said = reply(model, messages, tools)
                calls = [
                    {
                        "name": c["function"]["name"],
                        "arguments": json.loads(c["function"]["arguments"]),
                    }
                    for c in said.get("tool_calls") or ()
                ]
                turn = {"content": said["content"] or ""}
                result = env.step({**turn, "tool_calls": calls} if calls else turn)
                messages.append({"role": "assistant", **said})
                texts = result.observation["text"].split("\n")
                for call, text in zip(said.get("tool_calls") or (), texts, strict=False):
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            rewards[task_id] = result.reward
    print(json.dumps(rewards))


if __name__ == "__main__":
    main(*sys.argv[1:])

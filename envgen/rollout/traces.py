"""Episodes as verifiers 0.4 saves them: a line of ``traces.jsonl`` each, with one trace in it."""

from __future__ import annotations

import json
from typing import Any

from envgen.core.types import Message, StopReason, ToolCall, Trajectory
from envgen.rollout.task_tools import TaskTools


def traces(trajectory: Trajectory, tools: TaskTools | None) -> dict[str, Any]:
    """Return an episode as verifiers' ``Episode``; its messages form one branch, without token ids.

    The score is the reward ``score``, as in our export of a dataset; it is null where an error spoiled the
    episode, which verifiers leaves out of its means.
    """
    score = None if trajectory.error is not None else trajectory.score
    began = trajectory.started_at
    task = {
        "type": "EnvgenTask",
        "key": trajectory.task_id,
        "data": {"id": trajectory.task_id, "name": trajectory.task_id},
    }
    used = {turn.message_index: turn.usage for turn in trajectory.turns}
    nodes = [
        {
            "parent": index - 1 if index else None,
            "message": _message(message),
            "sampled": message.role == "assistant",
            "timestamp": began,
        }
        for index, message in enumerate(trajectory.messages)
    ]
    calls = [
        {
            "node": index,
            "model": trajectory.policy,
            "finish_reason": "tool_calls" if trajectory.messages[index].tool_calls else "stop",
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "cost": usage.cost_usd,
            },
            "time": {"start": began, "end": began},
        }
        for index, usage in sorted(used.items())
    ]
    errors = [] if trajectory.error is None else [_error(trajectory)]
    trace = {
        "version": 1,
        "id": f"{trajectory.task_id}-{trajectory.sample}",
        "task": task,
        "agent": {"config": {"model": trajectory.policy}},
        "tools": [] if tools is None else list(map(_tool, tools.of(trajectory.task_id, trajectory.style))),
        "nodes": nodes,
        "calls": calls,
        "rewards": {"score": None if score is None else {"score": score.value, "weight": 1.0}},
        "metrics": {"num_calls": float(trajectory.num_calls)},
        "info": {
            "sample": trajectory.sample,
            "seed": str(trajectory.seed),
            "reasons": [] if score is None else list(score.reasons),
        },
        "is_completed": True,
        "ok": trajectory.error is None,
        "stop_condition": trajectory.stop.value,
        "is_timeout": trajectory.stop is StopReason.TIME_LIMIT,
        "errors": errors,
        "timing": {"start": began, "agent": {"start": began, "end": began + trajectory.wall_s}},
    }  # fmt: skip
    return {
        "id": trace["id"], "env": {"id": "envgen"}, "task": task, "ok": trace["ok"],
        "is_timeout": trace["is_timeout"], "errors": errors, "traces": [trace],
    }  # fmt: skip


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id or ""
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "name": call.name, "arguments": _written(call)}
            for call in message.tool_calls
        ]
    return found


def _written(call: ToolCall) -> str:
    if call.arguments is None:
        return call.arguments_text or ""
    return json.dumps(call.arguments, ensure_ascii=False)


def _tool(tool: Any) -> dict[str, Any]:
    function = tool["function"]
    return {key: function[key] for key in ("name", "description", "parameters") if key in function}


def _error(trajectory: Trajectory) -> dict[str, str]:
    assert trajectory.error is not None
    return {"type": trajectory.error.kind, "message": trajectory.error.text}

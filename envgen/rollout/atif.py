"""Episodes in ATIF, Harbor's Agent Trajectory Interchange Format (version 1.8): one trajectory a line."""

from __future__ import annotations

from typing import Any

from envgen.core.types import Message, Trajectory, Turn
from envgen.rollout.task_tools import TaskTools

VERSION = "ATIF-v1.8"


def atif(trajectory: Trajectory, tools: TaskTools | None) -> dict[str, Any]:
    """An episode as an ATIF trajectory: a reply with its calls and their results is one step.

    Reward, reasons and how it ended stand under ``extra``, which the format leaves to whoever writes it.
    """
    turns = {turn.message_index: turn for turn in trajectory.turns}
    steps: list[dict[str, Any]] = []
    for index, message in enumerate(trajectory.messages):
        if message.role == "tool" and _answer_of(steps, message):
            continue
        steps.append({"step_id": len(steps) + 1, **_step(message, turns.get(index))})
    agent: dict[str, Any] = {"name": trajectory.policy, "version": trajectory.policy_version or "1"}
    if tools is not None:
        offered = tools.of(trajectory.task_id, trajectory.style)
        agent["tool_definitions"] = [dict(tool) for tool in offered]
    usage, score = trajectory.usage, None if trajectory.error is not None else trajectory.score
    return {
        "schema_version": VERSION,
        "session_id": f"{trajectory.task_id}-{trajectory.sample}",
        "trajectory_id": f"{trajectory.task_id}-{trajectory.sample}",
        "agent": agent,
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": usage.prompt_tokens,
            "total_completion_tokens": usage.completion_tokens,
            "total_cost_usd": usage.cost_usd,
            "total_steps": len(steps),
        },
        "extra": {
            "task_id": trajectory.task_id,
            "sample": trajectory.sample,
            "seed": str(trajectory.seed),
            "reward": None if score is None else score.value,
            "passed": None if score is None else score.passed,
            "reasons": [] if score is None else list(score.reasons),
            "stop": trajectory.stop.value,
            "error": None if trajectory.error is None else trajectory.error.model_dump(mode="json"),
        },
    }


def _step(message: Message, turn: Turn | None) -> dict[str, Any]:
    if message.role != "assistant":
        source = "system" if message.role == "system" else "user"
        return {"source": source, "message": message.content}
    step: dict[str, Any] = {"source": "agent", "message": message.content}
    if message.reasoning:
        step["reasoning_content"] = message.reasoning
    if message.tool_calls:
        step["tool_calls"] = [
            {
                "tool_call_id": call.id,
                "function_name": call.name,
                # The format has objects alone; what the model wrote instead is kept beside them.
                "arguments": {"": call.arguments_text}
                if call.arguments is None
                else call.arguments,
            }
            for call in message.tool_calls
        ]
    if turn is not None:
        used = turn.usage
        step["metrics"] = {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "cost_usd": used.cost_usd,
        }
    return step


def _answer_of(steps: list[dict[str, Any]], message: Message) -> bool:
    """Put a tool's result to the step that made the call; whether there is one."""
    if not steps:
        return False
    last = steps[-1]
    if message.tool_call_id not in {call["tool_call_id"] for call in last.get("tool_calls", ())}:
        return False
    results = last.setdefault("observation", {"results": []})["results"]
    results.append({"source_call_id": message.tool_call_id, "content": message.content})
    return True

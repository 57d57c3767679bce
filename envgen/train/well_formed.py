"""Measure the form of a rollout, not its content: are its tool calls valid, and does it end properly?"""

from __future__ import annotations

import json
from typing import NamedTuple

from envgen.core.types import Message, StopReason, Trajectory
from envgen.environments.toolbox import EPISODE_OVER, INVALID_ARGUMENTS, UNKNOWN_TOOL

REFUSED = frozenset({UNKNOWN_TOOL, INVALID_ARGUMENTS, EPISODE_OVER})
"""Error codes of calls that the environment refuses; errors of the tools themselves don't count."""


class Calls(NamedTuple):
    """Tool calls of a rollout."""

    valid: int
    """Those of a known tool, with arguments that fit its schema."""
    total: int
    """All calls; a reply without the call that was due counts as one."""


def calls_of(trajectory: Trajectory) -> Calls:
    """Count a rollout's tool calls and the valid ones among them."""
    valid = total = 0
    messages = trajectory.messages
    for i, message in enumerate(messages):
        if message.role != "assistant":
            continue
        total += len(message.tool_calls)
        results = messages[i + 1 : i + 1 + len(message.tool_calls)]
        for call, result in zip(message.tool_calls, results, strict=False):
            valid += call.arguments is not None and not _refused(result)
        if not message.tool_calls and not _is_answer(trajectory, i):
            total += 1
    return Calls(valid, total)


def ended_cleanly(trajectory: Trajectory) -> bool:
    """Return whether the rollout gave an answer that the verifier could read."""
    ended = trajectory.stop in (StopReason.SUBMITTED, StopReason.ANSWERED)
    return ended and trajectory.reached_verifier


def form_share(trajectory: Trajectory) -> float:
    """Score a rollout's form, 0 to 1: half the share of valid calls, half a readable answer."""
    calls = calls_of(trajectory)
    share = calls.valid / calls.total if calls.total else 1.0
    return 0.5 * share + 0.5 * ended_cleanly(trajectory)


def _is_answer(trajectory: Trajectory, place: int) -> bool:
    """Whether plain words are the answer, in an environment without a submit tool."""
    return trajectory.stop is StopReason.ANSWERED and place == len(trajectory.messages) - 1


def _refused(result: Message) -> bool:
    if result.role != "tool":
        return True
    if not result.content.startswith('{"error"'):
        return False
    try:
        return json.loads(result.content).get("error") in REFUSED
    except ValueError:  # a long result of a tool, clipped
        return False

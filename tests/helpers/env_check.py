"""Put an environment to the test: gymnasium's checks, and what envgen promises beyond them."""

from __future__ import annotations

import json
import warnings
from typing import Any

from gymnasium.utils.env_checker import check_env as gymnasium_check_env

from envgen.core.errors import ContractError, EnvgenError
from envgen.environments.episodes import EpisodeEnv

JUNK: tuple[Any, ...] = (
    "",
    "\0",
    "\ud800",
    "x" * 3_000_000,
    "{",
    "[" * 10_000,
    '{"tool_calls": 3}',
    '{"tool_calls": [null, 3, "x", {}, {"name": 3}, {"name": "nothing"}]}',
    '{"tool_calls": [{"name": "nothing", "arguments": "{"}]}',
    '{"content": [], "tool_calls": null}',
    None,
    3,
    b"bytes",
    {"tool_calls": []},
)
"""Actions that may only ever give an error observation."""


def check_env(env: EpisodeEnv, *, num_tasks: int = 3, seed: int = 0) -> None:
    """Check a general environment on some of its tasks.

    gymnasium's own checks pass without a warning; (task_id, seed) fixes the episode; junk gives an
    observation and no error; the last step, and only that one, carries the score; the conversation
    in ``info`` is the one in ``messages``.

    Args:
        env: to be checked; it is closed at the end.
        num_tasks: how many tasks to play.
        seed: of the actions that are drawn.

    Raises:
        ContractError: listing everything that is wrong.
    """
    problems: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gymnasium_check_env(
                env, skip_render_check=env.spec is None, skip_close_check=env.spec is None
            )
    except (AssertionError, Warning, EnvgenError, TypeError) as error:
        problems.append(f"gymnasium's check: {error}")
    for task_id in env.task_ids[:num_tasks]:
        problems += [f"{task_id}: {found}" for found in _task_problems(env, task_id, seed)]
    env.close()
    if problems:
        raise ContractError("the environment breaks its contract:\n  " + "\n  ".join(problems))


def _task_problems(env: EpisodeEnv, task_id: str, seed: int) -> list[str]:
    env.action_space.seed(seed)
    env.reset(seed=seed, options={"task_id": task_id})
    actions = [env.action_space.sample() for _ in range(env.task.limits.turns)]
    problems = []
    first, second = (_play(env, task_id, seed, actions) for _ in range(2))
    if first != second:
        problems.append("the same actions made two different episodes")
    steps, _ = first
    *before, last = steps
    if any(step[1] != 0.0 or step[2] or step[3] for step in before):
        problems.append("a step before the last has a reward or ends the episode")
    if not (last[2] or last[3]):
        problems.append("the turn limit did not end the episode")
    if not {"score", "reasons", "stop"} <= last[4].keys() or last[1] != last[4]["score"]:
        problems.append("the last step does not carry the score")
    problems += _junk_problems(env, task_id)
    return problems


_Step = tuple[str, float, bool, bool, dict[str, Any]]


def _play(
    env: EpisodeEnv, task_id: str, seed: int, actions: list[str]
) -> tuple[list[_Step], tuple[Any, ...]]:
    env.reset(seed=seed, options={"task_id": task_id})
    steps: list[_Step] = []
    for action in actions:
        steps.append(env.step(action))
        if env.stop is not None:
            break
    return steps, env.messages


def _junk_problems(env: EpisodeEnv, task_id: str) -> list[str]:
    problems = []
    for junk in JUNK:
        env.reset(options={"task_id": task_id})
        try:
            observation, *_, info = env.step(junk)
        except Exception as error:  # any exception at all is what is looked for
            problems.append(f"the action {ascii(junk)[:60]} raised {type(error).__name__}: {error}")
            continue
        if observation not in env.observation_space:
            problems.append(f"the action {ascii(junk)[:60]} gave an observation out of space")
        try:
            json.dumps(info, allow_nan=False).encode()
        except ValueError as error:
            problems.append(
                f"the action {ascii(junk)[:60]} left an info that is not valid JSON: {error}"
            )
    return problems

"""``gold`` and ``noisy-gold:p`` replay a task's stored gold run; ``hasty:p`` does so now and then.

They need the dataset, which policies never get; so they live here and not among the policies.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

from pydantic import JsonValue

from envgen.core import seeding
from envgen.core.errors import ConfigError, PolicyError
from envgen.core.types import GoldRun, Message, PublicTask, Sampling
from envgen.policies.base import Policy, PolicyReply, Tool, assistant_turns
from envgen.policies.budget import Budget
from envgen.policies.greedy import GreedyPolicy
from envgen.policies.programs import CALLS_PER_TURN, Call, call_message, submit_message
from envgen.policies.registry import KINDS, PolicyConfig, parse_policy, refuse_options
from envgen.store.dataset import Dataset
from envgen.store.recent import Recent

_KEPT = 64
POLICY_KINDS = ("gold", "noisy-gold", "hasty", *KINDS)
"""What a policy's spec may begin with."""


def make_policy(
    config: PolicyConfig | str, dataset: Dataset, *, budget: Budget | None = None
) -> Policy:
    """Any policy that a user can name, ``gold``, ``noisy-gold:p`` and ``hasty:p`` included.

    Raises:
        ConfigError: for an unknown or malformed spec.
    """
    if isinstance(config, str):
        config = PolicyConfig(spec=config)
    spec = config.spec
    kind, _, rest = spec.partition(":")
    if kind in ("gold", "noisy-gold", "hasty"):
        refuse_options(config)
    if kind == "gold" and not rest:
        return GoldPolicy(dataset)
    if kind == "noisy-gold":
        try:
            return GoldPolicy(dataset, float(rest))
        except ValueError as error:
            raise ConfigError(
                f"the noise in {spec!r} must be a number",
                "write noisy-gold:0.1, a probability per call",
            ) from error
    if kind == "hasty":
        try:
            return HastyPolicy(dataset, float(rest))
        except ValueError as error:
            raise ConfigError(
                f"the haste in {spec!r} must be a number",
                "write hasty:0.6, the share of hasty episodes",
            ) from error
    return parse_policy(config, budget=budget)


class GoldPolicy:
    """Makes the calls of the gold run and submits its answer, with noise or without.

    With noise p, each call is, with probability p, left out or made with a changed argument, and, with
    probability p, one leaf of the answer is changed.
    """

    version = "1"

    def __init__(self, dataset: Dataset, noise: float = 0.0) -> None:
        if not 0 <= noise <= 1:
            raise ConfigError(f"noise must be between 0 and 1, got {noise}")
        self.name = f"noisy-gold:{noise:g}" if noise else "gold"
        self._dataset = dataset
        self._noise = noise
        self._gold = Recent(self._read, _KEPT)

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """The next calls of the gold run, or its answer."""
        gold = self._gold(task.id)
        turn = assistant_turns(messages)
        calls = [Call(call.name, dict(call.arguments)) for call in gold.calls]
        mutating = [call.mutates for call in gold.calls]
        room = (task.limits.turns - 1) * CALLS_PER_TURN
        if len(calls) > room:  # reads leave nothing behind: the last ones are enough
            spare = len(calls) - room
            dropped = {i for i in [j for j, m in enumerate(mutating) if not m][:spare]}
            calls = [call for i, call in enumerate(calls) if i not in dropped]
        answer = gold.answer
        if self._noise:
            rng = seeding.rng(seed, "noisy-gold")
            calls = [kept for call in calls for kept in self._noisy_call(call, calls, rng)]
            answer = self._noisy_answer(answer, rng)
        chunk = calls[turn * CALLS_PER_TURN : (turn + 1) * CALLS_PER_TURN]
        if chunk:
            return PolicyReply(call_message(chunk, turn))
        return PolicyReply(submit_message(answer, tools, task, turn))

    def _read(self, task_id: str) -> GoldRun:
        gold = self._dataset.task_files(task_id).gold
        if gold is None:
            raise PolicyError(f"task {task_id!r} has no gold run")
        return gold

    def _noisy_call(self, call: Call, calls: Sequence[Call], rng: random.Random) -> Iterator[Call]:
        if rng.random() >= self._noise:
            yield call
        elif rng.random() < 0.5 and call.arguments:
            name = rng.choice(sorted(call.arguments))
            others = [c.arguments[name] for c in calls if name in c.arguments]
            changed = _changed(call.arguments[name], others, rng)
            yield Call(call.name, {**call.arguments, name: changed})

    def _noisy_answer(self, answer: JsonValue, rng: random.Random) -> JsonValue:
        if rng.random() >= self._noise:
            return answer
        paths = list(_leaves(answer))
        if not paths:
            return None
        path = rng.choice(paths)
        others = [_at(answer, p) for p in paths]
        if not path:
            return _changed(answer, others, rng)
        noisy = copy.deepcopy(answer)
        place: Any = noisy
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = _changed(place[path[-1]], others, rng)
        return noisy


def _leaves(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, (*path, name))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from _leaves(part, (*path, i))
    else:
        yield path


def _at(value: Any, path: tuple[str | int, ...]) -> JsonValue:
    for step in path:
        value = value[step]
    return value  # type: ignore[no-any-return]  # a part of a JSON value


def _changed(value: JsonValue, others: Sequence[JsonValue], rng: random.Random) -> JsonValue:
    """Another value of the same type: one of ``others``, or a neighbour."""
    alike = [other for other in others if type(other) is type(value) and other != value]
    if alike:
        return rng.choice(alike)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1))
    if isinstance(value, str):
        return f"{value} II"
    return None


class HastyPolicy:
    """``hasty:p``: a biased expert. Takes the first row that breaks no rule, or thinks to the end.

    With probability p an episode is ``greedy``'s, else ``gold``'s. A model that learns from it prefers first
    rows wherever p is above a half; how to find the right one is in its data all the same.
    """

    version = "1"

    def __init__(self, dataset: Dataset, haste: float) -> None:
        if not 0 <= haste <= 1:
            raise ConfigError(f"haste must be between 0 and 1, got {haste}")
        self.name = f"hasty:{haste:g}"
        self._haste = haste
        self._gold, self._greedy = GoldPolicy(dataset), GreedyPolicy()

    def respond(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampling: Sampling,
        *,
        deadline: float | None = None,
        cancel: Event | None = None,
        seed: int,
        task: PublicTask,
    ) -> PolicyReply:
        """The next calls of whichever plays this episode, or its answer."""
        hasty = seeding.rng(seed, "hasty").random() < self._haste
        policy: Policy = self._greedy if hasty else self._gold
        return policy.respond(
            messages, tools, sampling, deadline=deadline, cancel=cancel, seed=seed, task=task
        )

"""The adapter behind every server and export: it picks episodes and plays them step by step.

A peer's protocol or loader translates its own words to these, and holds no rule of its own: the same actions
get the same reward everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from envgen.core.canonical import compact
from envgen.core.errors import ConfigError, EnvError, UnjudgedError, VerifierError
from envgen.core.families import find_family
from envgen.core.registry import near_names
from envgen.core.seeding import derive, rng
from envgen.environments.episodes import EpisodeEnv
from envgen.environments.families import make_env
from envgen.environments.hosts import open_dataset
from envgen.environments.toolbox import Toolbox
from envgen.integrations.settings import EpisodesConfig
from envgen.store.dataset import Dataset

CALLS_A_TURN = 8
"""Where a peer sends an agent's calls one by one, and counts the turns itself, the task's turn limit is taken
to allow so many calls a turn."""


class Opening(NamedTuple):
    """The beginning of an episode, as its agent may see it."""

    task_id: str
    family: str
    seed: int | None
    text: str
    """Policy and prompt as one text."""
    messages: list[dict[str, Any]]
    """In OpenAI's form."""
    tools: list[dict[str, Any]]
    """In OpenAI's form, the submit tool last."""
    turns: int
    """The most that the task allows."""


class StepResult(NamedTuple):
    """What a step led to."""

    text: str
    """For the agent: the results of its calls, one a line."""
    reward: float
    """The score, on the last step; 0 before."""
    done: bool
    reasons: tuple[str, ...] = ()
    """Rules that the answer breaks, once it is scored; agents must not see them."""
    stop: str = ""
    """How the episode ended."""
    results: tuple[str, ...] = ()
    """The same results, one for each call."""
    failed: bool = False
    """Whether the last call did nothing: refused, or its tool told an error."""


class Episodes:
    """The episodes of a dataset that a loader or server plays.

    Args:
        dataset: a folder, ``package:NAME``, or an open ``Dataset``.
        config: which of them.

    Attributes:
        task_ids: what is played, in the order of the dataset.

    Raises:
        DatasetError: if the dataset can't be used.
        ConfigError: if no task is left, or a name is unknown.
    """

    def __init__(self, dataset: str | Path | Dataset, config: EpisodesConfig | None = None) -> None:
        self.config = config or EpisodesConfig()
        self.dataset = open_dataset(dataset, unproven=self.config.unproven, trust=self.config.trust)
        self.task_ids = _chosen(self.dataset, self.config)
        self._known = frozenset(self.task_ids)

    def __len__(self) -> int:
        return len(self.task_ids)

    def stream(self, seed: int | None = None) -> Iterator[str]:
        """Task ids without end: each once, in an order that the seed draws, then all again in another."""
        start = self.config.seed if seed is None else seed
        for epoch in itertools.count():
            order = list(self.task_ids)
            rng(start, "episodes", epoch).shuffle(order)
            yield from order

    def draw(self, seed: int) -> str:
        """The task that a seed draws, in every protocol."""
        return self.task_ids[derive(seed, "task") % len(self.task_ids)]

    def require(self, task_id: str) -> str:
        """``task_id`` itself.

        Raises:
            ConfigError: if it is not among those that are played.
        """
        if task_id not in self._known:
            near = near_names(task_id, self.dataset.own_task_ids)
            raise ConfigError(f"no task {task_id[:100]!r} is played here{near}")
        return task_id

    def family(self, task_id: str) -> str:
        """Whose task it is."""
        return self.dataset.facts(task_id).family

    def messages(self, task_id: str) -> list[dict[str, str]]:
        """Return a task's first messages in OpenAI's form: the policy, if there is one, and the prompt."""
        spec = self.dataset.tasks[task_id]
        public = spec.public(self.dataset.environments[spec.environment_id])
        said = (("system", public.policy_text), ("user", public.prompt))
        return [{"role": role, "content": text} for role, text in said if text]

    def toolbox(self, task_id: str) -> Toolbox:
        """The tools of a task, the submit tool last if it has one."""
        environment = self.dataset.environments[self.dataset.facts(task_id).environment_id]
        name = environment.submit_tool
        submit = None if name is None else find_family(self.family(task_id)).submit(name)
        return Toolbox(environment, submit)

    def session(self) -> Session:
        """A place to play episodes, one after the other."""
        return Session(self)


class Session:
    """One agent's episodes, one at a time. Not thread-safe: one caller at a time.

    Args:
        episodes: what may be played.
    """

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes
        self._envs: dict[str, EpisodeEnv] = {}
        self._env: EpisodeEnv | None = None
        self.opening: Opening | None = None
        self.outcome = StepResult("", 0.0, False)
        self.steps = 0

    @property
    def running(self) -> bool:
        """Whether an episode takes steps."""
        return self._env is not None and not self.outcome.done

    def reset(self, task_id: str | None = None, seed: int | None = None) -> Opening:
        """Begin an episode; the one before is given up.

        Args:
            task_id: which task; None: the one that ``seed`` draws.
            seed: of that draw.

        Raises:
            ConfigError: if there is no such task, or neither is given.
            EnvError, SandboxUnavailableError: if it can't be begun.
        """
        if task_id is None:
            if seed is None:
                raise ConfigError("neither a task nor a seed is named", "give one of them")
            task_id = self._episodes.draw(seed)
        self._episodes.require(task_id)
        family = self._episodes.family(task_id)
        if self._env is not None:
            self._env.close()
        self._env, self.outcome, self.steps = None, StepResult("", 0.0, False), 0
        env = self._envs.get(family) or self._made(family)
        text, info = env.reset(options={"task_id": task_id})
        self._env = env
        self.opening = Opening(
            task_id, family, seed, text, info["messages"], info["tools"], env.task.limits.turns
        )
        return self.opening

    def _made(self, family: str) -> EpisodeEnv:
        config, dataset = self._episodes.config, self._episodes.dataset
        env = make_env(dataset, family, backend=config.backend, isolate=config.isolate)
        self._envs[family] = env
        return env

    def say(self, message: JsonValue) -> StepResult:
        """Play a turn: an assistant message with its calls, or plain text; it counts as one of the task's.

        What is neither is refused in the episode, as ``parse_action`` says.

        Raises:
            ConfigError: if no episode is running.
            EnvError, VerifierError: if the environment broke; the episode is over and has no reward.
            UnjudgedError: if the answer waits for a judge.
        """
        return self._step(message if isinstance(message, str) else compact(message), 1)

    def call(self, name: JsonValue, arguments: JsonValue) -> StepResult:
        """Make one call, of perhaps several that the agent makes in a turn; raises as ``say``."""
        call: dict[str, JsonValue] = {"name": name, "arguments": arguments}
        return self._step(compact({"content": "", "tool_calls": [call]}), CALLS_A_TURN)

    def _step(self, action: str, steps_a_turn: int) -> StepResult:
        if self._env is None:
            raise ConfigError("no episode is running", "reset first")
        if self.outcome.done:
            raise ConfigError("the episode is over", "reset for another")
        self.steps += 1
        env, before, made = self._env, len(self._env.messages), len(self._env.calls)
        env.steps_a_turn = steps_a_turn
        try:
            text, reward, terminated, truncated, info = env.step(action)
        except (EnvError, VerifierError, UnjudgedError) as error:
            self.outcome = StepResult("", 0.0, True, stop=f"error: {error}"[:500])
            raise
        told = env.messages[before:]
        self.outcome = StepResult(
            text, reward, terminated or truncated, tuple(info.get("reasons", ())),
            info.get("stop", ""), tuple(one.content for one in told if one.role == "tool"),
            any(one.error is not None for one in env.calls[made:][-1:]),
        )  # fmt: skip
        return self.outcome

    def close(self) -> None:
        """Give up the episode, and let go of what it holds; harmless a second time."""
        for env in self._envs.values():
            env.close()
        self._envs, self._env = {}, None


def _chosen(dataset: Dataset, config: EpisodesConfig) -> tuple[str, ...]:
    for name in config.families:
        find_family(name)
    names: Sequence[str] = tuple(dataset.tasks) if config.variants else dataset.own_task_ids
    if config.task_ids:
        for name in config.task_ids:
            if name not in dataset.tasks:
                near = near_names(name, dataset.own_task_ids)
                raise ConfigError(f"no task {name[:100]!r} in {str(dataset.path)!r}{near}")
        names = config.task_ids
    found = [name for name in names if _wanted(dataset, name, config)]
    if not found:
        raise ConfigError(
            f"no task of {str(dataset.path)!r} is left", "ask for other splits, families or levels"
        )
    if config.limit is not None and config.limit < len(found):
        kept = set(rng(config.seed, "limit").sample(found, config.limit))
        found = [name for name in found if name in kept]
    return tuple(found)


def _wanted(dataset: Dataset, name: str, config: EpisodesConfig) -> bool:
    facts = dataset.facts(name)
    return (
        config.split in (None, facts.split)
        and (not config.families or facts.family in config.families)
        and config.min_level <= facts.level
        and (config.max_level is None or facts.level <= config.max_level)
    )

"""envgen's tasks as a taskset of ``verifiers`` 0.4, with an environment that plays and scores them.

The agent meets the task's tools over MCP, at an address that is the episode's own; the verifier runs in the
process that loads the taskset. An agent with a shell belongs in a container (``runtime.type docker``): the
dataset, with solutions and verifiers, lies where the taskset is loaded.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from envgen.core.errors import ConfigError, EnvError, MissingExtraError
from envgen.integrations.seats import Seat
from envgen.integrations.sessions import Episodes
from envgen.integrations.settings import EnvServerConfig, EpisodesConfig

try:
    import verifiers.v1 as vf
    from verifiers.v1.mcp import SharedToolServer
    from verifiers.v1.runtimes import SubprocessConfig
except ImportError as error:
    raise MissingExtraError(
        "this is a taskset of the package verifiers, 0.4 or later", "pip install 'verifiers>=0.4'"
    ) from error

from envgen.integrations.server import EnvServer

SERVER = "envgen"
"""The name of the tool server, as harnesses show it."""
REWARD = "score"


class EnvgenData(vf.TaskData):  # type: ignore[misc]
    """A task's public side."""

    task_id: str
    level: int
    split: str


class EnvgenConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which episodes are played: ``--env.taskset.split train``."""

    dataset: Path | None = None
    """A dataset folder; None: the one in the package."""
    split: str | None = None
    families: list[str] = []
    variants: bool = True
    min_level: int = 1
    max_level: int | None = None
    num_tasks: int | None = None
    """At most so many tasks."""
    episodes: int | None = None
    """So many episodes, tasks in an order that the seed draws, again and again; None: each task once."""
    seed: int = 0
    backend: str = "auto"

    def chosen(self) -> EpisodesConfig:
        """The same in envgen's words."""
        return EpisodesConfig.model_validate(
            {
                "split": self.split, "families": tuple(self.families), "variants": self.variants,
                "min_level": self.min_level, "max_level": self.max_level, "limit": self.num_tasks,
                "seed": self.seed, "backend": self.backend,
            }
        )  # fmt: skip


class EnvgenTask(vf.Task[EnvgenData]):  # type: ignore[misc]
    """One episode of one task."""

    seat: Seat | None = None

    @property
    def key(self) -> str:
        """The task's id in its dataset, and the place in the order where it comes more than once."""
        return f"{self.data.task_id}#{self.data.idx}"

    @vf.stop  # type: ignore[untyped-decorator]
    async def submitted(self, trace: vf.Trace) -> bool:
        """The episode is over: nothing that the agent does counts any more."""
        return self.seat is not None and self.seat.session.outcome.done


class EnvgenTaskset(vf.Taskset[EnvgenTask, EnvgenConfig]):  # type: ignore[misc]
    """The tasks of a dataset."""

    DATASET: ClassVar[Path | None] = None
    """Where a package has its dataset."""

    def episodes(self) -> Episodes:
        """What is played."""
        place = self.config.dataset or self.DATASET
        if place is None:
            raise ConfigError("no dataset is named", "--env.taskset.dataset FOLDER")
        return Episodes(place, self.config.chosen())

    def load(self) -> Iterator[EnvgenTask]:
        """The episodes, in order."""
        episodes = self.episodes()
        n = self.config.episodes
        names = episodes.task_ids if n is None else islice(episodes.stream(), n)
        for name in names:
            spec = episodes.dataset.tasks[name]
            public = spec.public(episodes.dataset.environments[spec.environment_id])
            data = EnvgenData(
                name=name, task_id=name, level=spec.difficulty.level, split=spec.split,
                prompt=public.prompt, system_prompt=public.policy_text or None,
            )  # fmt: skip
            yield EnvgenTask(data, self.config.task)


class EnvgenEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Who plays: by default a plain chat loop on this machine, which has the task's tools alone."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=SubprocessConfig())


class EnvgenEnv(vf.Env[EnvgenEnvConfig]):  # type: ignore[misc]
    """Plays an episode, and scores it by the task's own verifier."""

    _server: EnvServer | None = None
    _serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve the tools, to this process's episodes alone."""
        episodes = self.taskset.episodes()
        config = EnvServerConfig(port=0, host=self._address(), **dict(episodes.config))
        key = secrets.token_urlsafe(24)
        self._server = EnvServer(episodes.dataset, config, key=key)
        self._serving = asyncio.create_task(self._server.serve())
        await self._server.ready()

    def _address(self) -> str:
        """Containers reach this machine by another address than the loopback's."""
        local = all(spec.runtime.type == "subprocess" for spec in self._agent_specs.values())
        return "127.0.0.1" if local else "0.0.0.0"

    async def stop(self) -> None:
        """Stop the server."""
        server, self._server = self._server, None
        if server is not None and self._serving is not None:
            server.stop()
            await self._serving

    async def run(self, task: Any, agents: Any) -> None:
        """One episode.

        Raises:
            EnvError: if the environment broke; the episode counts for nobody.
        """
        assert self._server is not None
        seats = self._server.seats
        seat = seats.open()
        try:
            opening = await seats.reset(seat, task.data.task_id, None)
            playing = copy.copy(task)
            playing.seat = seat
            url = f"http://127.0.0.1:{self._server.port}/agents/{seat.key}/mcp"
            tools = {SERVER: SharedToolServer(url=url, local=True, external=True)}
            trace = await agents.player.run(playing, tools=tools)
            plain = seats.episodes.toolbox(opening.task_id).submit is None
            if plain and not seat.session.outcome.done:  # the last words are the answer
                await seats.say(seat, trace.last_reply or "")
            if seat.fault:
                raise EnvError(f"the environment broke: {seat.fault}")
            if trace.ok or seat.session.outcome.done:  # what broke on the agent's side is no 0
                trace.record_reward(REWARD, seat.session.outcome.reward)
                trace.record_metric("steps", seat.session.steps)
        finally:
            await seats.close(seat)

"""An environment server over a dataset: ``envgen serve env ds/``.

One process speaks OpenEnv (WebSocket ``/ws``), MCP (streamable HTTP) and a plain HTTP API of episodes. All
are the same sessions (``sessions.py``), so that the same actions get the same reward in each. Whoever opens
an episode gets its ``id``, which reads rewards, and the address of its tools, for the agent alone.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from envgen.core.environ import secret
from envgen.core.errors import MissingExtraError, install_hint
from envgen.store.dataset import Dataset

try:
    import uvicorn
    from starlette.types import ASGIApp
except ImportError as error:
    raise MissingExtraError(
        "serving environments needs Starlette, uvicorn and mcp 2", install_hint("env-server")
    ) from error

from envgen.integrations.front import EnvFront
from envgen.integrations.mcp_door import serve_stdio
from envgen.integrations.openenv import state
from envgen.integrations.own_thread import OwnThread
from envgen.integrations.seats import Seats
from envgen.integrations.sessions import Episodes
from envgen.integrations.settings import EnvServerConfig
from envgen.policies.serving.doors import LOOPBACK, QuietServer, TimedProtocol, in_thread, listen

_SHUTDOWN_S = 5


class EnvServer:
    """A server on a port: bound when it is made, so that ``url`` is known before it runs.

    Args:
        dataset: a folder, ``package:NAME``, or an open ``Dataset``.
        config: which episodes, port, limits.
        key: what clients may send beside the keys that ``config.api_key_env`` names.

    Attributes:
        port: where it listens.
        agents_url: of the door for agents alone, if it has a port of its own.
        seats: the open sessions.
        warning: what is unsafe about the address; empty if nothing.

    Raises:
        ConfigError: if the port can't be had, no task is left, or the key's environment variable is not set.
        DatasetError: if the dataset can't be used.
    """

    def __init__(
        self, dataset: str | Path | Dataset, config: EnvServerConfig, *, key: str | None = None
    ) -> None:
        self.config = config
        keys = [*([key] if key else []), *_keys(config)]
        self.made_key = ""
        if config.agents_port is not None and not keys:
            self.made_key = secrets.token_urlsafe(24)
            keys = [self.made_key]
        self.episodes = Episodes(dataset, config)
        self.seats = _seats(self.episodes, config)
        self._sockets = [listen(config.host, config.port)]
        agents, self.agents_url = None, ""
        if config.agents_port is not None:
            self._sockets.append(listen(config.host, config.agents_port))
            port = int(self._sockets[1].getsockname()[1])
            self.agents_url = _url(config.host, port)
            agents = (self.agents_url, port)
        self.port = int(self._sockets[0].getsockname()[1])
        self.warning = ""
        if config.host not in LOOPBACK and not keys:
            self.warning = (
                f"anyone who reaches {config.host}:{self.port} can play here and read rewards; "
                "set --api-key-env, or bind 127.0.0.1"
            )
        app = EnvFront(self.seats, config, keys, agents).app()
        self._server = QuietServer(_uvicorn(app, config))

    @property
    def url(self) -> str:
        """The base URL."""
        return _url(self.config.host, self.port)

    def card(self) -> dict[str, object]:
        """Return what a client needs, as JSON."""
        made = {"agents_url": self.agents_url, "key": self.made_key}
        return {
            "url": self.url,
            "port": self.port,
            **{name: value for name, value in made.items() if value},
            "dataset": self.episodes.dataset.manifest.name,
            "tasks": len(self.episodes),
            "max_sessions": self.config.max_sessions,
            "pid": os.getpid(),
        }

    def run(self) -> None:
        """Serve until Ctrl-C, SIGTERM or ``stop``; open sessions are given up then."""
        try:
            self._server.run(sockets=self._sockets)
        finally:
            self._hang_up()

    async def serve(self) -> None:
        """Serve as a task of the running event loop; ``ready`` waits until it answers."""
        try:
            await self._server.serve(sockets=self._sockets)
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        for one in self._sockets:
            one.close()

    async def ready(self) -> None:
        """Wait until the server answers requests."""
        while not self._server.started:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Let ``run`` return soon; may be called from any thread."""
        self._server.should_exit = True

    @contextmanager
    def running(self) -> Generator[EnvServer]:
        """Serve from a thread of its own, for as long as the block lasts."""
        with in_thread(self.run, self.stop, 2 * _SHUTDOWN_S):
            yield self


def make_app(dataset: str | Path | Dataset, *, key: str | None = None, **settings: Any) -> ASGIApp:
    """The server as an ASGI application, for a host of its own.

    Args:
        dataset: a folder, ``package:NAME``, or an open ``Dataset``.
        key: what clients must send; None: nothing.
        settings: of ``EnvServerConfig``.
    """
    config = EnvServerConfig(**settings)
    keys = [key] if key else []
    return EnvFront(_seats(Episodes(dataset, config), config), config, keys).app()


def serve_app(app: ASGIApp, host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve an application of ``make_app`` until Ctrl-C."""
    uvicorn.Server(_uvicorn(app, EnvServerConfig(host=host, port=port))).run()


def _seats(episodes: Episodes, config: EnvServerConfig) -> Seats:
    return Seats(episodes, most=config.max_sessions, idle_s=config.idle_s, threads=config.threads)


def _uvicorn(app: ASGIApp, config: EnvServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        http=TimedProtocol,
        ws=OwnThread,
        ws_max_size=config.max_body_bytes,
        ws_per_message_deflate=False,
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


def _keys(config: EnvServerConfig) -> list[str]:
    found = (secret(name, required=True) for name in config.api_key_env)
    return [key for key in found if key]


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve_one(
    dataset: str | Path,
    config: EnvServerConfig,
    seed: int,
    tell: Callable[[dict[str, Any]], None],
    *,
    over: Literal["stdio", "http"] = "stdio",
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve one episode's tools over MCP, to one agent.

    Args:
        dataset: a folder or ``package:NAME``.
        config: which episodes, port, limits.
        seed: draws the task, where the configuration leaves several.
        tell: called with where the episode stands: at the start, at the end, and after each request.
        over: standard input and output, until the client closes them; or ``/mcp`` behind a port, until Ctrl-C
            or SIGTERM.
        ready: called with the URL, over http.

    Raises:
        ConfigError: if there is no such task, or the port can't be had.
    """
    episodes = Episodes(dataset, config)
    keys = _keys(config)
    place = listen(config.host, config.port) if over == "http" else None

    async def play() -> None:
        seats = Seats(episodes, most=1, idle_s=config.idle_s, threads=1)
        seat = seats.open()
        try:
            await seats.reset(seat, None, seed)
            tell(state(seat))
            if place is None:
                await serve_stdio(seats, seat)
            else:
                app = EnvFront(seats, config, keys).agent_app(seat, lambda one: tell(state(one)))
                ready(f"{_url(config.host, place.getsockname()[1])}/mcp")
                await QuietServer(_uvicorn(app, config)).serve(sockets=[place])
            tell(state(seat))
        finally:
            await seats.shut()

    try:
        asyncio.run(play())
    finally:
        if place is not None:
            place.close()

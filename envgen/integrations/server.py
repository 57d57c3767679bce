"""An environment server over a dataset: ``envgen serve env ds/``.

One process speaks OpenEnv (WebSocket ``/ws``), MCP (streamable HTTP) and a plain HTTP API of episodes. All
are the same sessions (``sessions.py``), so that the same actions get the same reward in each. Whoever opens
an episode gets its ``id``, which reads rewards, and the address of its tools, for the agent alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from envgen.core.environ import secret
from envgen.core.errors import ConfigError, EnvgenError, MissingExtraError, install_hint
from envgen.core.jsonvalues import JsonError, loads
from envgen.core.limits import fault
from envgen.core.version import VERSION
from envgen.store.dataset import Dataset

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, HTTPConnection, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route, WebSocketRoute
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket
except ImportError as error:
    raise MissingExtraError(
        "serving environments needs Starlette, uvicorn and mcp 2", install_hint("env-server")
    ) from error

from envgen.integrations.fields import (
    ACTION_SCHEMA,
    OBSERVATION_SCHEMA,
    STATE_SCHEMA,
    ResetBody,
    SplitBody,
    ToolCallBody,
    TurnBody,
)
from envgen.integrations.mcp_door import McpDoor, serve_stdio
from envgen.integrations.openenv import Talk, TaskApi, opened, state
from envgen.integrations.seats import FullError, GoneError, Seat, Seats
from envgen.integrations.sessions import Episodes, Opening
from envgen.integrations.settings import EnvServerConfig
from envgen.policies.serving.doors import LOOPBACK, QuietServer, TimedProtocol, listen, require_host
from envgen.policies.serving.errors import ApiError

logger = logging.getLogger(__name__)
B = TypeVar("B", bound=BaseModel)

_SHUTDOWN_S = 5
_INVALID_REQUEST = -32600
_NAMED = 64
"""Characters of the name that a client gives its MCP session."""


class EnvServer:
    """A server on a port: bound when it is made, so that ``url`` is known before it runs.

    Args:
        dataset: a folder, ``package:NAME``, or an open ``Dataset``.
        config: which episodes, port, limits.
        key: what clients must send; None: what ``config.api_key_env`` names.

    Attributes:
        port: where it listens.
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
        key = key or secret(config.api_key_env, required=config.api_key_env is not None)
        self.episodes = Episodes(dataset, config)
        self.seats = _seats(self.episodes, config)
        self._socket = listen(config.host, config.port)
        self.port = int(self._socket.getsockname()[1])
        self.warning = ""
        if config.host not in LOOPBACK and key is None:
            self.warning = (
                f"anyone who reaches {config.host}:{self.port} can play here and read rewards; "
                "set --api-key-env, or bind 127.0.0.1"
            )
        app = _EnvFront(self.seats, config, key).app()
        self._server = QuietServer(_uvicorn(app, config))

    @property
    def url(self) -> str:
        """The base URL."""
        host = self.config.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def card(self) -> dict[str, object]:
        """Return what a client needs, as JSON."""
        return {
            "url": self.url,
            "port": self.port,
            "dataset": self.episodes.dataset.manifest.name,
            "tasks": len(self.episodes),
            "max_sessions": self.config.max_sessions,
            "pid": os.getpid(),
        }

    def run(self) -> None:
        """Serve until Ctrl-C, SIGTERM or ``stop``; open sessions are given up then."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    async def serve(self) -> None:
        """The same in a running event loop, as a task of it; ``ready`` waits until it answers."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    async def ready(self) -> None:
        """Wait until it answers."""
        while not self._server.started:
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Let ``run`` return soon; may be called from any thread."""
        self._server.should_exit = True

    @contextmanager
    def running(self) -> Generator[EnvServer]:
        """Serve from a thread of its own, for as long as the block lasts."""
        thread = threading.Thread(target=self.run, name="envgen-env-server", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop()
            thread.join(2 * _SHUTDOWN_S)


class AsciiResponse(JSONResponse):
    """JSON in ASCII: what a client sent comes back in states and errors, and may hold half a character."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False).encode("ascii")


class _EnvFront:
    """Between the network and the sessions: keys, bodies, errors."""

    def __init__(self, seats: Seats, config: EnvServerConfig, key: str | None) -> None:
        self._seats, self._config, self._key = seats, config, key
        self._tasks = TaskApi(seats.episodes)
        self._door = McpDoor(seats, config.max_body_bytes)
        self._named: dict[str, str] = {}
        """The names that clients gave their MCP sessions -> ids."""

    def app(self) -> Starlette:
        """The application."""
        gets: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self._about,
            "/metadata": self._about,
            "/schema": self._schema,
            "/openapi.json": self._openapi,
            "/state": self._no_state,
            "/list_environments": self._list,
            f"/{self._tasks.name}/splits": self._splits,
            "/episodes/{id}": self._state,
        }
        posts: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/reset": self._peek,
            "/step": self._no_step,
            "/episodes": self._open,
            "/episodes/{id}/step": self._step,
            **{
                f"/{self._tasks.name}/{what}": self._task
                for what in ("tasks", "num_tasks", "task", "task_range")
            },
        }
        return Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                *(Route(path, self._guarded(call), methods=["GET"]) for path, call in gets.items()),
                *(
                    Route(path, self._guarded(call), methods=["POST"])
                    for path, call in posts.items()
                ),
                Route("/episodes/{id}", self._guarded(self._close), methods=["DELETE"]),
                Route("/mcp", _Asgi(self._mcp), methods=["GET", "POST", "DELETE"]),
                Route("/agents/{key}/mcp", _Asgi(self._agent), methods=["GET", "POST", "DELETE"]),
                WebSocketRoute("/ws", self._socket),
            ],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _no_route},
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(self._seats.sweep())
        try:
            async with self._door.running():
                yield
        finally:
            sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeper
            await self._seats.shut()

    def _guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Any:
        """The handler behind the key, its errors told to the client."""

        async def answer(request: Request) -> Response:
            try:
                self._require_welcome(request)
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except (
                Exception
            ) as error:  # the boundary: a server's own handlers turn errors into answers
                return _told(error)

        return answer

    def _require_welcome(self, request: HTTPConnection) -> None:
        host = request.headers.get("host", "")
        if self._key is None:
            names = {name.lower() for name in (self._config.host, *self._config.allow_hosts)}
            if "*" not in names:
                require_host(host, names)
            origin = urlsplit(request.headers.get("origin", ""))
            if (
                origin.netloc and origin.netloc != host
            ):  # a web page's script, which has no business here
                raise ApiError(
                    "Pages of other origins may not play here.", status=403, code="origin"
                )
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise ApiError(
                "Incorrect or missing key; send it as 'Authorization: Bearer KEY'.",
                status=401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    # ------------------------------------------------------------------ what there is

    async def _health(self, _: Request) -> Response:
        return AsciiResponse({"status": "healthy"})

    async def _about(self, _: Request) -> Response:
        dataset = self._seats.episodes.dataset
        text = f"{len(self._seats.episodes)} proven tasks; each is an episode of tool calls."
        return AsciiResponse(
            {
                "name": dataset.manifest.name,
                "description": text,
                "version": dataset.manifest.version,
                "author": None,
                "readme_content": None,
                "documentation_url": None,
            }
        )

    async def _schema(self, _: Request) -> Response:
        return AsciiResponse(
            {"action": ACTION_SCHEMA, "observation": OBSERVATION_SCHEMA, "state": STATE_SCHEMA}
        )

    async def _openapi(self, request: Request) -> Response:
        """Paths and methods, by which OpenEnv's validator tells what a server is."""
        paths: dict[str, dict[str, Any]] = {}
        for route in request.app.routes:
            for method in sorted(getattr(route, "methods", None) or ()):
                if method != "HEAD":
                    paths.setdefault(route.path, {})[method.lower()] = {"responses": {}}
        info = {"title": self._tasks.name, "version": VERSION}
        return AsciiResponse({"openapi": "3.1.0", "info": info, "paths": paths})

    async def _no_state(self, _: Request) -> Response:
        return AsciiResponse({"episode_id": None, "step_count": 0})

    async def _list(self, _: Request) -> Response:
        return AsciiResponse([self._tasks.name])

    async def _splits(self, _: Request) -> Response:
        return AsciiResponse(self._tasks.splits())

    async def _task(self, request: Request) -> Response:
        what = request.url.path.rpartition("/")[2]
        return AsciiResponse(self._tasks.answer(what, await self._body(request, SplitBody)))

    # ------------------------------------------------------------------ episodes over HTTP

    async def _open(self, request: Request) -> Response:
        body = await self._body(request, ResetBody)
        seat = self._seats.open()
        try:
            opening = await self._seats.reset(seat, body.task_id, body.seed)
        except BaseException:
            await self._seats.close(seat)
            raise
        seat.name = body.episode_id
        return AsciiResponse(ticket(seat, opening), 201)

    async def _state(self, request: Request) -> Response:
        return AsciiResponse(state(self._seat(request)))

    async def _close(self, request: Request) -> Response:
        await self._seats.close(self._seat(request))
        return Response(status_code=204)

    async def _step(self, request: Request) -> Response:
        seat = self._seat(request)
        raw = await self._raw(request)
        if isinstance(raw, dict) and "tool_name" in raw:
            call = _checked(raw, ToolCallBody)
            await self._seats.call(seat, call.tool_name, call.arguments)
        else:
            turn = _checked(raw, TurnBody)
            plain = turn.tool_calls is None and turn.reasoning is None
            await self._seats.say(seat, turn.content or "" if plain else turn.message())
        outcome = seat.session.outcome
        return AsciiResponse(
            {"text": outcome.text, **{k: v for k, v in state(seat).items() if k != "episode_id"}}
        )

    async def _peek(self, request: Request) -> Response:
        """OpenEnv's ``/reset``, which keeps nothing: what an episode begins with."""
        body = await self._body(request, ResetBody)
        seat = self._seats.open()
        try:
            return AsciiResponse(opened(await self._seats.reset(seat, body.task_id, body.seed)))
        finally:
            await self._seats.close(seat)

    async def _no_step(self, _: Request) -> Response:
        raise ApiError(
            "A step needs a session: use the WebSocket /ws, or POST /episodes and then "
            "/episodes/ID/step.",
            status=409,
            code="no_session",
        )

    def _seat(self, request: Request) -> Seat:
        return self._seats.find(request.path_params["id"])

    # ------------------------------------------------------------------ MCP and OpenEnv

    async def _agent(self, scope: Scope, receive: Receive, send: Send) -> None:
        """MCP of one session: its address is the secret."""
        seat = self._seats.find(scope["path_params"]["key"], agent=True)
        await self._door.handle(seat, scope, receive, send)

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        """MCP of a session that the client names: ``/mcp?session=NAME``, and ``task_id`` or ``seed``."""
        connection = HTTPConnection(scope)
        self._require_welcome(connection)
        query = connection.query_params
        name = query.get("session", "")
        if not 0 < len(name) <= _NAMED:
            text = (
                "Name your session: /mcp?session=NAME, perhaps with &task_id=ID or &seed=N. "
                "Each name has an episode of its own."
            )
            error = {"code": _INVALID_REQUEST, "message": text}
            await AsciiResponse({"jsonrpc": "2.0", "id": None, "error": error})(
                scope, receive, send
            )
            return
        await self._door.handle(await self._by_name(name, query), scope, receive, send)

    async def _by_name(self, name: str, query: Mapping[str, str]) -> Seat:
        with contextlib.suppress(GoneError):
            return self._seats.find(self._named.get(name, ""))
        seed: str | int | None = query.get("seed")
        if isinstance(seed, str) and seed.isdecimal() and len(seed) < 20:
            seed = int(seed)
        body = _checked({"task_id": query.get("task_id"), "seed": seed}, ResetBody)
        seat = self._seats.open()
        known = {one for one in self._named if self._named[one] in self._seats}
        self._named = {one: self._named[one] for one in known} | {name: seat.id}
        try:
            await self._seats.reset(seat, body.task_id, body.seed)
        except BaseException:
            await self._seats.close(seat)
            raise
        seat.name = name
        return seat

    async def _socket(self, socket: WebSocket) -> None:
        try:
            self._require_welcome(socket)
        except ApiError as error:
            await socket.send_denial_response(_told(error))
            return
        await Talk(self._seats, socket).run()

    # ------------------------------------------------------------------ bodies

    async def _body(self, request: Request, kind: type[B]) -> B:
        return _checked(await self._raw(request), kind)

    async def _raw(self, request: Request) -> Any:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._config.max_body_bytes:
                limit = f"The request is longer than {self._config.max_body_bytes} bytes."
                raise ApiError(limit, status=413, code="request_too_large")
            parts.append(part)
        try:
            return loads(b"".join(parts).decode() or "{}")
        except (JsonError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(f"The body is not valid JSON: {error}", code="invalid_json") from error


class _Asgi:
    """A method as an ASGI application, its errors told to the client."""

    def __init__(self, call: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            await self._call(scope, receive, send)
        except Exception as error:  # the boundary, as in ``_guarded``
            await _told(error)(scope, receive, send)


def make_app(
    dataset: str | Path | Dataset, *, key: str | None = None, **settings: Any
) -> Starlette:
    """The server as an ASGI application, for a host of its own.

    Args:
        dataset: a folder, ``package:NAME``, or an open ``Dataset``.
        key: what clients must send; None: nothing.
        settings: of ``EnvServerConfig``.
    """
    config = EnvServerConfig(**settings)
    return _EnvFront(_seats(Episodes(dataset, config), config), config, key).app()


def serve_app(app: Starlette, host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve an application of ``make_app`` until Ctrl-C."""
    uvicorn.Server(_uvicorn(app, EnvServerConfig(host=host, port=port))).run()


def _seats(episodes: Episodes, config: EnvServerConfig) -> Seats:
    return Seats(episodes, most=config.max_sessions, idle_s=config.idle_s, threads=config.threads)


def _uvicorn(app: Starlette, config: EnvServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        http=TimedProtocol,
        ws="websockets-sansio",
        ws_max_size=config.max_body_bytes,
        ws_per_message_deflate=False,
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


def ticket(seat: Seat, opening: Opening) -> dict[str, Any]:
    """What whoever opened an episode gets: its id, its beginning, and the address of its tools."""
    return {
        "id": seat.id,
        "mcp": f"/agents/{seat.key}/mcp",
        "task_id": opening.task_id,
        "text": opening.text,
        "messages": opening.messages,
        "tools": opening.tools,
        "max_turns": opening.turns,
    }


def serve_one(dataset: str | Path, config: EnvServerConfig, seed: int) -> dict[str, Any]:
    """Serve one episode's tools over MCP on standard input and output; where it ended.

    Raises:
        ConfigError: if there is no such task.
    """
    episodes = Episodes(dataset, config)

    async def play() -> dict[str, Any]:
        seats = Seats(episodes, most=1, idle_s=config.idle_s, threads=1)
        seat = seats.open()
        try:
            await seats.reset(seat, None, seed)
            await serve_stdio(seats, seat)
            return state(seat)
        finally:
            await seats.shut()

    return asyncio.run(play())


def _checked(value: Any, kind: type[B]) -> B:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ApiError(f"Invalid body: {fault(error)}.", code="invalid_value") from error


def _told(error: Exception) -> Response:
    """Our own errors in their words; what else broke is told in the log only."""
    if isinstance(error, ApiError):
        return AsciiResponse(error.body(), error.status, error.headers)
    status, code = 500, "internal_error"
    if isinstance(error, FullError):
        status, code = 503, "full"
    elif isinstance(error, GoneError):
        status, code = 404, "no_session"
    elif isinstance(error, ConfigError):
        status, code = 422, "refused"
    if not isinstance(error, EnvgenError):
        logger.exception("a request broke", exc_info=error)
        return AsciiResponse(ApiError("Internal error.", status=500, code=code).body(), 500)
    message = f"{error}. {error.hint}" if error.hint else str(error)
    return AsciiResponse(ApiError(message, status=status, code=code).body(), status)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}."
    return _told(ApiError(message, status=error.status_code, code="unknown_url"))

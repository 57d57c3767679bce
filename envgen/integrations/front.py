"""Between the network and the sessions of an environment server: routes, keys, bodies, errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from secrets import token_urlsafe
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from envgen.core.errors import ConfigError, EnvgenError, MissingExtraError, install_hint
from envgen.core.jsonvalues import JsonError, loads
from envgen.core.limits import fault
from envgen.core.version import VERSION

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, HTTPConnection, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route, WebSocketRoute
    from starlette.types import ASGIApp, Receive, Scope, Send
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
)
from envgen.integrations.mcp_door import McpDoor
from envgen.integrations.openenv import TaskApi, opened, state, talk
from envgen.integrations.seats import FullError, GoneError, Seat, Seats
from envgen.integrations.sessions import Opening
from envgen.integrations.settings import EnvServerConfig
from envgen.policies.serving.doors import require_host, require_key, require_own_page
from envgen.policies.serving.errors import ApiError

logger = logging.getLogger(__name__)
B = TypeVar("B", bound=BaseModel)

_INVALID_REQUEST = -32600
_NAME_CHARS = (16, 64)
"""Least and most characters of the name that a client gives its MCP session."""


class AsciiResponse(JSONResponse):
    """JSON in ASCII: what a client sent comes back in states and errors, and may hold half a character."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False).encode("ascii")


class EnvFront:
    """Routes requests to sessions, checks keys and bodies, and answers errors."""

    def __init__(
        self,
        seats: Seats,
        config: EnvServerConfig,
        keys: Collection[str] = (),
        agents: tuple[str, int] | None = None,
    ) -> None:
        """Serve ``seats`` to whoever has one of ``keys``.

        Args:
            seats: the sessions.
            config: its limits.
            keys: that clients send; none: nobody is asked.
            agents: URL and port of the door that is for agents alone; None: they come by the same.
        """
        self._seats, self._config, self._keys, self._agents = seats, config, tuple(keys), agents
        self._tasks = TaskApi(seats.episodes)
        self._door = McpDoor(seats, config.max_body_bytes)
        self._named: dict[tuple[str, str], asyncio.Task[Seat]] = {}
        """Key and name of a client's MCP session -> the place, once its episode has begun."""

    def app(self) -> ASGIApp:
        """The application."""
        inner = self._app()
        return inner if self._agents is None else _Doors(inner, self._agents[1])

    def _app(self) -> Starlette:
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

    def agent_app(self, seat: Seat, tell: Callable[[Seat], None]) -> Starlette:
        """The application for one agent: the tools of its episode at ``/mcp``, and no way to a reward.

        ``tell`` is called after each request.
        """

        async def mcp(scope: Scope, receive: Receive, send: Send) -> None:
            self._owner(HTTPConnection(scope))
            try:
                await self._door.handle(seat, scope, receive, send)
            finally:
                tell(seat)

        return Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/mcp", _Asgi(mcp), methods=["GET", "POST", "DELETE"]),
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
        """Wrap a handler: it requires the key and answers errors as JSON."""

        async def answer(request: Request) -> Response:
            try:
                request.state.owner = self._owner(request)
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except (
                Exception
            ) as error:  # the boundary: a server's own handlers turn errors into answers
                return _told(error)

        return answer

    def _owner(self, request: HTTPConnection) -> str:
        """The key that a welcome client sent; empty where none is asked for."""
        host = request.headers.get("host", "")
        if not self._keys:
            names = {name.lower() for name in (self._config.host, *self._config.allow_hosts)}
            if "*" not in names:
                require_host(host, names)
            require_own_page(request.headers.get("origin"), host)
            return ""
        return require_key(request.headers.get("authorization", ""), self._keys)

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
        seat = await self._begun(request.state.owner, body)
        seat.name = body.episode_id
        opening = seat.session.opening
        assert opening is not None
        at = "" if self._agents is None else self._agents[0]
        return AsciiResponse(ticket(seat, opening, at), 201)

    async def _begun(self, owner: str, body: ResetBody) -> Seat:
        seat = self._seats.open(owner)
        try:
            await self._seats.reset(seat, body.task_id, body.seed)
        except BaseException:
            await self._seats.close(seat)
            raise
        return seat

    async def _state(self, request: Request) -> Response:
        return AsciiResponse(state(self._seat(request)))

    async def _close(self, request: Request) -> Response:
        await self._seats.close(self._seat(request))
        return Response(status_code=204)

    async def _step(self, request: Request) -> Response:
        seat = self._seat(request)
        raw = await self._raw(request)
        if isinstance(raw, dict) and "tool_name" in raw:
            await self._seats.call(seat, raw["tool_name"], raw.get("arguments"))
        else:
            await self._seats.say(seat, raw)
        outcome = seat.session.outcome
        return AsciiResponse(
            {"text": outcome.text, **{k: v for k, v in state(seat).items() if k != "episode_id"}}
        )

    async def _peek(self, request: Request) -> Response:
        """OpenEnv's ``/reset``, which keeps nothing: what an episode begins with."""
        body = await self._body(request, ResetBody)
        seat = self._seats.open(request.state.owner)
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
        return self._seats.find(request.path_params["id"], owner=request.state.owner)

    # ------------------------------------------------------------------ MCP and OpenEnv

    async def _agent(self, scope: Scope, receive: Receive, send: Send) -> None:
        """MCP of one session: its address is the secret."""
        seat = self._seats.find(scope["path_params"]["key"], agent=True)
        await self._door.handle(seat, scope, receive, send)

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        """MCP of a session that the client names: ``/mcp?session=NAME``, and ``task_id`` or ``seed``.

        DELETE ends it. Whoever knows the name is that client, so that names must be hard to guess.
        """
        connection = HTTPConnection(scope)
        owner, query = self._owner(connection), connection.query_params
        name = query.get("session", "")
        if not _NAME_CHARS[0] <= len(name) <= _NAME_CHARS[1]:
            text = (
                f"Name your session by {_NAME_CHARS[0]} to {_NAME_CHARS[1]} characters that nobody can "
                f"guess, such as /mcp?session={token_urlsafe(12)}, perhaps with &task_id=ID or &seed=N. "
                "Each name has an episode of its own."
            )
            error = {"code": _INVALID_REQUEST, "message": text}
            await AsciiResponse({"jsonrpc": "2.0", "id": None, "error": error})(
                scope, receive, send
            )
            return
        if scope["method"] == "DELETE":
            begun = self._live().get((owner, name))
            if begun is None:
                raise GoneError(
                    "there is no such session", "it was closed, or nobody used it for long"
                )
            await self._seats.close(await asyncio.shield(begun))
            await Response(status_code=204)(scope, receive, send)
            return
        await self._door.handle(await self._by_name(owner, name, query), scope, receive, send)

    async def _by_name(self, owner: str, name: str, query: Mapping[str, str]) -> Seat:
        begun = self._live().get((owner, name))
        if begun is None:
            seed: str | int | None = query.get("seed")
            if isinstance(seed, str) and seed.isdecimal() and len(seed) < 20:
                seed = int(seed)
            body = _checked({"task_id": query.get("task_id"), "seed": seed}, ResetBody)
            # Known at once, so that of two first requests one begins the episode, and both wait for it.
            begun = self._named[owner, name] = asyncio.ensure_future(self._begun(owner, body))
        seat = await asyncio.shield(begun)
        seat.name = name
        return seat

    def _live(self) -> dict[tuple[str, str], asyncio.Task[Seat]]:
        """The named sessions that are there; the others are forgotten."""
        for key, begun in list(self._named.items()):
            failed = begun.done() and (begun.cancelled() or begun.exception() is not None)
            if failed or (begun.done() and begun.result().id not in self._seats):
                del self._named[key]
        return self._named

    async def _socket(self, socket: WebSocket) -> None:
        try:
            owner = self._owner(socket)
        except ApiError as error:
            await socket.send_denial_response(_told(error))
            return
        await talk(self._seats, socket, owner)

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


class _Doors:
    """Agents' addresses at a port of their own, and everything else at the other."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app, self._port = app, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what has come to the right door."""
        if scope["type"] in ("http", "websocket") and scope["path"] != "/health":
            at_agents = (scope.get("server") or ("", None))[1] == self._port
            if at_agents != scope["path"].startswith("/agents/"):
                scope = {**scope, "path": "/nothing", "raw_path": b"/nothing"}
        await self._app(scope, receive, send)


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


def ticket(seat: Seat, opening: Opening, agents: str = "") -> dict[str, Any]:
    """What whoever opened an episode gets: its id, its beginning, and the address of its tools."""
    return {
        "id": seat.id,
        "mcp": f"{agents}/agents/{seat.key}/mcp",
        "task_id": opening.task_id,
        "text": opening.text,
        "messages": opening.messages,
        "tools": opening.tools,
        "max_turns": opening.turns,
    }


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

"""An OpenAI-compatible server over a model folder: ``envgen serve policy m/``.

Concurrent requests are answered as one batch. A client that goes away frees its place at once. Beside
OpenAI's own fields there are vLLM's for training: prompts as ids, ``return_token_ids``, routed experts,
sampling masks, ``/tokenize`` and ``/detokenize``. envgen's ``openai:`` and ``vllm:`` policies work with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from envgen.core.environ import secret
from envgen.core.errors import ConfigError, EnvgenError, MissingExtraError, install_hint
from envgen.core.jsonvalues import JsonError, loads
from envgen.policies.local_model import LocalModel, ServeConfig, open_model

try:
    import torch  # noqa: F401  the engine's
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtraError(
        "serving a model needs PyTorch, Starlette and uvicorn", install_hint("serve")
    ) from error

from envgen.model.requests import EngineClosedError, PromptTooLongError, RequestCancelledError
from envgen.model.tokenizer import TextTooLongError
from envgen.policies.serving.chat import Chat
from envgen.policies.serving.clients import ClientGoneError, EventStream, unless_gone
from envgen.policies.serving.completions import Ids, Text
from envgen.policies.serving.doors import (
    LOOPBACK,
    QuietServer,
    TimedProtocol,
    in_thread,
    listen,
    require_host,
    require_key,
    require_own_page,
)
from envgen.policies.serving.errors import ApiError, invalid, too_long
from envgen.policies.serving.fields import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    GenerateBody,
    TokenizeBody,
)
from envgen.policies.serving.generation import Generation
from envgen.policies.serving.metrics import metrics
from envgen.policies.serving.replies import DONE, event
from envgen.policies.serving.service import Service
from envgen.policies.serving.tokenizing import detokenize, tokenize

__all__ = ["PolicyServer", "ServeConfig", "make_app"]

logger = logging.getLogger(__name__)
B = TypeVar("B", bound=BaseModel)
Work = Chat | Text | Ids
Handler = Callable[[Request], Awaitable[Response]]

_CLIENT_GONE = 499
_SHUTDOWN_S = 5


def make_app(service: Service, api_key: str | None) -> Starlette:
    """The application: all routes, errors in OpenAI's form.

    Args:
        service: the model.
        api_key: what clients must send; None: nothing.
    """
    front = _Front(service, api_key)
    return Starlette(
        routes=front.routes(),
        exception_handlers={HTTPException: _no_route},
    )


class _Front:
    """Between HTTP and the service: keys, bodies, errors, clients that go away."""

    def __init__(self, service: Service, api_key: str | None) -> None:
        self._service = service
        self._key = api_key

    def routes(self) -> list[Route]:
        """Method, path and handler of everything."""
        gets = {
            "/metrics": self._metrics,
            "/v1/models": self._models,
            "/v1/models/{name:path}": self._model,
        }
        posts = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._text,
            "/inference/v1/generate": self._ids,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
        }
        return [
            Route("/health", self._health, methods=["GET"]),
            *(Route(path, self._guarded(call), methods=["GET"]) for path, call in gets.items()),
            *(Route(path, self._guarded(call), methods=["POST"]) for path, call in posts.items()),
        ]

    def _guarded(self, handler: Handler) -> Handler:
        """The handler behind the key, its errors told to the client."""

        async def answer(request: Request) -> Response:
            try:
                self._require_welcome(request)
                return await handler(request)
            except (ClientGoneError, ClientDisconnect):
                return Response(status_code=_CLIENT_GONE)
            except ApiError as error:
                return _error_response(error)
            except (EngineClosedError, RequestCancelledError):
                return _error_response(_stopped())
            except TextTooLongError:
                return _error_response(too_long(self._service.local.window))
            except (ConfigError, PromptTooLongError) as error:
                return _error_response(ApiError(f"Invalid request: {error}.", code="invalid_value"))
            except (
                Exception
            ) as error:  # the boundary of a request: Starlette would close the connection
                logger.exception("a request broke")
                return _error_response(_api_error(error))

        async def call(request: Request) -> Response:
            started = time.monotonic()
            reply = await answer(request)
            status = getattr(reply, "status_code", 200)  # a stream has none, and has only begun
            seconds = time.monotonic() - started
            logger.info("%s %s: %d, %.3f s", request.method, request.url.path, status, seconds)
            return reply

        return call

    def _require_welcome(self, request: Request) -> None:
        if self._key is None:
            config = self._service.config
            names = {name.lower() for name in (config.host, *config.allow_hosts)}
            host = request.headers.get("host", "")
            require_host(host, names)
            require_own_page(request.headers.get("origin"), host)
            return
        given = request.headers.get("authorization", "")
        require_key(given, (self._key,))

    async def _health(self, request: Request) -> Response:
        stopping = self._service.stopping
        return PlainTextResponse("stopping\n" if stopping else "ok\n", 503 if stopping else 200)

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(metrics(self._service))

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _model(self, request: Request) -> Response:
        self._service.require_model(request.path_params["name"])
        return JSONResponse(self._card())

    def _card(self) -> dict[str, Any]:
        service = self._service
        return {
            "id": service.name,
            "object": "model",
            "created": service.created,
            "owned_by": "envgen",
            "max_model_len": service.local.window,
        }

    async def _tokenize(self, request: Request) -> Response:
        body = await self._body(request, TokenizeBody)
        return JSONResponse(await asyncio.to_thread(tokenize, self._service, body))

    async def _detokenize(self, request: Request) -> Response:
        body = await self._body(request, DetokenizeBody)
        return JSONResponse(await asyncio.to_thread(detokenize, self._service, body))

    async def _chat(self, request: Request) -> Response:
        body = await self._body(request, ChatBody)
        chat = await asyncio.to_thread(Chat, self._service, body)
        return await self._answer(request, chat)

    async def _text(self, request: Request) -> Response:
        body = await self._body(request, CompletionBody)
        text = await asyncio.to_thread(Text, self._service, body)
        return await self._answer(request, text)

    async def _ids(self, request: Request) -> Response:
        return await self._answer(
            request, Ids(self._service, await self._body(request, GenerateBody))
        )

    async def _answer(self, request: Request, work: Work) -> Response:
        generation = work.start()
        if not isinstance(work, Ids) and work.body.stream:
            stream = _events(work, generation)
            # Starlette calls what a handler returns as an ASGI application.
            return EventStream(stream, lambda: self._service.release(generation))  # type: ignore[return-value]
        try:
            return JSONResponse(await unless_gone(request.receive, work.whole(generation)))
        finally:
            self._service.release(generation)

    async def _body(self, request: Request, kind: type[B]) -> B:
        """The request's body, checked."""
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            # Also keeps web pages out: a browser must ask before it sends JSON to another origin.
            raise ApiError(
                f"Send 'Content-Type: application/json', not {media!r}.",
                status=415,
                code="unsupported_media_type",
            )
        content = await _read(request, self._service.config.max_body_bytes)
        # A long one takes seconds, in which the other clients are answered.
        return await asyncio.to_thread(_checked, content, kind)


async def _read(request: Request, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise ApiError(
                f"The request is longer than {limit} bytes.", status=413, code="request_too_large"
            )
        parts.append(part)
    return b"".join(parts)


def _checked(content: bytes, kind: type[B]) -> B:
    value = _json(content)
    if len(value) > len(
        kind.model_fields
    ):  # a body has room for a million, and each would be told of
        strange = next(name for name in value if name not in kind.model_fields)
        raise ApiError(
            f"Unknown parameter: {strange[:80]!r}.", code="unknown_parameter", param=strange[:80]
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise invalid(error) from error


def _json(content: bytes) -> dict[str, Any]:
    try:
        value = loads(content.decode(json.detect_encoding(content), "surrogatepass"))
    except (JsonError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(f"The body {_json_fault(error)}.", code="invalid_json") from error
    if not isinstance(value, dict):
        raise ApiError("The body is not a JSON object.", code="invalid_json")
    return value


def _json_fault(error: Exception) -> str:
    return str(error) if isinstance(error, JsonError) else f"is not valid JSON: {error}"


async def _events(work: Chat | Text, generation: Generation) -> AsyncIterator[bytes]:
    """The stream's events; an error in its midst is told and ends it, without ``[DONE]``."""
    try:
        async with aclosing(work.chunks(generation)) as chunks:
            async for chunk in chunks:
                yield event(chunk)
    except (EngineClosedError, RequestCancelledError):
        yield event(_stopped().body())
        return
    except Exception as error:  # the status is long sent: the boundary of a stream
        logger.exception("a stream broke")
        yield event(_api_error(error).body())
        return
    yield DONE


def _stopped() -> ApiError:
    return ApiError("The server is shutting down.", status=503, code="shutting_down")


def _api_error(error: Exception) -> ApiError:
    """Our own errors in their words; what else broke is told in the log only."""
    if isinstance(error, ApiError):
        return error
    message = f"The model failed: {error}" if isinstance(error, EnvgenError) else "Internal error."
    return ApiError(message, status=500, code="internal_error")


def _error_response(error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status, error.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}."
    return _error_response(ApiError(message, status=error.status_code, code="unknown_url"))


class PolicyServer:
    """A server on a port: bound when it is made, so that ``url`` is known before it runs.

    Args:
        config: model, port, limits.
        local: an engine that already runs; the caller closes it. None: opened from the folder.

    Attributes:
        port: where it listens.
        service: the model and its counters.
        warning: what is unsafe about the address; empty if nothing.

    Raises:
        ConfigError: if the port can't be had, or the key's environment variable is not set.
    """

    def __init__(self, config: ServeConfig, *, local: LocalModel | None = None) -> None:
        api_key = secret(config.api_key_env, required=config.api_key_env is not None)
        self._socket = listen(config.host, config.port)
        self.port = int(self._socket.getsockname()[1])
        self._owned = local is None
        try:
            self._local = local or open_model(config)
        except BaseException:
            self._socket.close()
            raise
        name = config.model_name or Path(config.model).resolve().name
        self.service = Service(self._local, config, name)
        self.warning = ""
        if config.host not in LOOPBACK and api_key is None:
            self.warning = (
                f"anyone who reaches {config.host}:{self.port} can use this model; "
                "set --api-key-env, or bind 127.0.0.1"
            )
        self._server = _Uvicorn(
            uvicorn.Config(
                make_app(self.service, api_key),
                http=TimedProtocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=config.idle_s,
                timeout_graceful_shutdown=_SHUTDOWN_S,
            ),
            self.service,
        )

    @property
    def url(self) -> str:
        """OpenAI's base URL, with ``/v1``."""
        host = self.service.config.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/v1"

    def card(self) -> dict[str, object]:
        """Return what a client needs, as JSON: address, name, window, version, process."""
        return {
            "url": self.url,
            "port": self.port,
            "model": self.service.name,
            "max_model_len": self._local.window,
            "policy_version": self._local.version,
            "pid": os.getpid(),
        }

    def run(self) -> None:
        """Serve until Ctrl-C, SIGTERM or ``stop``; then what is under way is given up."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.close()

    def close(self) -> None:
        """Give up the port and, where it is the server's own, the engine; ``run`` ends with it."""
        self._socket.close()
        if self._owned:
            self._local.close()

    def stop(self) -> None:
        """Let ``run`` return soon; may be called from any thread."""
        self._server.should_exit = True

    @contextmanager
    def running(self) -> Generator[PolicyServer]:
        """Serve from a thread of its own, for as long as the block lasts."""
        with in_thread(self.run, self.stop, 2 * _SHUTDOWN_S):
            yield self


class _Uvicorn(QuietServer):
    """Gives up what is under way when it is told to stop, and then just returns."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it, but clients are told first."""
        self._service.stop()
        await super().shutdown(sockets)

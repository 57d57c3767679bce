"""The tools of an open session as an MCP server: over HTTP for many sessions, over stdio for one.

The official SDK speaks the protocol, of all its revisions. A session is named by its URL and not by the
transport's own sessions, which the newest revision has no longer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from envgen.core.errors import EnvgenError, MissingExtraError, install_hint
from envgen.core.version import VERSION
from envgen.integrations.seats import Seat, Seats

try:
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Scope, Send
except ImportError as error:
    raise MissingExtraError(
        "serving environments needs Starlette, uvicorn and mcp 2", install_hint("env-server")
    ) from error

SEAT = "envgen.seat"
"""Where a request's scope holds its session."""
PROMPT = "task"
"""The MCP prompt that holds what an agent is told."""


class McpDoor:
    """MCP over HTTP; a request's scope says which session it is about.

    Args:
        seats: of the server.
        most_bytes: of a request.
    """

    def __init__(self, seats: Seats, most_bytes: int) -> None:
        async def of(context: Any) -> Seat:
            seat: Seat = context.request.scope[SEAT]
            return seat

        self._manager = StreamableHTTPSessionManager(
            server(seats, of), json_response=True, stateless=True, max_request_body_size=most_bytes
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Handle requests as long as the block lasts."""
        async with self._manager.run():
            yield

    async def handle(self, seat: Seat, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request as an ASGI application."""
        await self._manager.handle_request({**scope, SEAT: seat}, receive, send)


async def serve_stdio(seats: Seats, seat: Seat) -> None:
    """Serve one session on standard input and output, until the client closes them."""

    async def of(_: Any) -> Seat:
        return seat

    door = server(seats, of)
    async with stdio_server() as (reading, writing):
        await door.run(reading, writing, door.create_initialization_options())


def server(seats: Seats, of: Callable[[Any], Awaitable[Seat]]) -> Server[Any]:
    """The SDK's server over sessions.

    Args:
        seats: runs the calls.
        of: the session that a request is about.
    """

    async def list_tools(context: Any, _: Any) -> types.ListToolsResult:
        opening = (await of(context)).session.opening
        functions = [] if opening is None else [tool["function"] for tool in opening.tools]
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=one["name"], description=one["description"], input_schema=one["parameters"]
                )
                for one in functions
            ]
        )

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        seat = await of(context)
        try:
            outcome = await seats.call(seat, params.name, params.arguments)
            text, wrong = outcome.text, outcome.failed
        except EnvgenError as error:  # the episode is over, or its environment broke
            text, wrong = str(error), True
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=wrong
        )

    async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
        about = "The task, as its agent is told it."
        return types.ListPromptsResult(prompts=[types.Prompt(name=PROMPT, description=about)])

    async def get_prompt(context: Any, _: Any) -> types.GetPromptResult:
        opening = (await of(context)).session.opening
        content = types.TextContent(type="text", text="" if opening is None else opening.text)
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    return Server(
        "envgen",
        version=VERSION,
        instructions="An episode of one task: the prompt named 'task' says what to do.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )

"""NeMo Gym (0.4): a resources server over the adapter, for its simple_agent and whatever posts tools by name.

``envgen export ds/ --format nemo`` writes the server, its configuration and the rows. A row names its task
and holds prompt and tools as NeMo Gym has them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from envgen.core.errors import EnvgenError, MissingExtraError
from envgen.integrations.seats import GoneError, Seat, Seats
from envgen.integrations.sessions import Episodes
from envgen.integrations.settings import EnvServerConfig

try:
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.responses import PlainTextResponse
    from nemo_gym.base_resources_server import (
        BaseSeedSessionRequest,
        BaseSeedSessionResponse,
        BaseVerifyRequest,
        BaseVerifyResponse,
        SimpleResourcesServer,
    )
    from nemo_gym.server_utils import SESSION_ID_KEY
    from pydantic import ConfigDict, PrivateAttr
except ImportError as error:
    raise MissingExtraError(
        "this module is NeMo Gym's resources server", "pip install nemo-gym"
    ) from error


class SeedRequest(BaseSeedSessionRequest):  # type: ignore[misc]  # not installed here
    """A row: which task."""

    model_config = ConfigDict(extra="allow")

    task_id: str


class VerifyRequest(BaseVerifyRequest):  # type: ignore[misc]  # not installed here
    """A row and the agent's conversation."""

    model_config = ConfigDict(extra="allow")


class VerifyResponse(BaseVerifyResponse):  # type: ignore[misc]  # not installed here
    """The same, with the reward."""

    model_config = ConfigDict(extra="allow")

    done: bool
    """Whether an answer was submitted, or the task's limits ended the episode."""
    reasons: list[str]
    """The rules that the answer breaks."""


class EnvgenResourcesServer(SimpleResourcesServer):  # type: ignore[misc]  # not installed here
    """Episodes of ``DATASET``: each tool is a route, and the reward is what our verifier gives."""

    DATASET: ClassVar[str | Path]
    _seats: Seats = PrivateAttr()
    _ids: dict[str, str] = PrivateAttr(default_factory=dict)
    """NeMo Gym's session ids -> ours."""
    _sweeper: asyncio.Task[None] | None = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        """Their application, with a route for every tool."""
        app: FastAPI = super().setup_webserver()
        config = EnvServerConfig()
        self._seats = Seats(
            Episodes(self.DATASET, config),
            most=config.max_sessions,
            idle_s=config.idle_s,
            threads=16,
        )
        app.post("/{tool}")(self.call_tool)
        return app

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        """Begin an episode.

        Raises:
            HTTPException: if there is no such task, or it can't be begun.
        """
        if self._sweeper is None:  # an agent that fails never verifies, and its place is given up
            self._sweeper = asyncio.create_task(self._seats.sweep())
        self._ids = {theirs: ours for theirs, ours in self._ids.items() if ours in self._seats}
        try:
            try:
                seat = self._seat(request)
            except GoneError:
                seat = self._seats.open()
                self._ids[request.session[SESSION_ID_KEY]] = seat.id
            await self._seats.reset(seat, body.task_id, None)
        except EnvgenError as error:
            raise HTTPException(422, str(error)) from error
        return BaseSeedSessionResponse()

    async def call_tool(self, tool: str, request: Request) -> PlainTextResponse:
        """What a tool returns, as its agent reads it."""
        try:
            arguments: Any = await request.json()
            if not isinstance(arguments, dict):
                raise ValueError("a call takes an object")
            return PlainTextResponse(
                (await self._seats.call(self._seat(request), tool, arguments)).text
            )
        except (EnvgenError, ValueError) as error:  # it is over, or broke, which verify tells
            return PlainTextResponse(str(error), 400)

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyResponse:
        """The reward of the episode, which is over then; a last message without calls is played as a turn.

        Raises:
            HTTPException: if the environment broke, so that there is no reward.
        """
        try:
            seat = self._seat(request)
            if seat.session.running and (said := _last_words(body)):
                await self._seats.say(seat, said)
        except EnvgenError as error:
            raise HTTPException(500, str(error)) from error
        finally:
            self._ids.pop(request.session[SESSION_ID_KEY], None)
        outcome, broken = seat.session.outcome, seat.fault
        await self._seats.close(seat)
        if broken:
            raise HTTPException(500, broken)
        return VerifyResponse(
            **body.model_dump(),
            reward=outcome.reward,
            done=outcome.done,
            reasons=list(outcome.reasons),
        )

    def _seat(self, request: Request) -> Seat:
        return self._seats.find(self._ids.get(request.session[SESSION_ID_KEY], ""))


def _last_words(body: VerifyRequest) -> str:
    """The text of the agent's last message, if the conversation ends with one."""
    last = body.response.output[-1] if body.response.output else None
    if last is None or last.type != "message":
        return ""
    return "".join(part.text for part in last.content if part.type == "output_text")

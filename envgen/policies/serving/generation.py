"""Requests under way, seen from the event loop: tokens of several samples as they come, and their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from envgen.policies.serving.deltas import Delta
from envgen.policies.serving.text import Characters, StopText

if TYPE_CHECKING:
    from envgen.model.engine import Engine
    from envgen.model.requests import Completion, Request
    from envgen.model.tickets import Ticket
    from envgen.model.tokenizer import Tokenizer


class Token(NamedTuple):
    """One sampled id."""

    id: int
    logprob: float
    version: str
    """Of the weights."""


class PieceReader(Protocol):
    """Makes pieces of a reply of its ids."""

    @property
    def stopped(self) -> bool:
        """A stop sequence was found; the reply ends there."""
        ...

    def feed(self, token: int) -> list[Delta]:
        """What the next id adds."""
        ...

    def finish(self) -> list[Delta]:
        """What is left at the end."""
        ...


class TextReader:
    """Reads ids as plain text, the id that ends the reply left out.

    Args:
        tokenizer: of the model.
        stop_ids: ids that end a reply.
        stops: sequences that end the text.
        skip_special: leave control tokens out.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop_ids: Sequence[int],
        stops: Sequence[str] = (),
        *,
        skip_special: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = frozenset(stop_ids)
        if skip_special:
            self._hidden |= frozenset(tokenizer.control.values())
        self._characters = Characters()
        self._text = StopText(stops)

    @property
    def stopped(self) -> bool:
        """A stop sequence was found."""
        return self._text.stopped

    def feed(self, token: int) -> list[Delta]:
        """Whole characters."""
        if token in self._hidden:
            return []
        text = self._characters.feed(self._tokenizer.token_bytes(token))
        return _pieces(self._text.feed(text))

    def finish(self) -> list[Delta]:
        """What was held back."""
        return _pieces(self._text.settle(self._text.held + self._characters.feed(b"", final=True)))


class IdReader:
    """Makes no text at all."""

    stopped = False

    def feed(self, token: int) -> list[Delta]:
        """Nothing."""
        return []

    def finish(self) -> list[Delta]:
        """Nothing."""
        return []


def _pieces(text: str) -> list[Delta]:
    return [Delta(content=text)] if text else []


@dataclass(eq=False)
class Sample:
    """One reply as far as it is there."""

    index: int
    prompt: Sequence[int]
    reader: PieceReader
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str | None = None
    """``stop`` or ``length`` once it is complete."""
    completion: Completion | None = None
    """None where a stop sequence cut the reply."""
    version: str = ""
    """Of the weights that write it; empty before its first token."""


class SampledToken(NamedTuple):
    """What came of one sample: a token (none at the end), and what it adds to the reply."""

    sample: Sample
    token: Token | None
    deltas: list[Delta]
    num_tokens: int
    """That came with it: 1, none at the end, all at the end where tokens are not told one by one."""


class Generation:
    """Samples that an engine writes for one client.

    Submits at once; iterate ``steps`` for what comes, and ``cancel`` whatever happens.

    Args:
        engine: it runs.
        requests: what to write.
        samples: where it goes, one for each request.
        each_token: tell every token as it comes; else only whole samples, which costs much less.

    Raises:
        PolicyError: if the engine takes a request no more; then none goes on.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[Request],
        samples: Sequence[Sample],
        *,
        each_token: bool = True,
    ) -> None:
        self.samples = list(samples)
        self._each_token = each_token
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[int, Token | None]] = asyncio.Queue()
        self._tickets: list[Ticket] = []
        try:
            for index, request in enumerate(requests):
                self._tickets.append(self._submit(engine, request, index))
        except BaseException:
            self.cancel()
            raise

    @property
    def under_way(self) -> int:
        """Samples that the engine still writes, whether or not the client reads them."""
        return sum(not ticket.done for ticket in self._tickets)

    def cancel(self) -> None:
        """Give up what is not complete; its place and pages are free with the engine's next step."""
        for ticket in self._tickets:
            if not ticket.done:
                ticket.cancel()

    async def steps(self) -> AsyncIterator[SampledToken]:
        """All tokens of all samples, each sample's in order.

        Raises:
            PolicyError: if the engine is closed.
            Exception: what broke the engine.
        """
        left = len(self.samples)
        while left:
            index, token = await self._queue.get()
            sample = self.samples[index]
            if sample.finish is not None:
                continue
            if token is None:
                step = self._end(sample, self._tickets[index].result(0))
            else:
                sample.version = token.version
                step = SampledToken(sample, token, self._take(sample, token.id, token.logprob), 1)
                if sample.reader.stopped:
                    self._tickets[index].cancel()
                    sample.finish = "stop"
            left -= sample.finish is not None
            yield step

    def _take(self, sample: Sample, token: int, logprob: float) -> list[Delta]:
        sample.ids.append(token)
        sample.logprobs.append(logprob)
        return sample.reader.feed(token)

    def _end(self, sample: Sample, done: Completion) -> SampledToken:
        before = len(sample.ids)
        found: list[Delta] = []
        if not self._each_token:
            for token, logprob in zip(done.ids.tolist(), done.logprobs.tolist(), strict=True):
                found += self._take(sample, token, logprob)
        found += sample.reader.finish()
        sample.completion = done
        # Text that waited to be told reasoning from content may hold a stop sequence.
        sample.finish = "stop" if sample.reader.stopped else done.finish_reason
        sample.version = done.policy_version
        return SampledToken(sample, None, found, len(sample.ids) - before)

    def _submit(self, engine: Engine, request: Request, index: int) -> Ticket:
        def tell(token: Token | None) -> None:
            with suppress(RuntimeError):  # the event loop has ended, and nobody listens
                self._loop.call_soon_threadsafe(self._queue.put_nowait, (index, token))

        def on_token(token: int, logprob: float) -> None:
            tell(Token(token, logprob, engine.policy_version))

        ticket = engine.submit(request, on_token if self._each_token else None)
        ticket.add_done_callback(lambda: tell(None))
        return ticket

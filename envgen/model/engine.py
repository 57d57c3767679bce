"""The inference engine: continuous batching over a paged cache, with prefix reuse and exact records.

    engine = Engine(model, EngineConfig(max_batch=32))
    replies = engine.generate([Request(ids, SamplingParams(seed=1))])    # blocking

    with engine:                                                         # a thread of its own
        ticket = engine.submit(Request(ids))
        for token in ticket.tokens(): ...

Requests join and leave between steps. A step prefills at most ``prefill_chunk_tokens`` tokens, then adds one
token to every sequence that is prefilled. Each reply comes with what training replays: log-probabilities,
sampling masks, expert routing and, on request, the key sets of sparse attention.

The same requests to an engine in the same state give the same bytes. In another state (other requests
beside them, pages known already, pages running out) sums are taken in another order: log-probabilities
then differ by rounding, and ids only where a draw falls that close to a border.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from envgen.core.errors import ConfigError
from envgen.core.limits import Line
from envgen.core.types import Record
from envgen.model.batch import Batch
from envgen.model.modeling import DSAForCausalLM
from envgen.model.prefix import PageStore
from envgen.model.requests import (
    Completion,
    EngineClosedError,
    PromptTooLongError,
    Request,
    RequestCancelledError,
)
from envgen.model.runner import ModelRunner
from envgen.model.scheduler import Scheduler, Sequence
from envgen.model.tickets import OnToken, Ticket

logger = logging.getLogger(__name__)
IDLE_WAIT_S = 60.0


class EngineConfig(Record):
    """Sizes of an engine."""

    max_batch: int = Field(default=32, ge=1)
    """Sequences that run together."""
    cache_tokens: int = Field(default=65_536, ge=1)
    """Tokens the cache holds."""
    cache_bytes: int | None = Field(default=None, ge=1)
    """Instead of ``cache_tokens``: memory for the cached rows."""
    page_tokens: int = Field(default=16, ge=1)
    """Tokens in a page, the unit of sharing."""
    max_context: int | None = Field(default=None, ge=2)
    """Prompt and reply together; None: the model's. Never more than the cache holds."""
    prefill_chunk_tokens: int = Field(default=512, ge=1)
    """Most prompt tokens, padding included, that are computed between two decoding steps."""
    prefix_reuse: bool = True
    """Find pages again by their content."""
    fused: bool = True
    """Decode a small float32 model by prepared copies of its weights, which is about twice as fast."""
    policy_version: Line = ""
    """Of the weights; stamped on every reply."""


@dataclass(frozen=True)
class Stats:
    """Counts since the engine was made, and its state now."""

    prefilled_tokens: int
    """Prompt tokens computed, padding excluded; what was computed again after a preemption included."""
    decoded_tokens: int
    steps: int
    preemptions: int
    waiting: int
    running: int
    free_pages: int
    known_pages: int


class Engine:
    """Serves requests with one model. All methods may be called from any thread.

    Args:
        model: its weights; is put into evaluation mode. Call ``refresh`` when they have changed.
        config: sizes.

    Raises:
        ConfigError: if the cache is too small for a page.
    """

    def __init__(self, model: DSAForCausalLM, config: EngineConfig | None = None) -> None:
        self.config = config = config or EngineConfig()
        self.model = model.eval()
        self.num_pages = num_pages = _num_pages(model, config)
        self._store = PageStore(
            model.config, num_pages, config.page_tokens, model.dtype, model.device
        )
        own = config.max_context or model.config.max_position_embeddings
        self.max_context = min(own, num_pages * config.page_tokens)
        self._runner = ModelRunner(model, self._store, config.fused)
        chunk = max(1, config.prefill_chunk_tokens // config.page_tokens) * config.page_tokens
        self._scheduler = Scheduler(
            self._store, config.max_batch, chunk, config.policy_version, config.prefix_reuse
        )
        self._batch = Batch(self._scheduler, model.config, self.max_context, model.device)
        self._orders = itertools.count()
        # _stepping guards the model, the pages and the scheduler; _wake what callers leave for the loop.
        self._stepping = threading.RLock()
        self._wake = threading.Condition()
        self._arrivals: list[tuple[Ticket, Sequence]] = []
        self._dropped: list[Ticket] = []
        self._sequences: dict[Ticket, Sequence] = {}
        self._thread: threading.Thread | None = None
        self._pauses = 0

    def generate(self, requests: Many[Request]) -> list[Completion]:
        """All replies, in the order of the requests. Uses the caller's thread unless the engine is started.

        Raises:
            PromptTooLongError: if any prompt leaves no room for a reply; then none is started.
            ConfigError: if a prompt is empty or holds an id outside the vocabulary.
        """
        for request in requests:
            self.check(request)
        if self._thread is not None:
            tickets = self._submit([(request, None) for request in requests])
            return [ticket.result() for ticket in tickets]
        with self._stepping:
            sequences = [self._sequence(request) for request in requests]
            done: dict[Sequence, Completion] = {}
            try:
                for sequence in sequences:
                    self._scheduler.add(sequence)
                while len(done) < len(sequences):
                    done.update(self._step())
            except BaseException:
                self._abandon(sequences)
                raise
            return [done[sequence] for sequence in sequences]

    def check(self, request: Request) -> None:
        """Whether the request can be served at all.

        Raises:
            PromptTooLongError: if its prompt leaves no room for a reply.
            ConfigError: if its prompt is empty or holds an id outside the vocabulary.
        """
        ids, size = request.prompt_ids, self.model.config.vocab_size
        if not len(ids):
            raise ConfigError("the prompt holds no tokens", "give at least one id")
        if min(ids) < 0 or max(ids) >= size:
            raise ConfigError(
                f"the prompt holds ids from {min(ids)} to {max(ids)}",
                f"the model's vocabulary has {size} entries; use the tokenizer it was trained with",
            )
        if len(ids) >= self.max_context:
            raise PromptTooLongError(
                f"the prompt has {len(ids)} tokens; the engine holds {self.max_context} with the reply",
                "shorten the conversation, or raise max_context and cache_tokens",
            )

    def start(self) -> Self:
        """Serve submitted requests by a thread of the engine's own, until ``close``."""
        with self._wake:
            if self._thread is None:
                name = f"envgen-engine-{id(self):x}"
                self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._thread.start()
        return self

    def close(self, timeout_s: float = 60.0) -> None:
        """End the thread after the step under way; whoever waits gets ``EngineClosedError``.

        Raises:
            TimeoutError: if the step takes longer.
        """
        with self._wake:
            thread, self._thread = self._thread, None
            self._wake.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
            if thread.is_alive():
                raise TimeoutError(f"the engine's step did not end within {timeout_s} seconds")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, request: Request, on_token: OnToken | None = None) -> Ticket:
        """Hand a request to the running engine.

        Args:
            request: what to answer.
            on_token: called with each new id and its log-probability by the engine's thread; must return at
                once. What it raises ends this request.

        Raises:
            EngineClosedError: if the engine is not started.
            PromptTooLongError: if the prompt leaves no room for a reply.
            ConfigError: if the prompt is empty or holds an id outside the vocabulary.
        """
        self.check(request)
        return self._submit([(request, on_token)])[0]

    def cancel(self, ticket: Ticket) -> None:
        """The same as ``ticket.cancel()``."""
        ticket.cancel()

    @contextmanager
    def paused(self, timeout_s: float | None = None) -> Iterator[None]:
        """Finish what has begun, then hold still: inside, weights may be changed and ``refresh`` called.

        Raises:
            TimeoutError: if what has begun is not finished in time.
        """
        self._hold(timeout_s)
        try:
            yield
        finally:
            self._stepping.release()
            with self._wake:
                self._pauses -= 1
                self._wake.notify_all()

    def refresh(self, policy_version: str | None = None) -> None:
        """Take note of changed weights: forget all pages, prepare the weights anew.

        Args:
            policy_version: the new one; None: as before.

        Raises:
            ConfigError: if a reply is under way, which would then be of no version.
        """
        if self._scheduler.begun:
            raise ConfigError(
                "replies are under way, and the weights have changed",
                "change weights and refresh inside 'with engine.paused():'",
            )
        with self._stepping:
            self._store.forget_all()
            self._runner.refresh()
            if policy_version is not None:
                self._scheduler.policy_version = policy_version

    @property
    def policy_version(self) -> str:
        """The version that is stamped on replies."""
        return self._scheduler.policy_version

    def stats(self) -> Stats:
        """Counts, and the state between two steps as far as it can be seen."""
        scheduler, store = self._scheduler, self._store
        return Stats(
            prefilled_tokens=self._runner.prefilled_tokens,
            decoded_tokens=self._runner.decoded_tokens,
            steps=self._runner.steps,
            preemptions=scheduler.preemptions,
            waiting=len(scheduler.waiting) + len(self._arrivals),
            running=len(scheduler.running),
            free_pages=store.free_pages,
            known_pages=store.known_pages,
        )

    def _sequence(self, request: Request) -> Sequence:
        return Sequence(
            request, next(self._orders), list(request.prompt_ids), len(request.prompt_ids)
        )

    def _submit(self, requests: Many[tuple[Request, OnToken | None]]) -> list[Ticket]:
        with self._wake:
            if self._thread is None:
                raise EngineClosedError("the engine does not run", "call start() first")
            tickets = []
            for request, on_token in requests:
                ticket = Ticket(self._drop, on_token)
                self._arrivals.append((ticket, self._sequence(request)))
                tickets.append(ticket)
            self._wake.notify_all()
        return tickets

    def _drop(self, ticket: Ticket) -> None:
        ticket.settle(RequestCancelledError("the request was cancelled"))
        with self._wake:
            self._dropped.append(ticket)
            self._wake.notify_all()

    def _step(self) -> dict[Sequence, Completion]:
        """One prefill and one decode; what has ended."""
        scheduler = self._scheduler
        scheduler.admit(only_begun=self._pauses > 0)
        chunks = scheduler.plan_prefill()
        if chunks:
            self._runner.prefill(chunks)
            for chunk in chunks:
                scheduler.advance(chunk.sequence, chunk.stop)
        ready = scheduler.ready()
        if not ready:
            return {}
        return self._batch.extend(ready, self._runner.decode(ready))

    def _serve(self) -> None:
        """The loop of the engine's thread."""
        me = threading.current_thread()
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._thread is not me or self._has_work(), IDLE_WAIT_S)
                if self._thread is not me:
                    break
            with self._stepping:
                self._turn()
        with self._stepping:
            self._take_in()
            self._fail(EngineClosedError("the engine was closed before the reply was there"))

    def _has_work(self) -> bool:
        if self._arrivals or self._dropped:
            return True
        return self._scheduler.begun or (bool(self._scheduler.waiting) and not self._pauses)

    def _turn(self) -> None:
        """Run one turn of the thread. Whatever breaks it is told to all who wait, and it goes on."""
        try:
            self._take_in()
            for sequence, completion in self._step().items():
                ticket = sequence.ticket
                assert ticket is not None
                del self._sequences[ticket]
                ticket.settle(completion)
        except Exception as error:
            logger.exception("a step of the engine failed; its requests are told")
            self._fail(error)
        if self._pauses and not self._scheduler.begun:
            with self._wake:
                self._wake.notify_all()

    def _take_in(self) -> None:
        """Let new requests wait, and forget the ones that were given up."""
        with self._wake:
            arrivals, self._arrivals = self._arrivals, []
            dropped, self._dropped = self._dropped, []
        for ticket, sequence in arrivals:
            sequence.ticket = ticket
            self._sequences[ticket] = sequence
            self._scheduler.add(sequence)
        for ticket in dropped:
            if ticket in self._sequences:
                self._scheduler.remove(self._sequences.pop(ticket))

    def _fail(self, error: Exception) -> None:
        """End all requests with ``error`` and trust no page any more."""
        tickets, self._sequences = self._sequences, {}
        self._abandon(list(tickets.values()))
        for ticket in tickets:
            ticket.settle(error)

    def _abandon(self, sequences: Many[Sequence]) -> None:
        for sequence in sequences:
            self._scheduler.remove(sequence)
        self._store.wipe()

    def _hold(self, timeout_s: float | None) -> None:
        """Return with ``_stepping`` held and nothing begun."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._wake:
            self._pauses += 1
        while True:
            with self._wake:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._wake.wait_for(lambda: not self._scheduler.begun, left):
                    self._pauses -= 1
                    self._wake.notify_all()
                    raise TimeoutError(f"replies are still under way after {timeout_s} seconds")
            self._stepping.acquire()
            if not self._scheduler.begun:
                return
            self._stepping.release()


def _num_pages(model: DSAForCausalLM, config: EngineConfig) -> int:
    """How many pages the cache has.

    Raises:
        ConfigError: if it would have none.
    """
    c = model.config
    tokens = config.cache_tokens
    if config.cache_bytes is not None:
        row_bytes = (c.latent_width + c.index_head_dim) * model.lm_head.weight.element_size()
        tokens = config.cache_bytes // (row_bytes * c.num_hidden_layers)
    if tokens < config.page_tokens:
        raise ConfigError(
            f"the cache would hold {tokens} tokens, less than a page of {config.page_tokens}",
            "raise cache_tokens or cache_bytes",
        )
    return tokens // config.page_tokens

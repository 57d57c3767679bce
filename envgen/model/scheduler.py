"""The scheduler: choose the sequences that run, their pages, and the tokens computed next.

A sequence is *waiting*, or *running* in one of ``max_batch`` places. Of a running one all ids but the last
are first *prefilled*, in chunks; then each decoding step runs its last id and adds one. A chunk that another
sequence computes in the same step is waited for and shared. Pages are taken as they are needed. When none
is left, the youngest running sequence gives up its pages, keeps its ids, and waits to be computed again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envgen.model.prefix import Key, PageStore, first_key, next_key, pool_rows
from envgen.model.requests import Request
from envgen.model.sampling import Uniforms
from envgen.model.tickets import Ticket

SLOT_AREA = 1 << 17
"""Sequences times longest context in one prefill batch: one long context is not padded against many."""


class Records(NamedTuple):
    """What training replays of a sequence's first N tokens."""

    routing: NDArray[np.uint16]
    """Experts: [N, X, A]."""
    topk: NDArray[np.int32] | None
    """Key sets [N, L, K]; None: the request does not ask for them."""


@dataclass(eq=False)
class Sequence:
    """One request under way."""

    request: Request
    order: int
    """Of submission; the youngest has the largest."""
    ids: list[int]
    """Prompt, then what was sampled."""
    num_prompt: int
    ticket: Ticket | None = None
    """Whom to tell of new tokens."""
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    """Tokens whose rows are in the pages."""
    keys: list[Key] = field(default_factory=list)
    """Of the start and of each full page."""
    reused: int = 0
    """Tokens taken over from other sequences before the first preemption."""
    fresh: bool = True
    """Whether it was never preempted."""
    first_records: Records | None = None
    """Records of the tokens computed before a preemption, from which its sampled ids were drawn."""
    logprobs: list[float] = field(default_factory=list)
    full_logprobs: list[float] = field(default_factory=list)
    kept: list[NDArray[np.int32] | None] = field(default_factory=list)
    """Per sampled token the kept vocabulary entries; None: all. Left empty where nothing is truncated."""
    uniforms: Uniforms = field(init=False)
    stop_ids: frozenset[int] = field(init=False)
    max_new: int = field(init=False)
    truncates: bool = field(init=False)
    """Whether any draw may leave something out."""

    def __post_init__(self) -> None:
        params = self.request.params
        self.uniforms = Uniforms(params.seed)
        self.stop_ids = frozenset(params.stop_ids)
        self.max_new = params.max_new_tokens
        self.truncates = params.truncates

    @property
    def num_sampled(self) -> int:
        """T so far."""
        return len(self.ids) - self.num_prompt

    @property
    def wants_prefill(self) -> bool:
        """Whether more than the last id is not computed."""
        return self.computed < len(self.ids) - 1


@dataclass(frozen=True)
class PrefillChunk:
    """Tokens ``start`` to ``stop`` of a sequence, to be prefilled."""

    sequence: Sequence
    start: int
    stop: int


class Tail(NamedTuple):
    """The partly full page at the end of what a running sequence had to prefill."""

    owner: Sequence
    page: int


class Scheduler:
    """Waiting and running sequences, and their pages.

    Args:
        store: the pages.
        max_batch: most sequences that run together.
        chunk_tokens: most tokens of a prefill batch, padding included; whole pages.
        policy_version: part of what pages are known by.
        share: whether sequences share pages at all.
    """

    def __init__(
        self,
        store: PageStore,
        max_batch: int,
        chunk_tokens: int,
        policy_version: str,
        share: bool = True,
    ) -> None:
        self.store = store
        self.max_batch = max_batch
        self.chunk_tokens = chunk_tokens
        self.policy_version = policy_version
        self.share = share
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0
        self._tails: dict[Key, Tail] = {}
        self._tight = False

    @property
    def begun(self) -> bool:
        """Whether a reply is under way, be it that its sequence runs or was preempted."""
        return bool(self.running) or any(sequence.num_sampled for sequence in self.waiting)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn."""
        self.waiting.append(sequence)
        self._tight = False

    def admit(self, only_begun: bool = False) -> None:
        """Start waiting sequences, oldest first, while there are places and pages.

        Args:
            only_begun: start none that has no token yet.
        """
        while self.waiting and len(self.running) < self.max_batch and not self._tight:
            sequence = self.waiting[0]
            if only_begun and not sequence.num_sampled:
                return
            version, with_topk = self.policy_version, sequence.request.params.capture_topk
            sequence.keys = [first_key(version, with_topk)]
            self._reuse(sequence)
            # A page of room for each, so that what starts is not stopped at once.
            lacking = self._pages_for(len(sequence.ids)) - len(sequence.pages) + len(self.running)
            if self.running and lacking > self.store.free_pages:
                self._tight = lacking > self.store.available_pages
            if self._tight:
                self._give_up_pages(sequence)
                return
            self.waiting.popleft()
            self.running.append(sequence)

    def plan_prefill(self) -> list[PrefillChunk]:
        """The chunks to compute now, pages reserved; empty when nothing is left to prefill."""
        chunks: list[PrefillChunk] = []
        under_way: set[Key] = set()
        widest = longest = 0
        for sequence in list(self.running):
            self._reuse(sequence)
            if (
                not sequence.wants_prefill
                or self._keys_to(sequence, sequence.computed + 1) & under_way
            ):
                continue
            stop = min(len(sequence.ids) - 1, sequence.computed + self.chunk_tokens)
            width, length = max(widest, stop - sequence.computed), max(longest, stop)
            count = len(chunks) + 1
            if chunks and (count * width > self.chunk_tokens or count * length > SLOT_AREA):
                continue
            if self.reserve(sequence, stop):
                widest, longest = width, length
                chunks.append(PrefillChunk(sequence, sequence.computed, stop))
                under_way |= self._keys_to(sequence, stop)
        return [chunk for chunk in chunks if chunk.sequence in self.running]

    def ready(self) -> list[Sequence]:
        """The sequences to decode now, pages reserved."""
        for sequence in list(self.running):
            self._reuse(sequence)
            if not sequence.wants_prefill:
                self.reserve(sequence, len(sequence.ids))
        return [sequence for sequence in self.running if not sequence.wants_prefill]

    def reserve(self, sequence: Sequence, tokens: int) -> bool:
        """Give a running sequence pages for so many tokens; False if it had to give up its own."""
        while sequence in self.running:
            lacking = self._pages_for(tokens) - len(sequence.pages)
            if lacking <= 0:
                return True
            taken = self.store.take(lacking)
            if taken is not None:
                sequence.pages += taken
                return True
            # The youngest gives way, though it may be ``sequence`` itself: so the oldest never loses its
            # pages, some sequence always comes to its end, and two that need the last pages can't take them
            # from each other forever.
            self._preempt(max(self.running, key=lambda other: other.order))
        return False

    def advance(self, sequence: Sequence, computed: int) -> None:
        """Note that a sequence's first ``computed`` tokens are in its pages; make them known."""
        was_prefilling = sequence.wants_prefill
        sequence.computed = computed
        if not self.share:
            return
        while len(sequence.keys) * self._size <= computed:
            start = (len(sequence.keys) - 1) * self._size
            key = next_key(sequence.keys[-1], sequence.ids[start : start + self._size])
            self.store.add(key, sequence.pages[len(sequence.keys) - 1])
            sequence.keys.append(key)
        if was_prefilling and not sequence.wants_prefill and computed % self._size:
            start = (len(sequence.keys) - 1) * self._size
            tail = next_key(sequence.keys[-1], sequence.ids[start:computed])
            self._tails.setdefault(tail, Tail(sequence, sequence.pages[-1]))

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence wherever it is; its pages are free, or known, at once."""
        for place in (self.running, self.waiting):
            if sequence in place:
                place.remove(sequence)
        self._give_up_pages(sequence)
        self._tight = False

    def _reuse(self, sequence: Sequence) -> None:
        """Take over what others have computed of the tokens that a sequence needs next."""
        while self.share and sequence.wants_prefill:
            start, end = sequence.computed, len(sequence.ids) - 1
            stop = min(end, start + self._size)
            key = next_key(sequence.keys[-1], sequence.ids[start:stop])
            found = self._found(key, stop - start)
            if found is None:
                return
            sequence.pages.append(found)
            sequence.computed = stop
            if stop - start == self._size:
                sequence.keys.append(key)
            if sequence.fresh:
                sequence.reused += stop - start

    def _found(self, key: Key, tokens: int) -> int | None:
        """A page of this content: shared when full, a copy when it is the end of a prompt."""
        if tokens == self._size:
            return self.store.find(key)
        tail = self._tails.get(key)
        taken = None if tail is None else self.store.take(1)
        if tail is None or taken is None:
            return None
        self.store.copy(tail.page, taken[0], tokens)
        return taken[0]

    def _keys_to(self, sequence: Sequence, stop: int) -> set[Key]:
        """Keys of the pages, the last perhaps in part, that hold tokens ``computed`` to ``stop``."""
        keys: set[Key] = set()
        if not self.share:
            return keys
        key, end = sequence.keys[-1], len(sequence.ids) - 1
        for start in range(sequence.computed, stop, self._size):
            key = next_key(key, sequence.ids[start : min(end, start + self._size)])
            keys.add(key)
        return keys

    def records(self, sequence: Sequence, start: int = 0) -> Records:
        """Return the records of a sequence's computed tokens from ``start`` on, as first made.

        Computing a token again after a preemption may choose other experts or keys by rounding. The first
        choices are kept: they are the ones behind the ids and log-probabilities that were sampled.
        """
        rows = pool_rows(sequence.pages, self._size, sequence.computed)
        routing, topk, first = self.store.routing(rows[start:]), None, sequence.first_records
        if sequence.request.params.capture_topk:
            topk = self.store.topk(rows, start)
        if first is not None:
            known = max(0, len(first.routing) - start)
            routing[:known] = first.routing[start:]
            if topk is not None and first.topk is not None:
                topk[:known, :, : first.topk.shape[2]] = first.topk[start:]
        return Records(routing, topk)

    def _preempt(self, sequence: Sequence) -> None:
        self.preemptions += 1
        self.running.remove(sequence)
        known = 0 if sequence.first_records is None else len(sequence.first_records.routing)
        if sequence.num_sampled and sequence.computed > known:
            sequence.first_records = self.records(sequence)
        self._give_up_pages(sequence)
        sequence.fresh = False
        self.waiting.appendleft(sequence)

    def _give_up_pages(self, sequence: Sequence) -> None:
        for key in [key for key, tail in self._tails.items() if tail.owner is sequence]:
            del self._tails[key]
        self.store.release(sequence.pages)
        sequence.pages, sequence.computed = [], 0

    def _pages_for(self, tokens: int) -> int:
        return self.store.cache.pages_for(tokens)

    @property
    def _size(self) -> int:
        return self.store.cache.page_tokens

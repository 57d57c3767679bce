"""Pages with a memory: found again by content, kept while there is room, forgotten least recently used first.

A full page is known by a *key*: a hash chain over all tokens up to its end, the policy version, and whether
key sets were captured. So a page is found only behind the same beginning. The store is one user of every
page it knows; sequences that share it are others. What training replays is kept beside the page: routing
in a pool with the cache's own row numbers, key sets (large, rarely wanted) page by page.

Shapes: N tokens, M pool rows, X mixture layers, A experts per token, L layers, K kept keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from envgen.model.config import DSAConfig
from envgen.model.indexer import HIDDEN
from envgen.model.paged import PagedCache

Key = bytes


def first_key(policy_version: str, with_topk: bool) -> Key:
    """Where the chains of one policy version start."""
    return _digest(repr((policy_version, with_topk)).encode())


def next_key(key: Key, ids: Sequence[int]) -> Key:
    """The key of a page that holds ``ids`` behind the page of ``key``."""
    return _digest(key + np.asarray(ids, np.int32).tobytes())


def _digest(content: bytes) -> Key:
    return hashlib.blake2b(content, digest_size=16).digest()


class PageStore:
    """Pages of a cache, found by content, with what training replays of their tokens.

    Args:
        config: of the model.
        num_pages: how many pages there are.
        page_tokens: tokens in a page.
        dtype: of what is cached.
        device: where it is.
    """

    def __init__(
        self,
        config: DSAConfig,
        num_pages: int,
        page_tokens: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.cache = PagedCache(config, num_pages, page_tokens, dtype, device)
        self.num_pages = num_pages
        self.index_topk = config.index_topk
        self._num_layers = config.num_hidden_layers
        rows = (num_pages + 1) * page_tokens
        shape = (rows, len(config.moe_layers), config.num_experts_per_tok)
        self._routing_MXA = np.zeros(shape, np.uint16)
        self._topk: dict[int, NDArray[np.int32]] = {}
        self._known: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}
        # Of the known ones those that no sequence uses, least recently used first.
        self._idle: dict[Key, None] = {}

    @property
    def free_pages(self) -> int:
        """Pages that hold nothing."""
        return self.cache.free_pages

    @property
    def known_pages(self) -> int:
        """Pages that can be found by content."""
        return len(self._known)

    @property
    def available_pages(self) -> int:
        """Pages that can be had: free ones, and known ones that no sequence uses."""
        return self.free_pages + len(self._idle)

    def take(self, count: int) -> list[int] | None:
        """``count`` pages, forgetting idle ones if need be; None if there are not as many."""
        if count > self.available_pages:
            return None
        while count > self.free_pages:
            self._forget(next(iter(self._idle)))
        return self.cache.take(count)

    def _forget(self, key: Key) -> None:
        page = self._known.pop(key)
        del self._key_of[page]
        self._idle.pop(key, None)
        self._drop(page)

    def _drop(self, page: int) -> None:
        for freed in self.cache.release([page]):
            self._topk.pop(freed, None)

    def find(self, key: Key) -> int | None:
        """The page of this content, if it is known; the caller becomes one of its users."""
        page = self._known.get(key)
        if page is not None:
            self.cache.share([page])
            self._idle.pop(key, None)
        return page

    def add(self, key: Key, page: int) -> None:
        """Make a full page known; the first page of a content stays the one that is found."""
        if key not in self._known:
            self.cache.share([page])
            self._known[key] = page
            self._key_of[page] = key

    def release(self, pages: Sequence[int]) -> None:
        """One user fewer for each page of a sequence; later pages will be forgotten before earlier ones."""
        # A page is found by way of the pages before it. The last page becomes idle first and is so forgotten
        # first: without an early page the later ones would fill memory and could not be reached.
        for page in reversed(pages):
            self._drop(page)
            key = self._key_of.get(page)
            if key is not None and self.cache.users(page) == 1:
                self._idle[key] = None

    def forget_all(self) -> None:
        """Know no page any more; those in use stay with their users."""
        for key in list(self._known):
            self._forget(key)

    def wipe(self) -> None:
        """Know no page any more, and leave no NaN in the memory that a later sum could meet."""
        self.forget_all()
        for pool in (*self.cache.rows, *self.cache.index):
            pool.zero_()

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first ``tokens`` tokens of a page into another, with all that is kept of them."""
        size = self.cache.page_tokens
        sources = list(range(source * size, source * size + tokens))
        targets = list(range(target * size, target * size + tokens))
        self.cache.copy(sources, targets)
        self._routing_MXA[targets] = self._routing_MXA[sources]
        if source in self._topk:
            self._topk[target] = self._topk[source].copy()

    def put_routing(self, rows_N: NDArray[np.int64], experts_NXA: NDArray[np.int64]) -> None:
        """Keep the experts of tokens in these pool rows."""
        self._routing_MXA[rows_N] = experts_NXA

    def routing(self, rows_N: NDArray[np.int64]) -> NDArray[np.uint16]:
        """Experts of tokens: a copy, [N, X, A]."""
        found: NDArray[np.uint16] = self._routing_MXA[rows_N]
        return found

    def put_topk(self, row: int, kept_LK: NDArray[np.int32]) -> None:
        """Keep the key sets of the token in one pool row."""
        page, place = divmod(row, self.cache.page_tokens)
        if page not in self._topk:
            shape = (self.cache.page_tokens, self._num_layers, self.index_topk)
            self._topk[page] = np.full(shape, HIDDEN, np.int32)
        self._topk[page][place, :, : kept_LK.shape[1]] = kept_LK

    def topk(self, rows_N: NDArray[np.int64], start: int = 0) -> NDArray[np.int32]:
        """Key sets of a sequence's tokens, given its pool rows in order, from one on: [N - start, L, K].

        K is min(index_topk, N). A token at a slot below index_topk sees everything before it; that is not
        stored.
        """
        size, width = self.cache.page_tokens, min(self.index_topk, len(rows_N))
        slots = np.arange(width, dtype=np.int32)
        early = np.where(slots <= np.arange(start, max(start, width))[:, None], slots, HIDDEN)
        first = max(start, width)
        found = np.empty((len(rows_N) - start, self._num_layers, width), np.int32)
        found[: len(early)] = early[:, None]
        if first < len(rows_N):  # a sequence's rows fill its pages in order
            pages = [self._topk[int(row) // size] for row in rows_N[first // size * size :: size]]
            stored = np.concatenate(pages)[first % size :]
            found[len(early) :] = stored[: len(rows_N) - first]
        return found


def pool_rows(pages: Iterable[int], page_tokens: int, tokens: int) -> NDArray[np.int64]:
    """The pool rows of a sequence's first tokens: int64 [tokens]."""
    starts = np.fromiter(pages, np.int64) * page_tokens
    return (starts[:, None] + np.arange(page_tokens)).reshape(-1)[:tokens]

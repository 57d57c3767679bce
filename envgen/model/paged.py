"""The key-value cache: per layer, rows of latent and rotary key, and index keys, in pages.

A page holds ``page_tokens`` tokens of one sequence, in all layers. Pages are counted: sequences with a
common beginning share its full pages. Page 0 belongs to nobody: padding is written there.

Shapes: B sequences, T new tokens, S slots, W row width, F index_head_dim, M = pages * page_tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from envgen.core.errors import PolicyError
from envgen.model.config import DSAConfig


class CacheFullError(PolicyError):
    """Raised when no page is free."""


class PagedCache:
    """Pages of all layers, and who uses them.

    Args:
        config: of the model.
        num_pages: how many can be handed out.
        page_tokens: tokens in a page.
        dtype: of what is kept.
        device: where it is kept.
    """

    def __init__(
        self,
        config: DSAConfig,
        num_pages: int,
        page_tokens: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.page_tokens = page_tokens
        size = (num_pages + 1) * page_tokens
        layers = range(config.num_hidden_layers)
        self.rows = [
            torch.zeros(size, config.latent_width, dtype=dtype, device=device) for _ in layers
        ]
        self.index = [
            torch.zeros(size, config.index_head_dim, dtype=dtype, device=device) for _ in layers
        ]
        self._users = [0] * (num_pages + 1)
        self._free = list(range(num_pages, 0, -1))

    @property
    def free_pages(self) -> int:
        """Pages that can be taken now."""
        return len(self._free)

    def pages_for(self, tokens: int) -> int:
        """Pages that ``tokens`` tokens fill."""
        return -(-tokens // self.page_tokens)

    def take(self, count: int) -> list[int]:
        """``count`` free pages, each with one user.

        Raises:
            CacheFullError: if there are not as many; then none is taken.
        """
        if count > len(self._free):
            raise CacheFullError(
                f"the cache has {len(self._free)} free pages, {count} are needed",
                "give the engine a larger cache, or fewer sequences at a time",
            )
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._users[page] = 1
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """One more user for each of ``pages``."""
        for page in pages:
            assert self._users[page] > 0
            self._users[page] += 1

    def users(self, page: int) -> int:
        """How many use a page."""
        return self._users[page]

    def release(self, pages: Sequence[int]) -> list[int]:
        """One user fewer for each of ``pages``; gives those without any, which are free again."""
        freed = []
        for page in pages:
            assert self._users[page] > 0
            self._users[page] -= 1
            if self._users[page] == 0:
                freed.append(page)
        self._free += freed
        return freed

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy pool rows, in all layers."""
        for pool in (*self.rows, *self.index):
            pool[targets] = pool[sources]

    def places(self, pages: Sequence[int]) -> list[int]:
        """The pool row of every slot of a sequence that holds ``pages``."""
        size = self.page_tokens
        return [page * size + i for page in pages for i in range(size)]


class CacheView:
    """The part of a cache that one forward pass sees.

    Args:
        cache: the pages.
        place_BS: pool row of each sequence's slots 0 .. S - 1; rows of page 0 past its end.
        write_BT: pool row that each new token is written to.
    """

    def __init__(self, cache: PagedCache, place_BS: Tensor, write_BT: Tensor) -> None:
        self.place_BS = place_BS
        self._cache = cache
        self._write_N = write_BT.flatten()

    def write(self, layer: int, rows_BTW: Tensor, index_BTF: Tensor) -> None:
        """Keep the new tokens of a layer."""
        rows_MW, index_MF = self._cache.rows[layer], self._cache.index[layer]
        rows_MW[self._write_N] = rows_BTW.detach().flatten(0, 1).to(rows_MW.dtype)
        index_MF[self._write_N] = index_BTF.flatten(0, 1).to(index_MF.dtype)

    def pool(self, layer: int) -> Tensor:
        """All rows of a layer: [M, W]."""
        return self._cache.rows[layer]

    def rows(self, layer: int) -> Tensor:
        """The sequences' rows in order: [B, S, W]."""
        return self._in_order(self._cache.rows[layer])

    def index_keys(self, layer: int) -> Tensor:
        """The sequences' index keys in order: [B, S, F]."""
        return self._in_order(self._cache.index[layer])

    def _in_order(self, pool_Mx: Tensor) -> Tensor:
        # Several times as fast as pool_Mx[place_BS].
        found = pool_Mx.index_select(0, self.place_BS.flatten())
        return found.view(*self.place_BS.shape, pool_Mx.shape[1])


class BatchCache:
    """A cache for a batch of sequences that grow together: prefill, then token by token."""

    def __init__(
        self,
        config: DSAConfig,
        batch: int,
        max_tokens: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.length = 0
        self.batch = batch
        self.max_tokens = max_tokens
        self._cache = PagedCache(config, batch, max_tokens, dtype, device)
        pages = torch.tensor(self._cache.take(batch), device=device).unsqueeze(1)
        self._place_BS = pages * max_tokens + torch.arange(max_tokens, device=device)

    def grow(self, tokens: int) -> CacheView:
        """The view for the next ``tokens`` tokens of every sequence.

        Raises:
            CacheFullError: if they don't fit.
        """
        start, stop = self.length, self.length + tokens
        if stop > self.max_tokens:
            raise CacheFullError(
                f"the cache holds {self.max_tokens} tokens, {stop} are needed", "make it larger"
            )
        self.length = stop
        return CacheView(self._cache, self._place_BS[:, :stop], self._place_BS[:, start:stop])

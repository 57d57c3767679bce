"""The keys that the queries of a forward pass can see, and sets of chosen ones.

Shapes: B batch, T query tokens, t some of them, S key slots, K kept keys, W row width, M pool rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from envgen.model.indexer import HIDDEN, NOT_REPLAYED, visible
from envgen.model.paged import CacheView


class Span(NamedTuple):
    """Which keys the queries of one forward pass can see."""

    slots_BT: Tensor
    """Place of each query in its sequence, int64."""
    num_slots: int
    """S: length of the longest sequence, the new tokens included."""
    key_valid_BS: Tensor | None = None
    """False where a slot is padding."""
    cache: CacheView | None = None
    """Holds the keys; None: the queries' own tokens are all there is."""
    until_BS: Tensor | None = None
    """Where what continues each slot ends, if sequences share beginnings; see ``indexer.visible``."""

    @property
    def whole(self) -> bool:
        """Whether the queries are all tokens of unpadded sequences, in order."""
        return self.cache is None and self.key_valid_BS is None and self.until_BS is None

    def visible(self) -> Tensor:
        """Which keys each query may see: bool [B, T, S]."""
        return visible(self.slots_BT, self.num_slots, self.key_valid_BS, self.until_BS)


def is_complete(given_BTK: Tensor | None) -> bool:
    """Whether replay leaves nothing to choose."""
    return given_BTK is not None and not bool((given_BTK[..., 0] == NOT_REPLAYED).any())


def replayed(given_BTK: Tensor, own_BTK: Tensor | None, span: Span) -> Tensor:
    """Replayed rows, less what can't be seen, and the indexer's where there are none: int32 [B, T, K]."""
    slots_BT1 = span.slots_BT.unsqueeze(-1)
    seen_BTK = (given_BTK >= 0) & (given_BTK <= slots_BT1)
    places = given_BTK.clamp(0, span.num_slots - 1).long().flatten(1)
    if span.key_valid_BS is not None:
        valid_BTK = span.key_valid_BS.gather(1, places).view(given_BTK.shape)
        seen_BTK &= valid_BTK | (given_BTK == slots_BT1)
    if span.until_BS is not None:
        seen_BTK &= slots_BT1 < span.until_BS.gather(1, places).view(given_BTK.shape)
    kept_BTK = torch.where(seen_BTK, given_BTK, HIDDEN).to(torch.int32)
    alone_BT = ~seen_BTK.any(-1)
    kept_BTK[..., 0] = torch.where(alone_BT, span.slots_BT, kept_BTK[..., 0]).to(torch.int32)
    if own_BTK is None:
        return kept_BTK
    width = max(kept_BTK.shape[-1], own_BTK.shape[-1])
    own, kept = (
        functional.pad(x, (0, width - x.shape[-1]), value=HIDDEN) for x in (own_BTK, kept_BTK)
    )
    return torch.where(given_BTK[..., :1] == NOT_REPLAYED, own, kept)


def seen(span: Span, kept_BTK: Tensor | None) -> Tensor:
    """Visible and, where keys were chosen, chosen: bool [B, T, S]."""
    seen_BTS = span.visible()
    if kept_BTK is None:
        return seen_BTS
    places = torch.where(kept_BTK < 0, span.num_slots, kept_BTK).long()
    chosen = seen_BTS.new_zeros((*places.shape[:2], span.num_slots + 1))
    return chosen.scatter_(-1, places, True)[..., : span.num_slots] & seen_BTS


def all_visible(span: Span) -> Tensor:
    """Every slot that each query sees, as a set: int32 [B, T, S]."""
    slots = torch.arange(span.num_slots, dtype=torch.int32, device=span.slots_BT.device)
    return torch.where(span.visible(), slots, HIDDEN)


def pooled(rows_BTW: Tensor, span: Span, kept_BtK: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """The pool of rows [M, W], and the chosen slots as rows of it: int32 [B, t, K]."""
    if span.cache is not None:
        pool_MW, place_BS = span.cache.pool(layer), span.cache.place_BS
        flat = kept_BtK.clamp_min(0).long().flatten(1)
        found = place_BS.gather(1, flat).view(kept_BtK.shape).to(torch.int32)
        return pool_MW, torch.where(kept_BtK < 0, HIDDEN, found)
    batch, tokens = rows_BTW.shape[:2]
    starts = torch.arange(batch, dtype=torch.int32, device=kept_BtK.device) * tokens
    moved = kept_BtK + starts.view(-1, 1, 1)
    return rows_BTW.flatten(0, 1), torch.where(kept_BtK < 0, HIDDEN, moved)


def shares(span: Span) -> Tensor:
    """1 / (number of valid queries) for each of them, 0 for padding: float32 [B, T]."""
    valid = span.key_valid_BS
    if valid is None:
        valid = torch.ones_like(span.slots_BT, dtype=torch.bool)
    return valid.float() / valid.sum().clamp_min(1)

"""Rows that begin alike, run once: prefix first, then what each row adds (tree attention).

    row 0:  a b c d e          pack:      a b c | d e | f g h
    row 1:  a b c f g h        positions: 0 1 2   3 4   3 4 5
                               branches:  0 0 0   1 1   2 2 2

The rollouts of a group share their prompt, and tasks of one environment most of it, so a pack of sixteen
takes a third of the tokens. A branch sees the prefix and itself, at the positions it would have alone
(``envgen.model.indexer.visible``): what the model says of a token does not change.

Shapes: R rows, B packs, T tokens of the longest, L tokens of a row, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_SHARED = 8
"""Tokens that must be shared for a pack to be worth its mask."""
PADDING = -1
"""Branch of the places behind a pack's end."""

Ids = NDArray[np.int32]
Shared = Callable[[int, int], int]


@dataclass(frozen=True, eq=False)
class Packs:
    """R rows in B packs, padded at the end."""

    ids_BT: NDArray[np.int64]
    positions_BT: NDArray[np.int64]
    branches_BT: NDArray[np.int64]
    """0: prefix; 1, 2, ...: the rows' own tokens; ``PADDING``."""
    pack_R: NDArray[np.int64]
    """In which pack each row is."""
    places: tuple[NDArray[np.int64], ...]
    """Where each row's tokens are in its pack: R of [L]."""

    @property
    def valid_BT(self) -> NDArray[np.bool_]:
        """False for padding."""
        valid_BT: NDArray[np.bool_] = self.branches_BT != PADDING
        return valid_BT

    @property
    def shares(self) -> bool:
        """Whether any two rows share a prefix."""
        return len(self.ids_BT) < len(self.pack_R)

    @property
    def num_tokens(self) -> int:
        """Tokens that are run, padding not counted."""
        return int(self.valid_BT.sum())

    def parents_BT(self) -> NDArray[np.int64]:
        """Place of the token before each, along its row; -1 for first tokens and padding."""
        parents = np.full(self.ids_BT.shape, -1, np.int64)
        for pack, places in zip(self.pack_R, self.places, strict=True):
            parents[pack, places[1:]] = places[:-1]
        return parents

    def spread(self, rows: Sequence[NDArray[Any]], fill: int) -> NDArray[Any]:
        """What is known of the rows' first tokens, at the places of those: [B, T, ...].

        Args:
            rows: of each row, [at most L, ...]; on shared tokens rows must agree.
            fill: what stands where nothing is known.
        """
        out = np.full((*self.ids_BT.shape, *rows[0].shape[1:]), fill, rows[0].dtype)
        for pack, places, known in zip(self.pack_R, self.places, rows, strict=True):
            out[pack, places[: len(known)]] = known
        return out


def pack(rows: Sequence[Ids], max_tokens: int, shared: Shared | None = None) -> Packs:
    """Put rows that begin alike into packs.

    Args:
        rows: ids of each.
        max_tokens: of a pack; a row that is longer has one of its own.
        shared: how many first tokens two rows have in common in all that counts, given their numbers;
            None: their ids count.
    """
    common = shared or (lambda a, b: common_prefix(rows[a], rows[b]))
    packs: list[_Pack] = []
    for r in sorted(range(len(rows)), key=lambda r: rows[r].tolist()):
        if not packs or not packs[-1].take(r, len(rows[r]), common, max_tokens):
            packs.append(_Pack(r, len(rows[r])))
    return _laid_out(packs, rows)


def common_prefix(a: NDArray[Any], b: NDArray[Any]) -> int:
    """How many first entries (along the first axis) are equal."""
    size = min(len(a), len(b))
    if not size:
        return 0
    unequal = (a[:size] != b[:size]).reshape(size, -1).any(1)
    return int(unequal.argmax()) if unequal.any() else size


class _Pack:
    """Rows that are put together, and how many first tokens they share."""

    def __init__(self, row: int, length: int) -> None:
        self.rows = [row]
        self.shared = length
        self.total = length  # tokens of all rows, each counted whole

    def size(self, shared: int, extra: int = 0, more: int = 0) -> int:
        return self.total + extra - (len(self.rows) + more - 1) * shared

    def take(self, row: int, length: int, common: Shared, max_tokens: int) -> bool:
        """Add a row, if that makes fewer tokens in all and the pack is not too long then."""
        # Every row keeps a token of its own.
        shared = min(self.shared, common(self.rows[0], row), length - 1)
        if len(self.rows) == 1:
            shared = min(shared, self.shared - 1)
        after = self.size(shared, length, 1)
        if shared < MIN_SHARED or after > max_tokens or after >= self.size(self.shared) + length:
            return False
        self.rows.append(row)
        self.shared, self.total = shared, self.total + length
        return True


def _laid_out(packs: Sequence[_Pack], rows: Sequence[Ids]) -> Packs:
    shape = (len(packs), max(p.size(p.shared) for p in packs))
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    branches = np.full(shape, PADDING, np.int64)
    pack_R = np.zeros(len(rows), np.int64)
    places: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(rows)
    for b, one in enumerate(packs):
        cut = one.shared
        prefix = np.arange(cut)
        branches[b, :cut] = 0
        end = cut
        for branch, r in enumerate(one.rows, 1):
            own = np.arange(end, end + len(rows[r]) - cut)
            end += len(own)
            places[r] = np.concatenate((prefix, own))
            pack_R[r] = b
            ids[b, places[r]] = rows[r]
            positions[b, places[r]] = np.arange(len(rows[r]))
            branches[b, own] = branch
    return Packs(ids, positions, branches, pack_R, tuple(places))

"""Pack rows that share a prefix, so that the prefix is run once (tree attention).

    row 0:  a b c d e          pack:       a b c d e f g h
    row 1:  a b c d f          positions:  0 1 2 3 4 4 3 4
    row 2:  a b c g h          until:      8 8 8 6 5 6 8 8

The rollouts of a group share their prompt, and often the first results; tasks of one environment share most
of the prompt. A token sees its own row only, at the positions that it would have alone: all that precedes it
in the pack, except tokens whose ``until`` has passed (``envgen.model.indexer.visible``). So packing changes
no log-probability, rounding aside.

Shapes: R rows, B packs, T tokens of the longest, L tokens of a row, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_SHARED = 8
"""Shortest shared prefix that is worth a pack's attention mask."""
WORTH = 4096
"""Attended slots that cost as much as all other work for a token, measured with sparse attention."""

Ids = NDArray[np.int32]
Shared = Callable[[int, int], int]


@dataclass(frozen=True, eq=False)
class Packs:
    """R rows in B packs, padded at the end."""

    ids_BT: NDArray[np.int64]
    positions_BT: NDArray[np.int64]
    until_BT: NDArray[np.int64]
    """End (exclusive) of the tokens that see each one; padding is seen by itself alone."""
    used_B: NDArray[np.int64]
    """Tokens in each pack, padding not counted."""
    pack_R: NDArray[np.int64]
    """The pack of each row."""
    places: tuple[NDArray[np.int64], ...]
    """Places of each row's tokens in its pack: R arrays of [L], ascending."""

    @property
    def valid_BT(self) -> NDArray[np.bool_]:
        """False for padding."""
        valid_BT: NDArray[np.bool_] = np.arange(self.ids_BT.shape[1]) < self.used_B[:, None]
        return valid_BT

    @property
    def shares(self) -> bool:
        """Whether any two rows are in one pack."""
        return len(self.ids_BT) < len(self.pack_R)

    @property
    def num_tokens(self) -> int:
        """Tokens that are run: shared prefixes count once, padding does not."""
        return int(self.used_B.sum())

    def parents_BT(self) -> NDArray[np.int64]:
        """Return the place of each token's predecessor in its row; -1 for first tokens and padding."""
        parents = np.full(self.ids_BT.shape, -1, np.int64)
        for pack, places in zip(self.pack_R, self.places, strict=True):
            parents[pack, places[1:]] = places[:-1]
        return parents

    def spread(self, rows: Sequence[NDArray[Any]], fill: int) -> NDArray[Any]:
        """Scatter per-token values of the rows to their places in the packs: [B, T, ...].

        Args:
            rows: values of each row's first tokens, [at most L, ...]; rows must agree on shared tokens.
            fill: value of the other places.
        """
        out = np.full((*self.ids_BT.shape, *rows[0].shape[1:]), fill, rows[0].dtype)
        for pack, places, known in zip(self.pack_R, self.places, rows, strict=True):
            out[pack, places[: len(known)]] = known
        return out


Packing = Callable[[Sequence[Ids], int, Shared | None], Packs]
"""The signature of ``pack``: (rows, most tokens of a pack, shared prefix of two rows) -> packs."""


def pack(rows: Sequence[Ids], max_tokens: int, shared: Shared | None = None) -> Packs:
    """Group rows that share a prefix into packs.

    Args:
        rows: ids of each.
        max_tokens: limit of a pack; a pack of rows longer than this may hold more, as far as it pays. 0: no
            row shares a pack.
        shared: returns the length of the prefix that rows a and b may share, given their indices; None: the
            common prefix of their ids.
    """
    common = shared or (lambda a, b: common_prefix(rows[a], rows[b]))
    packs: list[_Pack] = []
    # In lexicographic order a row shares its longest prefix with the row before it.
    for r in sorted(range(len(rows)), key=lambda r: rows[r].tolist()):
        if not packs or not packs[-1].take(r, len(rows[r]), common, max_tokens):
            packs.append(_Pack(r, len(rows[r])))
    return _laid_out(packs, rows)


def common_prefix(a: NDArray[Any], b: NDArray[Any]) -> int:
    """Return how many first entries (along the first axis) are equal."""
    size = min(len(a), len(b))
    if not size:
        return 0
    unequal = (a[:size] != b[:size]).reshape(size, -1).any(1)
    return int(unequal.argmax()) if unequal.any() else size


class _Pack:
    """A pack under construction: its rows, in lexicographic order, and the places of their tokens."""

    def __init__(self, row: int, length: int) -> None:
        self.rows = [row]
        self.places = [np.arange(length)]
        self.until = np.full(length, length)
        """See ``Packs.until_BT``."""

    def take(self, row: int, length: int, common: Shared, max_tokens: int) -> bool:
        """Add a row behind the prefix that it shares with the last one; return False if it does not fit."""
        last, end = self.places[-1], len(self.until)
        shared = min(common(self.rows[-1], row), length)
        room = max_tokens
        if length > max_tokens > 0:
            # Cost of each of m rows with s shared tokens and n of their own, in attended slots:
            # (s/m + n) WORTH + (s + m n)^2 / 2m. It is least at a pack size of
            # s + m n = s + sqrt(s (s + 2 WORTH)), so packs of long rows may grow to that.
            room = max(room, shared + int((shared * (shared + 2 * WORTH)) ** 0.5))
        if shared < MIN_SHARED or end + length - shared > room:
            return False
        places = np.concatenate((last[:shared], np.arange(end, end + length - shared)))
        self.until = np.append(self.until, np.zeros(length - shared, np.int64))
        self.until[places] = len(self.until)
        self.rows.append(row)
        self.places.append(places)
        return True


def _laid_out(packs: Sequence[_Pack], rows: Sequence[Ids]) -> Packs:
    shape = (len(packs), max(len(one.until) for one in packs))
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    until = np.tile(np.arange(1, shape[1] + 1), (shape[0], 1))
    pack_R = np.zeros(len(rows), np.int64)
    places: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(rows)
    for b, one in enumerate(packs):
        until[b, : len(one.until)] = one.until
        for r, where in zip(one.rows, one.places, strict=True):
            places[r], pack_R[r] = where, b
            ids[b, where] = rows[r]
            positions[b, where] = np.arange(len(where))
    used_B = np.array([len(one.until) for one in packs])
    return Packs(ids, positions, until, used_B, pack_R, tuple(places))

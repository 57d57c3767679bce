"""The key sets of sparse attention, small enough to be stored: what changes from token to token.

A token attends to most of the keys that the token before it did. So of each set only the slots are kept
that came or went, as gaps in base 128 (LEB128). Until index_topk tokens have been seen nothing is left out,
and the only change is the token itself.

Shapes: N tokens, L layers, K kept keys, C changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 8 << 30
"""Of the sets of one reply, unpacked: a few bytes can ask for any number."""
HIDDEN = -1
"""Stands in a set for "no key here"; as in ``envgen.model.indexer``."""


def encode(sets_NLK: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Sets as bytes; the order within a set is lost.

    Args:
        sets_NLK: slots that each token attends to, ``HIDDEN`` (or any negative) where there are fewer; none
            twice in a set.
    """
    tokens, layers, width = sets_NLK.shape
    head = _varints(np.array([tokens, layers, width]))
    return np.concatenate([head, *(_encode_layer(sets_NLK[:, layer]) for layer in range(layers))])


def decode(content: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The sets [N, L, K], each ascending, ``HIDDEN`` behind them.

    Raises:
        ValueError: if the bytes are not what ``encode`` writes.
    """
    values = _numbers(content)
    if len(values) < 3:
        raise ValueError("key sets are cut short")
    tokens, layers, width = values[:3].tolist()
    if tokens + layers > len(values) or tokens * layers * width * 4 > MAX_BYTES:
        raise ValueError("key sets are cut short, or larger than any are read")
    sets_NLK = np.full((tokens, layers, width), HIDDEN, np.int32)
    place = 3
    for layer in range(layers):
        counts_N = values[place : place + tokens]
        place += tokens
        gaps_C = values[place : place + counts_N.sum()]
        place += len(gaps_C)
        if len(counts_N) < tokens or len(gaps_C) < counts_N.sum():
            raise ValueError("key sets are cut short")
        _decode_layer(counts_N, gaps_C, sets_NLK[:, layer])
    return sets_NLK


def _encode_layer(sets_NK: NDArray[np.int32]) -> NDArray[np.uint8]:
    tokens = len(sets_NK)
    row, column = np.nonzero(sets_NK >= 0)
    slot = sets_NK[row, column].astype(np.int64)
    size = int(slot.max(initial=0)) + 1
    has = row * size + slot
    had = has + size  # the set before, seen from the next token
    changes_C = np.setxor1d(has, had[had < tokens * size], assume_unique=True)
    rows_C, slots_C = np.divmod(changes_C, size)
    gaps_C = np.diff(slots_C, prepend=0)
    first_C = np.diff(rows_C, prepend=-1) > 0
    gaps_C[first_C] = slots_C[first_C]
    return _varints(np.concatenate([np.bincount(rows_C, minlength=tokens), gaps_C]))


def _decode_layer(
    counts_N: NDArray[np.int64], gaps_C: NDArray[np.int64], out_NK: NDArray[np.int32]
) -> None:
    tokens = len(counts_N)
    rows_C = np.repeat(np.arange(tokens), counts_N)
    totals = np.append(0, np.cumsum(gaps_C))
    slots_C = totals[1:] - np.repeat(totals[np.cumsum(counts_N) - counts_N], counts_N)
    # A slot comes and goes by turns: pair what stands behind each other.
    order = np.lexsort((rows_C, slots_C))
    slots, rows = slots_C[order], rows_C[order]
    starts = np.flatnonzero(np.diff(slots, prepend=-1))
    turn = np.arange(len(slots)) - np.repeat(starts, np.diff(np.append(starts, len(slots))))
    comes = turn % 2 == 0
    until = np.append(rows[1:], tokens)
    stays = np.append(slots[1:] != slots[:-1], True) if len(slots) else np.zeros(0, bool)
    until[stays] = tokens
    first, length, slot = rows[comes], (until - rows)[comes], slots[comes]
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    member_row, member_slot = np.repeat(first, length) + within, np.repeat(slot, length)
    order = np.lexsort((member_slot, member_row))
    member_row, member_slot = member_row[order], member_slot[order]
    held_N = np.bincount(member_row, minlength=tokens)
    if held_N.max(initial=0) > out_NK.shape[1]:
        raise ValueError("a key set is larger than it may be")
    column = np.arange(len(member_row)) - np.repeat(np.cumsum(held_N) - held_N, held_N)
    out_NK[member_row, column] = member_slot


def _varints(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Base 128, least digit first; all but the last digit of a number have the high bit set."""
    rest = values.astype(np.uint64)
    digits = np.ones(len(values), np.int64)
    for power in range(1, 10):
        digits += rest >= np.uint64(1 << (7 * power))
    out = np.zeros(int(digits.sum()), np.uint8)
    start = np.cumsum(digits) - digits
    for digit in range(int(digits.max(initial=0))):
        some = digits > digit
        high = np.where(digits[some] > digit + 1, 0x80, 0)
        out[start[some] + digit] = (rest[some] & np.uint64(0x7F)).astype(np.uint8) | high
        rest >>= np.uint64(7)
    return out


def _numbers(content: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The numbers that ``_varints`` wrote."""
    ends = np.flatnonzero(content < 0x80)
    if len(content) and (not len(ends) or ends[-1] != len(content) - 1):
        raise ValueError("a number is cut short")
    starts = np.append(0, ends[:-1] + 1) if len(ends) else ends
    number = np.repeat(np.arange(len(ends)), ends - starts + 1)
    digit = np.arange(len(content)) - starts[number]
    if digit.max(initial=0) > 8:
        raise ValueError("a number is too long")
    values = np.zeros(len(ends), np.int64)
    np.add.at(values, number, (content.astype(np.int64) & 0x7F) << (7 * digit))
    return values

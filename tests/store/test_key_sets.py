"""Key sets as bytes: nothing is lost, little is needed, and garbage is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from envgen.store.key_sets import HIDDEN, decode, encode


@st.composite
def sets(draw: st.DrawFn) -> NDArray[np.int32]:
    tokens, layers, width = (
        draw(st.integers(0, 9)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
    )
    high = draw(st.sampled_from([6, 300, 70_000]))
    out = np.full((tokens, layers, width), HIDDEN, np.int32)
    for t in range(tokens):
        for layer in range(layers):
            chosen = draw(st.lists(st.integers(0, high), max_size=width, unique=True))
            out[t, layer, : len(chosen)] = chosen
    return out


@given(sets())
def test_nothing_is_lost_but_order(wanted: NDArray[np.int32]) -> None:
    found = decode(encode(wanted))
    assert found.shape == wanted.shape
    for one, other in zip(
        found.reshape(-1, wanted.shape[2]), wanted.reshape(-1, wanted.shape[2]), strict=True
    ):
        kept = other[other >= 0]
        assert one.tolist() == sorted(kept.tolist()) + [HIDDEN] * (len(other) - len(kept))


def drifting(tokens: int, kept: int, moved: int) -> NDArray[np.int32]:
    """Sets of one layer of which ``moved`` keys change with each token."""
    rng = np.random.default_rng(0)
    out = np.full((tokens, 1, kept), HIDDEN, np.int32)
    held: list[int] = []
    for t in range(tokens):
        if len(held) >= kept:
            for _ in range(moved):
                held.pop(int(rng.integers(len(held))))
            spare = sorted(set(range(t)) - set(held))
            held += (
                rng.choice(spare, kept - 1 - len(held), replace=False).tolist()
                if len(held) < kept - 1
                else []
            )
        held.append(t)
        out[t, 0, : len(held)] = held
    return out


def test_few_bytes_where_little_changes() -> None:
    sets = drifting(600, 64, 4)
    assert (
        decode(encode(sets))
        == np.where(sets < 0, HIDDEN, np.sort(np.where(sets < 0, 1 << 30, sets)))
    ).all()
    assert len(encode(sets)) < sets.nbytes / 12


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_garbage_is_told(cut: int) -> None:
    content = encode(drifting(30, 4, 1))
    with pytest.raises(ValueError, match=r"cut short|too long|larger"):
        decode(content[:-cut])
    with pytest.raises(ValueError, match="cut short"):
        decode(np.append(content, np.uint8(0x80)))

"""Sparse attention against a loop over queries: values, gradients, blocks, memory."""

from __future__ import annotations

import os
import sys
from subprocess import run

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envgen.model import sparse
from envgen.model.sparse import attention_target, sparse_attention

SCALE = 0.3


def by_loop(q_NHW: Tensor, rows_MW: Tensor, kept_NK: Tensor, latent: int) -> Tensor:
    """Query by query, head by head."""
    out = []
    for q_HW, kept_K in zip(q_NHW, kept_NK.long(), strict=True):
        mine = rows_MW[kept_K[kept_K >= 0]]
        out.append(
            torch.stack([((q @ mine.T) * SCALE).softmax(0) @ mine[:, :latent] for q in q_HW])
        )
    return torch.stack(out)


def case(
    count: int, heads: int, kept: int, rows: int, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries [N, H, 5], rows [M, 5] and kept rows [N, K], of which some are hidden."""
    draws = torch.Generator().manual_seed(seed)
    q_NHW = torch.randn(count, heads, 5, generator=draws, dtype=dtype)
    rows_MW = torch.randn(rows, 5, generator=draws, dtype=dtype)
    kept_NK = torch.rand(count, rows, generator=draws).argsort(-1)[:, :kept].to(torch.int32)
    hidden_NK = torch.rand(kept_NK.shape, generator=draws) < 0.3
    hidden_NK[:, seed % kept_NK.shape[1]] = False
    return q_NHW.requires_grad_(), rows_MW.requires_grad_(), kept_NK.masked_fill(hidden_NK, -1)


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 9),
    heads=st.integers(1, 3),
    kept=st.integers(1, 7),
    extra=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_values_and_gradients_are_those_of_a_loop(
    count: int, heads: int, kept: int, extra: int, seed: int
) -> None:
    q_NHW, rows_MW, kept_NK = case(count, heads, kept, kept + extra, seed)
    found, wanted = (
        sparse_attention(q_NHW, rows_MW, kept_NK, SCALE, 3),
        by_loop(q_NHW, rows_MW, kept_NK, 3),
    )
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    weight = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad((found * weight).sum(), (q_NHW, rows_MW)),
        torch.autograd.grad((wanted * weight).sum(), (q_NHW, rows_MW)),
        atol=1e-12,
        rtol=0,
    )


def test_gradcheck() -> None:
    q_NHW, rows_MW, kept_NK = case(4, 2, 3, 6, 0)
    assert torch.autograd.gradcheck(
        lambda q, rows: sparse_attention(q, rows, kept_NK, SCALE, 3), (q_NHW, rows_MW)
    )


@pytest.mark.parametrize("block", [1, 20, 47, 64])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    q_NHW, rows_MW, kept_NK = case(11, 3, 4, 9, 3)

    def everything() -> tuple[Tensor, ...]:
        out = sparse_attention(q_NHW, rows_MW, kept_NK, SCALE, 3)
        grads = torch.autograd.grad(out.pow(3).sum(), (q_NHW, rows_MW))
        return out, *grads, attention_target(q_NHW, rows_MW, kept_NK, SCALE)

    whole = everything()
    monkeypatch.setattr(sparse, "GATHER_BLOCK", block)
    torch.testing.assert_close(everything(), whole, atol=1e-12, rtol=0)


def test_the_target_is_the_mean_of_the_heads_weights() -> None:
    q_NHW, rows_MW, kept_NK = case(6, 3, 4, 9, 5)
    target_NK = attention_target(q_NHW, rows_MW, kept_NK, SCALE)
    torch.testing.assert_close(target_NK.sum(-1), torch.ones(6, dtype=torch.float64))
    assert bool((target_NK[kept_NK < 0] == 0).all())
    scores_NHM = torch.einsum("nhw,mw->nhm", q_NHW, rows_MW) * SCALE
    for n in range(6):
        kept = kept_NK[n][kept_NK[n] >= 0].long()
        wanted = scores_NHM[n, :, kept].softmax(-1).mean(0)
        torch.testing.assert_close(target_NK[n][kept_NK[n] >= 0], wanted)


_PEAK = """
import sys, torch
from pathlib import Path
from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
torch.set_num_threads(1)
path, lengths = sys.argv[1], map(int, sys.argv[2:])
model = DSAForCausalLM(preset("tiny", num_hidden_layers=2, index_topk=32, vocab_size=64))
def step(length):
    ids = torch.zeros(1, length, dtype=torch.long).random_(64)
    out = model(ids, path=path, index_loss="sparse")
    (out.logits.float().logsumexp(-1).mean() + out.index_loss).backward()
def peak():  # unlike ru_maxrss, VmHWM does not start at the parent's size
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
step(64)
before = peak()
for length in lengths:  # each takes more than the ones before
    step(length)
    print(peak() - before)
"""


def peak_bytes(path: str, *lengths: int) -> list[int]:
    """How much more memory training steps of growing lengths take than a tiny one, in a fresh process."""
    done = run(
        [sys.executable, "-P", "-c", _PEAK, path, *map(str, lengths)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        # Large blocks go back to the system at once, so that the peak is what was in use.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.slow
def test_memory_of_a_training_step_grows_with_tokens_not_with_their_square() -> None:
    gather = peak_bytes("gather", 1024, 2048, 4096)
    assert gather[1] < 2.2 * gather[0]
    assert gather[2] < 2.2 * gather[1]
    reference = peak_bytes("reference", 1024, 2048)
    assert reference[1] > 3 * reference[0]  # so that the measure can tell
    assert reference[1] > gather[1]

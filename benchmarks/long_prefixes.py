"""Long rows that begin alike: how many to run behind one copy of what they share?

    python -P benchmarks/long_prefixes.py [--rows 8] [--length 2000] [--shared 1200]

Forward and backward of the model ``tiny`` (two layers, index_topk 256) over rows of random ids, in packs of
at most so many tokens. Processor seconds are told as a ratio to rows apart; the attention of a pack grows
with the square of its tokens, everything else by what it saves.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.batch import row_batch, score_batch
from envgen.train.rows import Row


def rows_of(count: int, length: int, shared: int) -> list[Row]:
    """Rows that the model wrote the own part of."""
    draws = np.random.default_rng(0)
    prefix = draws.integers(0, 200, shared)
    found = []
    for i in range(count):
        ids = np.append(prefix, draws.integers(0, 200, length - shared)).astype(np.int32)
        old = np.zeros(length - shared, np.float32)
        found.append(Row(i, ids, np.arange(shared, length), old))
    return found


def spent(model: DSAForCausalLM, rows: list[Row], pack_tokens: int) -> tuple[float, int, int]:
    """Processor seconds of an update's passes, packs, and tokens that were run."""
    batch = row_batch(rows, pack_tokens=pack_tokens)
    began = time.process_time()
    model.zero_grad()
    said = score_batch(model, batch, 1.0)
    torch.autograd.backward(said.scores.logp_N.mean())
    return time.process_time() - began, len(batch.ids_BT), int(batch.valid_BT.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=2000)
    parser.add_argument("--shared", type=int, default=1200)
    parser.add_argument("--limits", type=int, nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = DSAForCausalLM(preset("tiny", vocab_size=200, num_hidden_layers=2))
    model.requires_grad_(True)
    rows = rows_of(arguments.rows, arguments.length, arguments.shared)
    own = arguments.length - arguments.shared
    sizes = [arguments.shared + n * own for n in (1, 2, 3, 4, arguments.rows)]
    apart: float | None = None
    for limit in arguments.limits or [1, *sizes[1:]]:
        seconds, packs, tokens = spent(model, rows, limit)
        apart = apart or seconds
        print(
            f"{limit:6d} tokens: {packs} packs, {tokens} tokens run, {seconds:.2f} s, {seconds / apart:.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()

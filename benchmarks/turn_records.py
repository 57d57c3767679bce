"""Whose records of routing and key sets should a turn be trained with? Rollouts of several turns, measured.

    python -P benchmarks/turn_records.py [--json FILE]

A next turn prefills again the end of the last reply: the page that decoding had left unfinished, and all that
the cache has forgotten. What the engine chooses for these tokens then may be other than what it drew with.

* ``last``: a row has the records of its last turn.
* ``stitched``: each token those of the turn that went on from it (``envgen.train.rows``).
* ``tails``: an engine that keeps unfinished pages and goes on in a copy, with the records of the last turn.
* ``tails, stitched``: both.

Weights are random, spread so that experts and keys are chosen anew by the last bits. ``tight``: a cache that
holds less than all conversations.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence as Many
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from envgen.core.seeding import derive
from envgen.model.config import preset
from envgen.model.engine import Engine, EngineConfig
from envgen.model.modeling import DSAForCausalLM
from envgen.model.prefix import next_key
from envgen.model.requests import Completion, Request
from envgen.model.sampling import SamplingParams
from envgen.model.scheduler import Scheduler, Sequence
from envgen.policies.dsa import reply_tokens
from envgen.train.batch import row_batch, score_batch
from envgen.train.rollouts import engine_model, publish
from envgen.train.rows import NOT_ROUTED, Row, turn_rows

CONVERSATIONS, TURNS, PROMPT, REPLY, RESULT, VOCAB = 8, 4, 50, 24, 30, 200


class KeepsTails(Scheduler):
    """Makes a reply's unfinished page known, too; who goes on from it gets a copy."""

    def remove(self, sequence: Sequence) -> None:
        """Know the tail before the pages are given up."""
        start = (len(sequence.keys) - 1) * self._size
        tail = sequence.ids[start : sequence.computed]
        if sequence in self.running and tail and len(sequence.pages) * self._size > start:
            self.store.add(next_key(sequence.keys[-1], tail), sequence.pages[-1])
        super().remove(sequence)

    def _reuse(self, sequence: Sequence) -> None:
        if sequence.computed % self._size:
            return
        super()._reuse(sequence)
        start, end = sequence.computed, len(sequence.ids) - 1
        if start % self._size or sequence.num_sampled:
            return
        for count in range(min(self._size - 1, end - start), 0, -1):
            key = next_key(sequence.keys[-1], sequence.ids[start : start + count])
            page = self.store.find(key)
            taken = None if page is None else self.store.take(1)
            if page is not None:
                if taken is not None:
                    self.store.copy(page, taken[0], count)
                    sequence.pages += taken
                    sequence.computed = start + count
                self.store.release([page])
                return


class Played(NamedTuple):
    """Conversations, and what they took."""

    turns: list[list[Completion]]
    cpu_s: float
    prefilled: int


def spread(seed: int) -> DSAForCausalLM:
    """A model whose experts and keys are chosen by little."""
    model = DSAForCausalLM(preset("tiny", vocab_size=VOCAB, index_topk=16, initializer_range=0.06))
    model.reset_parameters(seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for gate in model.gates():
            gate.weight.normal_(0, 0.3, generator=draw)
        for weight in model.indexer_parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.2, generator=draw)
    return model.eval()


def play(model: DSAForCausalLM, *, tails: bool, tight: bool, seed: int) -> Played:
    """Conversations of several turns in groups of four, with given tool results."""
    whole = PROMPT + TURNS * (REPLY + RESULT)
    tokens = CONVERSATIONS * whole * (1 if tight else 3) // (3 if tight else 1)
    engine = Engine(model, EngineConfig(max_batch=CONVERSATIONS, cache_tokens=tokens))
    if tails:
        engine._scheduler.__class__ = KeepsTails
    draws = np.random.default_rng(seed)
    starts = [draws.integers(0, VOCAB, PROMPT).tolist() for _ in range(-(-CONVERSATIONS // 4))]
    prompts = [list(starts[i // 4]) for i in range(CONVERSATIONS)]
    turns: list[list[Completion]] = [[] for _ in prompts]
    began = time.process_time()
    for turn in range(TURNS):
        params = [
            SamplingParams(
                max_new_tokens=int(draws.integers(REPLY // 2, REPLY)),
                seed=derive(seed, "reply", turn, i),
                capture_topk=True,
            )
            for i in range(CONVERSATIONS)
        ]
        asked = [Request(ids, one) for ids, one in zip(prompts, params, strict=True)]
        for i, done in enumerate(engine.generate(asked)):
            turns[i].append(done)
            prompts[i] += [*done.ids.tolist(), *draws.integers(0, VOCAB, RESULT).tolist()]
    return Played(turns, time.process_time() - began, engine.stats().prefilled_tokens)


def own(turns: Many[Completion], name: str) -> list[NDArray[Any]]:
    """Of each turn, the records of the tokens that it went on from first: what it drew with."""
    found, covered = [], 0
    for done in turns:
        record = getattr(done, name)
        found.append(record[covered:])
        covered = len(record)
    return found


def last_rows(turns: Many[Completion], rollout: int) -> list[Row]:
    """Rows with the records of their last turn."""
    (row,) = turn_rows([reply_tokens(done).arrays() for done in turns], rollout)
    record = turns[-1].routing
    assert record is not None
    routing = np.concatenate((record, np.full((1, *record.shape[1:]), NOT_ROUTED, np.uint16)))
    return [Row(row.rollout, row.ids, row.places, row.old, routing=routing, topk=turns[-1].topk)]


def differing(turns: Many[Completion], row: Row, name: str) -> NDArray[np.bool_]:
    """Where the row's records are not those that were drawn with: [tokens, layers]."""
    record = getattr(row, name)
    found, start = [], 0
    for part in own(turns, name):
        used = np.sort(record[start : start + len(part)], -1)[..., -part.shape[-1] :]
        found.append((used != np.sort(part, -1)).any(-1))
        start += len(part)
    return np.concatenate(found)


def measure(model: DSAForCausalLM, played: Played, *, stitched: bool) -> dict[str, float]:
    """How far the trainer is from what was drawn."""
    rows: list[Row] = []
    for i, turns in enumerate(played.turns):
        arrays = [reply_tokens(done).arrays() for done in turns]
        rows += turn_rows(arrays, i) if stitched else last_rows(turns, i)
    batch = row_batch(rows, pack_tokens=0)
    with torch.no_grad():
        gaps = (score_batch(model, batch, 1.0).scores.logp_N - batch.old_N).abs().numpy()
    found = {
        f"other_{name}": float(
            np.concatenate(
                [differing(t, r, name) for t, r in zip(played.turns, rows, strict=True)]
            ).mean()
        )
        for name in ("routing", "topk")
    }
    return found | {
        "gap_p50": float(np.quantile(gaps, 0.5)),
        "gap_p99": float(np.quantile(gaps, 0.99)),
        "gap_max": float(gaps.max()),
    }


def cases(seeds: Many[int]) -> list[dict[str, Any]]:
    """All that is compared: means over seeds, the largest gap of all."""
    rows = []
    for precision in ("float32", "bfloat16 and fp8"):
        for tight in (False, True):
            for tails in (False, True):
                labels = {"engine": precision, "cache": "tight" if tight else "ample"}
                found = [compared(seed, precision != "float32", tails, tight) for seed in seeds]
                for way in found[0]:
                    own = [one[way] for one in found]
                    row = {name: float(np.mean([one[name] for one in own])) for name in own[0]}
                    row["gap_max"] = max(one["gap_max"] for one in own)
                    rows.append({**labels, "records": way, **row})
                    print(json.dumps(rows[-1]), flush=True)
    return rows


def compared(seed: int, coarse: bool, tails: bool, tight: bool) -> dict[str, dict[str, float]]:
    """The same conversations with the records of the last turn, and stitched."""
    model = spread(seed)
    player = engine_model(model, torch.bfloat16, True) if coarse else model
    publish(model, player)
    played = play(player, tails=tails, tight=tight, seed=seed)
    costs = {"cpu_s": played.cpu_s, "prefilled": float(played.prefilled)}
    ways = ("tails", "tails, stitched") if tails else ("last", "stitched")
    return {way: measure(model, played, stitched="stitched" in way) | costs for way in ways}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures, too")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = cases(arguments.seeds)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

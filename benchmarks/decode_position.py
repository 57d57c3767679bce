"""What the next token costs at positions from 1K to 64K: attention over index_topk keys, and choosing them.

    python -P benchmarks/decode_position.py [--presets tiny medium] [--batch 1] [--out FOLDER]

*attention* reads and weighs the chosen rows; it should not depend on the position. *indexer* scores all keys
and takes the best; it should be linear. *rest* is all products with weights, which a dense model has too. The
step is the engine's for small models, in float32; cached rows are random, for what they hold does not change
the cost. One thread; median milliseconds of all layers together, in processor time; the positions take turns.
On CUDA the step is the model's own pass in bfloat16, in wall time, and the indexer's part is what replaying
its choice saves. ``--out`` keeps the figures and a plot.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envgen.model.config import preset
from envgen.model.decode import Decoder
from envgen.model.modeling import DSAForCausalLM, Replay
from envgen.model.paged import CacheView, PagedCache

POSITIONS = (1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
PAGE_TOKENS = 16
Step = Callable[[], Mapping[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=["tiny", "medium"])
    parser.add_argument("--positions", nargs="+", type=int, default=list(POSITIONS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    on = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{on}, one thread, load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}")
    found = {name: table(name, arguments) for name in arguments.presets}
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        record = {"machine": on, "batch": arguments.batch, "milliseconds": found}
        (arguments.out / "decode_position.json").write_text(json.dumps(record, indent=1) + "\n")
        plot(found, arguments.out / "decode_position.svg")


def table(name: str, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """All positions of a preset."""
    longest = max(arguments.positions)
    model = DSAForCausalLM(preset(name, max_position_embeddings=longest)).eval()
    make = by_replay if torch.cuda.is_available() else by_clock
    steps = make(model, arguments.positions, arguments.batch)
    told: dict[int, list[Mapping[str, float]]] = {position: [] for position in steps}
    for _ in range(arguments.steps + 1):
        for position, step in steps.items():
            told[position].append(step())
    rows: list[dict[str, float]] = []
    for position, runs in told.items():
        parts = {key: statistics.median(run[key] for run in runs[1:]) for key in runs[0]}
        rows.append({"position": position, **{key: round(v, 3) for key, v in parts.items()}})
    print(f"\n{name}, batch {arguments.batch}, index_topk {model.config.index_topk}: ms of a step")
    print("".join(f"{key:>11}" for key in rows[0]))
    for row in rows:
        print(
            f"{row['position']:11,.0f}" + "".join(f"{v:11.3f}" for v in list(row.values())[1:]),
            flush=True,
        )
    return rows


def filled_cache(
    model: DSAForCausalLM, batch: int, slots: int, dtype: torch.dtype
) -> tuple[PagedCache, Tensor]:
    """A cache of random rows, and the pages of ``batch`` sequences, scattered."""
    pages = -(-slots // PAGE_TOKENS)
    cache = PagedCache(model.config, batch * pages, PAGE_TOKENS, dtype, model.device)
    for pool in (*cache.rows, *cache.index):
        pool.normal_()
    taken = torch.tensor(cache.take(batch * pages), device=model.device)
    order = torch.randperm(len(taken), generator=torch.Generator().manual_seed(0))
    return cache, taken[order.to(taken.device)].view(batch, pages)


def by_clock(model: DSAForCausalLM, positions: Sequence[int], batch: int) -> dict[int, Step]:
    """The engine's decoding step with a clock around its parts, in processor time."""
    cache, pages_Bn = filled_cache(model, batch, max(positions), torch.float32)
    with torch.inference_mode():
        decoder = Decoder(model, cache)
    spent = {"attention": 0.0, "indexer": 0.0}

    def around(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            started = time.process_time()
            result = work(*given)
            spent[name] += 1e3 * (time.process_time() - started)
            return result

        return timed

    for attention, _ in decoder.layers:
        attention.choose = around("indexer", attention.choose)
        attention.over = around("attention", attention.over)

    def at(position: int) -> Step:
        ids, slots = (torch.full((batch,), value) for value in (1, position - 1))
        pages = pages_Bn[:, : -(-position // PAGE_TOKENS)]

        def step() -> Mapping[str, float]:
            spent.update(attention=0.0, indexer=0.0)
            started = time.process_time()
            with torch.inference_mode():
                decoder.run(ids, slots, pages, position)
            whole = 1e3 * (time.process_time() - started)
            return {**spent, "rest": whole - sum(spent.values()), "whole": whole}

        return step

    return {position: at(position) for position in positions}


def by_replay(model: DSAForCausalLM, positions: Sequence[int], batch: int) -> dict[int, Step]:
    """The model's own pass with and without choosing."""
    model = model.cuda().cast(torch.bfloat16)
    cache, pages_Bn = filled_cache(model, batch, max(positions), torch.bfloat16)
    offsets = torch.arange(PAGE_TOKENS, device=model.device)
    place_BS = (pages_Bn.unsqueeze(2) * PAGE_TOKENS + offsets).flatten(1)

    def took(position: int, replay: Replay | None) -> float:
        ids, slots = (
            torch.full((batch, 1), value, device=model.device) for value in (1, position - 1)
        )
        view = CacheView(cache, place_BS[:, :position], place_BS[:, position - 1 : position])
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.inference_mode():
            model(ids, view=view, slots_BT=slots, replay=replay)
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - started)

    def at(position: int) -> Step:
        kept = min(model.config.index_topk, position)
        draws = torch.randperm(position, device=model.device)[:kept].int()
        replay = Replay(None, (draws.expand(batch, 1, -1),) * model.config.num_hidden_layers)

        def step() -> Mapping[str, float]:
            whole, given = took(position, None), took(position, replay)
            return {"indexer": whole - given, "rest": given, "whole": whole}

        return step

    return {position: at(position) for position in positions}


def plot(found: Mapping[str, list[dict[str, float]]], path: Path) -> None:
    """One panel a preset: the parts of a step over the position."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.2), squeeze=False)
    for axis, (name, rows) in zip(axes[0], found.items(), strict=True):
        positions = [row["position"] for row in rows]
        for part in list(rows[0])[1:]:
            axis.plot(positions, [row[part] for row in rows], marker=".", label=part)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set(title=name, xlabel="position", ylabel="ms of a decoding step")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()

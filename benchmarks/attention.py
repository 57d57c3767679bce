"""Sparse against dense attention of the same model: time and memory of prefill and of a training step.

    python -P benchmarks/attention.py [--presets tiny medium] [--lengths 1024 ... 32768] [--layers 2]

Each figure comes from a process of its own: a model of the preset's widths with ``--layers`` layers, one
sequence, random weights (what the indexer chooses does not change its cost). *dense* is the same model with
``dense=True`` (fused causal attention in MHA mode), *sparse* its ``gather`` path, indexer included. Times are
processor time of one thread, the best of a few runs, so that a busy machine does not change them much. Memory
is the peak above what was there before the measured work. The crossover is where the ratio passes 1, by
linear interpolation in log length. On CUDA: wall time in bfloat16, and the share of the peak of arithmetic
that the operations of ``envgen.model.cost`` come to (three times a prefill's for a training step).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from envgen.model.config import preset
from envgen.model.cost import Mode, flops
from envgen.model.modeling import DSAForCausalLM

LENGTHS = (1_024, 2_048, 4_096, 8_192, 16_384, 32_768)
KINDS = ("prefill", "training")
PEAK_FLOPS_PER_S = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""In bfloat16, without sparsity."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=["tiny", "medium"])
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--budget-s", type=float, default=60, help="skip what would take longer")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, length, layers, kind, form = arguments.child
        print(json.dumps(measure(name, int(length), int(layers), kind, form == "sparse")))
        return
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{where}, load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}")
    for name in arguments.presets:
        for kind in KINDS:
            table(name, kind, arguments)


def table(name: str, kind: str, arguments: argparse.Namespace) -> None:
    """One preset, one kind of work, all lengths."""
    config = preset(name)
    print(
        f"\n{name}, {kind}: {config.num_attention_heads} heads, k = {config.index_topk}, "
        f"{arguments.layers} layers\n{'tokens':>8}  dense s  sparse s  dense/sparse  dense MB  sparse MB"
    )
    ratios: list[tuple[int, float]] = []
    memory: list[tuple[int, float]] = []
    spent = dict.fromkeys(("dense", "sparse"), 0.0)
    for length in arguments.lengths:
        row = {}
        for form in ("dense", "sparse"):
            # A dense step of twice the length takes about four times as long.
            if spent[form] * 4 > arguments.budget_s:
                continue
            row[form] = child(name, length, arguments.layers, kind, form)
            spent[form] = row[form]["seconds"]
        if len(row) == 2:
            ratios.append((length, row["dense"]["seconds"] / row["sparse"]["seconds"]))
        if "sparse" in row:
            memory.append((length, row["sparse"]["megabytes"]))
        print(
            line(length, row, ratios) + peaks(name, kind, length, arguments.layers, row), flush=True
        )
    print(crossover(ratios))
    if len(memory) > 2:
        (a, m), (b, n) = memory[-2:]
        print(
            f"sparse memory grows with tokens^{math.log(n / m) / math.log(b / a):.2f} (linear: 1)"
        )


def line(length: int, row: dict[str, dict[str, float]], ratios: list[tuple[int, float]]) -> str:
    def cell(form: str, key: str, width: int, digits: int) -> str:
        return f"{row[form][key]:{width}.{digits}f}" if form in row else f"{'-':>{width}}"

    ratio = f"{ratios[-1][1]:12.2f}" if len(row) == 2 else f"{'-':>12}"
    return (
        f"{length:8}  {cell('dense', 'seconds', 7, 3)}  {cell('sparse', 'seconds', 8, 3)}  {ratio}  "
        f"{cell('dense', 'megabytes', 8, 0)}  {cell('sparse', 'megabytes', 9, 0)}"
    )


def peaks(name: str, kind: str, length: int, layers: int, row: dict[str, dict[str, float]]) -> str:
    """On CUDA, the share of the peak of arithmetic that each form reaches."""
    if not torch.cuda.is_available():
        return ""
    device = torch.cuda.get_device_name()
    peak = next((rate for model, rate in PEAK_FLOPS_PER_S.items() if model in device), None)
    if peak is None:
        return "  (peak unknown)"
    config = preset(name, num_hidden_layers=layers, first_k_dense_replace=1)
    modes: tuple[Mode, ...] = ("dense", "sparse")
    shares = []
    for mode in modes:
        if mode in row:
            once = length * flops(config, length, "prefill", mode).total
            needed = once if kind == "prefill" else 3 * once
            shares.append(f"{mode} {needed / (peak * row[mode]['seconds']):.1%}")
    return f"  of peak: {', '.join(shares)}"


def crossover(ratios: Sequence[tuple[int, float]]) -> str:
    """Where dense / sparse passes 1 for good."""
    for (a, low), (b, high) in zip(reversed(ratios[:-1]), reversed(ratios[1:]), strict=True):
        if low < 1 <= high:
            share = -math.log(low) / (math.log(high) - math.log(low))
            tokens = math.exp(math.log(a) + share * (math.log(b) - math.log(a)))
            return f"sparse is faster from about {tokens:,.0f} tokens"
    if not ratios:
        return "nothing to compare"
    length, last = ratios[-1]
    return (
        f"sparse is faster at every length from {ratios[0][0]:,}"
        if last >= 1
        else f"no crossover up to {length:,} tokens (ratio there {last:.2f})"
    )


def child(name: str, length: int, layers: int, kind: str, form: str) -> dict[str, float]:
    command = [
        sys.executable,
        "-P",
        __file__,
        "--child",
        name,
        str(length),
        str(layers),
        kind,
        form,
    ]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(name: str, length: int, layers: int, kind: str, sparse: bool) -> dict[str, float]:
    """Best of a few runs in seconds, and the peak of memory in MB."""
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    config = preset(name, num_hidden_layers=layers, first_k_dense_replace=1)
    model = DSAForCausalLM(config).to(device)
    if on_gpu:
        model = model.to(torch.bfloat16)
    ids = torch.randint(0, config.vocab_size, (1, length), device=device)
    work(model, ids[:, : config.index_topk + 64], kind, sparse)  # warm
    before = peak_bytes(on_gpu)
    clock = time.perf_counter if on_gpu else time.process_time
    best, spent = float("inf"), 0.0
    while best == float("inf") or (spent < 2 and best < 1):
        started = clock()
        work(model, ids, kind, sparse)
        if on_gpu:
            torch.cuda.synchronize()
        took = clock() - started
        best, spent = min(best, took), spent + took
    return {"seconds": best, "megabytes": (peak_bytes(on_gpu) - before) / 1e6}


def work(model: DSAForCausalLM, ids: torch.Tensor, kind: str, sparse: bool) -> None:
    """A prefill (the last token's logits), or a forward and backward pass over all tokens."""
    path = "gather" if sparse else "masked"
    if kind == "prefill":
        with torch.inference_mode():
            model(ids, path=path, dense=not sparse, keep=slice(-1, None))
        return
    model.zero_grad(set_to_none=True)
    # The loss of every 16th token: logits of all would drown attention's memory.
    kept = torch.arange(0, ids.shape[1] - 1, 16, device=ids.device)
    logits = model(ids, path=path, dense=not sparse, keep=kept).logits
    torch.nn.functional.cross_entropy(logits[0].float(), ids[0, kept + 1]).backward()


def peak_bytes(on_gpu: bool) -> float:
    if on_gpu:
        return float(torch.cuda.max_memory_allocated())
    # Unlike ru_maxrss, VmHWM does not start at the parent's size.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024.0


if __name__ == "__main__":
    main()

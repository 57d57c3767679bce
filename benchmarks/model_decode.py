"""The engine beside transformers' ``DeepseekV32ForCausalLM.generate``: same weights, same prompts, one run.

    python -P benchmarks/model_decode.py [--cases tiny:32:128:128 ...] [--repetitions 5]

A case is PRESET:BATCH:PROMPT TOKENS:NEW TOKENS, with random weights and prompts. Each side is a process of
its own with one thread; they take turns, repetition by repetition. Both sample at temperature 1 without
truncation; the engine also records log-probabilities and routing, and reuses no prefix. *decode* is a whole
call less a call for one new token; all figures are medians. On a busy machine wall time says little, so the
ratio of processor time stands beside it. Last, both decode greedily, and their ids are compared. (Beyond
index_topk tokens they may differ: where no indexer head is lit, scores are equal; transformers then takes
any key and we take the earlier.) On CUDA both run in bfloat16, and the share of the memory's peak rate is
shown (weights and cache, read once a step).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from envgen.model.config import DSAConfig, preset
from envgen.model.cost import decode_bytes, parameters
from envgen.model.engine import Engine, EngineConfig
from envgen.model.modeling import DSAForCausalLM
from envgen.model.requests import Request
from envgen.model.sampling import SamplingParams

SIDES = ("envgen", "transformers")
CASES = ("tiny:32:128:128", "tiny:32:384:128", "medium:32:128:24")
GREEDY_TOKENS = 24
PEAK_BYTES_PER_S = {"H200": 4.8e12, "H100": 3.35e12, "A100": 2.04e12}
Generate = Callable[[list[list[int]], int, bool], list[list[int]]]


class Case(NamedTuple):
    """What is generated."""

    preset: str
    batch: int
    prompt: int
    new: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(*arguments.child)
        return
    on = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{on}, one thread a side, load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}")
    print(
        "                             decode, tokens/s             ratio           whole call, ratio   same\n"
        "  preset batch prompt  new   envgen transformers   wall  processor      wall  processor   greedy ids"
    )
    for text in arguments.cases:
        name, *numbers = text.split(":")
        compare(Case(name, *map(int, numbers)), arguments.repetitions)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


def compare(case: Case, repetitions: int) -> None:
    """Run one case on both sides and print its row."""
    config = preset(case.preset)
    with tempfile.TemporaryDirectory() as folder:
        DSAForCausalLM(config).save_pretrained(folder)
        draws = torch.Generator().manual_seed(0)
        ids = torch.randint(0, config.vocab_size, (case.batch, case.prompt), generator=draws)
        sides = {side: Side(side, folder, ids.tolist()) for side in SIDES}
        try:
            for side in sides.values():
                side.generate(2)  # warm
            for _ in range(repetitions):
                for side in sides.values():
                    side.generate(1)
                    side.generate(case.new)
            greedy = [side.generate(GREEDY_TOKENS, greedy=True) for side in sides.values()]
        finally:
            for side in sides.values():
                side.close()
    print(row(case, config, sides["envgen"], sides["transformers"], *greedy), flush=True)


def row(
    case: Case, config: DSAConfig, ours: Side, theirs: Side, our_ids: Any, their_ids: Any
) -> str:
    """The medians of a case in a line."""
    tokens = case.batch * (case.new - 1)
    decode = {
        (side.name, clock): side.median(case.new, clock) - side.median(1, clock)
        for side in (ours, theirs)
        for clock in ("wall", "cpu")
    }
    whole = [theirs.median(case.new, c) / ours.median(case.new, c) for c in ("wall", "cpu")]
    ratio = [decode["transformers", c] / decode["envgen", c] for c in ("wall", "cpu")]
    same = sum(a == b for a, b in zip(our_ids, their_ids, strict=True))
    ours_per_s, theirs_per_s = (tokens / decode[side.name, "wall"] for side in (ours, theirs))
    line = (
        f"{case.preset:>8} {case.batch:5} {case.prompt:6} {case.new:4}   "
        f"{ours_per_s:6,.0f} {theirs_per_s:12,.0f}  "
        f"{ratio[0]:4.1f}x {ratio[1]:9.1f}x  {whole[0]:7.1f}x {whole[1]:9.1f}x   {same:4} of {case.batch}"
    )
    if torch.cuda.is_available():
        line += memory_share(case, config, decode["envgen", "wall"] / (case.new - 1))
    return line


def memory_share(case: Case, config: DSAConfig, step_s: float) -> str:
    """What a step must read over what the memory could give meanwhile."""
    name = torch.cuda.get_device_name()
    peak = next((rate for model, rate in PEAK_BYTES_PER_S.items() if model in name), None)
    if peak is None:
        return "  (peak unknown)"
    cache = case.batch * decode_bytes(config, case.prompt + case.new // 2, "sparse", "bf16")
    return f"  {(2 * parameters(config).total + cache) / (peak * step_s):.1%} of the memory's peak"


class Side:
    """One child process, and the times it told.

    Args:
        name: of ``SIDES``.
        folder: of the model.
        prompts: for every call.
    """

    def __init__(self, name: str, folder: str, prompts: list[list[int]]) -> None:
        self.name = name
        self.times: dict[tuple[int, str], list[float]] = {}
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-P", __file__, "--child", name, folder]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread
        )
        self._tell(prompts)

    def generate(self, new: int, greedy: bool = False) -> list[list[int]]:
        """New ids for every prompt; the time is kept."""
        self._tell({"new": new, "greedy": greedy})
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        if not told:
            raise SystemExit(f"the {self.name} side ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(told)
        if not greedy:
            for clock in ("wall", "cpu"):
                self.times.setdefault((new, clock), []).append(found[clock])
        ids: list[list[int]] = found["ids"]
        return ids

    def median(self, new: int, clock: str) -> float:
        """Seconds of a call for so many new tokens."""
        return statistics.median(self.times[new, clock])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()


def serve(name: str, folder: str) -> None:
    """The child: read prompts, then calls, from stdin; answer each with ids and times."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    prompts: list[list[int]] = json.loads(sys.stdin.readline())
    make = our_generate if name == "envgen" else their_generate
    generate = make(folder, device, len(prompts))
    for line in sys.stdin:
        asked = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        ids = generate(prompts, asked["new"], asked["greedy"])
        took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({"ids": ids, **took}), flush=True)


def our_generate(folder: str, device: str, batch: int) -> Generate:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = DSAForCausalLM.from_pretrained(folder, dtype=dtype, device=device)
    engine = Engine(model, EngineConfig(max_batch=batch, prefix_reuse=False))

    def generate(prompts: list[list[int]], new: int, greedy: bool) -> list[list[int]]:
        temperature = 0.0 if greedy else 1.0
        requests = [
            Request(ids, SamplingParams(temperature=temperature, max_new_tokens=new, seed=seed))
            for seed, ids in enumerate(prompts)
        ]
        return [reply.ids.tolist() for reply in engine.generate(requests)]

    return generate


def their_generate(folder: str, device: str, batch: int) -> Generate:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(Path(folder), dtype=dtype).to(device).eval()

    def generate(prompts: list[list[int]], new: int, greedy: bool) -> list[list[int]]:
        given = torch.tensor(prompts, device=device)
        choice = {"do_sample": False} if greedy else {"do_sample": True, "top_k": 0}
        with torch.inference_mode():
            found = model.generate(
                given,
                attention_mask=torch.ones_like(given),
                min_new_tokens=new,
                max_new_tokens=new,
                pad_token_id=0,
                **choice,
            )
        ids: list[list[int]] = found[:, given.shape[1] :].tolist()
        return ids

    return generate


if __name__ == "__main__":
    main()

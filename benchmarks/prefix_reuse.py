"""What the engine saves by finding known beginnings again: groups of rollouts, and second turns.

    python -P benchmarks/prefix_reuse.py [--preset tiny] [--prompt 512] [--repetitions 5]

*group*: so many replies to one prompt, as GRPO asks for. *turns*: each of them goes on with its own reply and
a tool's result behind it. Both with and without ``prefix_reuse``, in turns, by one thread; medians. Random
weights.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from typing import NamedTuple

import torch

from envgen.model.config import preset
from envgen.model.engine import Engine, EngineConfig
from envgen.model.modeling import DSAForCausalLM
from envgen.model.requests import Request
from envgen.model.sampling import SamplingParams


class Timed(NamedTuple):
    """One stage of one repetition."""

    wall_s: float
    cpu_s: float
    prefilled: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--result", type=int, default=64, help="tokens of a tool's result")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = DSAForCausalLM(preset(arguments.preset)).to(device)
    runs: dict[bool, list[tuple[Timed, Timed]]] = {False: [], True: []}
    print(
        f"{arguments.preset}, {device}, load {os.getloadavg()[0]:.1f}: {arguments.group} replies of "
        f"{arguments.new} tokens to a prompt of {arguments.prompt}; then "
        f"{arguments.result} more tokens and as many replies"
    )
    for repetition in range(arguments.repetitions):
        for reuse, found in runs.items():
            found.append(two_turns(model, reuse, repetition, arguments))
    print(
        " stage   prefilled tokens: without   with   wall s: without   with   ratio  processor time"
    )
    for stage, name in enumerate(("group", "turns")):
        plain, reused = ([both[stage] for both in runs[reuse]] for reuse in (False, True))
        walls = [statistics.median(timed.wall_s for timed in side) for side in (plain, reused)]
        cpus = [statistics.median(timed.cpu_s for timed in side) for side in (plain, reused)]
        print(
            f"{name:>6} {plain[0].prefilled:27,} {reused[0].prefilled:6,} {walls[0]:17.3f} "
            f"{walls[1]:6.3f} {walls[0] / walls[1]:6.1f}x {cpus[0] / cpus[1]:14.1f}x"
        )


def two_turns(
    model: DSAForCausalLM, reuse: bool, repetition: int, arguments: argparse.Namespace
) -> tuple[Timed, Timed]:
    """A group and what follows it, in a new engine."""
    room = arguments.group * (arguments.prompt + 2 * arguments.new + arguments.result + 64)
    config = EngineConfig(max_batch=arguments.group, cache_tokens=room, prefix_reuse=reuse)
    engine, draws = Engine(model, config), random.Random(repetition)

    def text(length: int) -> list[int]:
        return [draws.randrange(model.config.vocab_size) for _ in range(length)]

    def ask(prompts: list[list[int]]) -> tuple[Timed, list[list[int]]]:
        before = engine.stats().prefilled_tokens
        wall, cpu = time.perf_counter(), time.process_time()
        replies = engine.generate(
            [
                Request(ids, SamplingParams(max_new_tokens=arguments.new, seed=seed))
                for seed, ids in enumerate(prompts)
            ]
        )
        took = (time.perf_counter() - wall, time.process_time() - cpu)
        timed = Timed(*took, engine.stats().prefilled_tokens - before)
        return timed, [reply.ids.tolist() for reply in replies]

    prompt = text(arguments.prompt)
    group, replies = ask([prompt] * arguments.group)
    turns, _ = ask([[*prompt, *reply, *text(arguments.result)] for reply in replies])
    return group, turns


if __name__ == "__main__":
    main()

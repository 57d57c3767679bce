"""Variants and generation of an old checkout beside today's: rates, and the ratio of new to old.

    git worktree add --detach ../old c7681cd
    python -P benchmarks/variants_old_new.py ../old [--level 1 --level 5 --level 8] [--rounds 3] [--folder x]

Each side is a process of its own that makes its own parents (one task of each domain and level, all gates on)
and then chunks of variants, one process and no workers; the sides take turns, and the least time of each
counts. Wall time is what a user waits for; on a busy machine trust processor time (children included).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CATEGORIES = ("trip_planning", "order_management", "meeting_scheduling")
LEVELS = (1, 5, 8)
NEW_GATES = ("compiled", "tools", "evaluation")
"""Gates that the old version does not have."""
SIDE = """
import json, os, sys, time
from collections import Counter
from envgen.pipelines.general import synthesize
from envgen.pipelines.general.gates import prove as proving
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.variants import VariantsConfig, variants

gates = Counter()

def timed(name, gate):
    def run(trial):
        started = time.perf_counter()
        try:
            return gate(trial)
        finally:
            gates[name] += time.perf_counter() - started
    return run

proving.GATES = tuple((name, timed(name, gate)) for name, gate in proving.GATES)

def make(category, level, out):
    gates.clear()
    config = GenerateConfig(categories=(category,), environments=1, tasks_per_environment=1,
                            min_level=level, max_level=level, seed=7)
    generate(config, out, workers=1, backend="process")
    return dict(gates)

def vary(parents, out, count, seed):
    made = variants(VariantsConfig(per_task=count, seed=seed), parents, out, workers=1, backend="process",
                    trust=True)
    return made.variants

out, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    name, *arguments = json.loads(line)
    before, started = os.times(), time.perf_counter()
    value = {"make": make, "vary": vary}[name](*arguments)
    wall, after = time.perf_counter() - started, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    print(json.dumps({"value": value, "wall": wall, "cpu": cpu}), file=out, flush=True)
"""


class Side:
    """One checkout's code in a process that answers one command at a time."""

    def __init__(self, checkout: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", SIDE],
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, *command: Any) -> dict[str, Any]:
        """What a command gave, with its wall and processor seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{command[0]} broke in {self._process.args!r:.80}")
        found: dict[str, Any] = json.loads(line)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a checkout of the old version")
    parser.add_argument("--level", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--count", type=int, default=200, help="variants a round (a quarter from level 8)"
    )
    parser.add_argument(
        "--folder", type=Path, help="keep parents there; those there are not made again"
    )
    arguments = parser.parse_args()
    sides = {"old": Side(arguments.old), "new": Side(ROOT)}
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; old -> new, ratio = new rate / old rate"
    )
    print("| task | variants/s | wall ratio | cpu ratio | generation s | of it new gates |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="envgen-old-new-") as scratch:
        parents = arguments.folder or Path(scratch) / "parents"
        parents.mkdir(parents=True, exist_ok=True)
        for level in arguments.level or LEVELS:
            for category in CATEGORIES:
                task = (category, level)
                count = arguments.count if level < 8 else max(4, arguments.count // 4)
                cells = row(sides, parents, Path(scratch), task, count, arguments.rounds)
                print(f"| {category} {level} | {' | '.join(cells)} |", flush=True)


def row(
    sides: dict[str, Side],
    parents: Path,
    scratch: Path,
    task: tuple[str, int],
    count: int,
    rounds: int,
) -> list[str]:
    """The cells of one line of the table."""
    category, level = task
    folders = {name: str(parents / f"{name}-{category}-{level}") for name in sides}
    made = {
        name: side.do("make", *task, folders[name])
        for name, side in sides.items()
        if not Path(folders[name]).exists()
    }
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(rounds):
        for name, side in sides.items():
            out = str(scratch / f"{name}-{category}-{level}-{i}")
            found = side.do("vary", folders[name], out, count, i)
            wall[name].append(found["wall"] / found["value"])
            cpu[name].append(found["cpu"] / found["value"])
    old, new = (1 / min(wall[name]) for name in ("old", "new"))
    processor = min(cpu["old"]) / min(cpu["new"])
    cells = [f"{old:.1f} -> {new:.1f}", f"{new / old:.2f}", f"{processor:.2f}"]
    if len(made) < len(sides):
        return [*cells, "kept", ""]
    added = sum(made["new"]["value"].get(gate, 0.0) for gate in NEW_GATES)
    return [*cells, f"{made['old']['wall']:.1f} -> {made['new']['wall']:.1f}", f"{added:.1f}"]


if __name__ == "__main__":
    main()

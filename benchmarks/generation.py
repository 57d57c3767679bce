"""How fast tasks are generated with all gates, how fast and small variants are, and the quickstart.

    python -P benchmarks/generation.py [--environments 12] [--variants 1000] [--no-quickstart]

Wall time of the public functions, imports excluded, worker processes' start included. Targets are for
two cores; other work on the machine makes figures worse, so the load is printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import tempfile
import time
from pathlib import Path

from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.quickstart import quickstart
from envgen.pipelines.quickstart_records import QuickstartConfig
from envgen.sandboxes.zygote import choose

TASKS_PER_SECOND = 1.0
VARIANTS_PER_SECOND = 200.0
MANY, MANY_MEGABYTES = 20_000, 100.0
QUICKSTART_S = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=int, default=12)
    parser.add_argument("--variants", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-quickstart", action="store_true")
    arguments = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, code runs in {choose('auto', trusted=True)}, "
        f"{arguments.workers} workers"
    )
    with tempfile.TemporaryDirectory(prefix="envgen-bench-") as folder:
        measure_generation(Path(folder), arguments.environments, arguments.workers)
        measure_variants(Path(folder), arguments.variants, arguments.workers)
        if not arguments.no_quickstart:
            measure_quickstart(Path(folder), arguments.workers)


def measure_generation(folder: Path, environments: int, workers: int) -> None:
    """Databases of all categories, two tasks each, levels 1 to 5, every gate."""
    config = GenerateConfig(environments=environments, tasks_per_environment=2, seed=7)
    made = generate(config, folder / "ds", workers=workers)
    rejected = sum(made.rejected.values())
    print(
        f"generation, all gates: {made.tasks_per_second:.2f} tasks/s ({made.tasks} tasks of "
        f"{made.environments} environments, {rejected} of {made.drafted} drafts rejected, "
        f"{made.seconds:.1f} s); target >= {TASKS_PER_SECOND:g}"
    )


def measure_variants(folder: Path, wanted: int, workers: int) -> None:
    """Variants of one level-1 task of each category."""
    config = GenerateConfig(environments=3, tasks_per_environment=1, max_level=1, seed=7)
    made = generate(config, folder / "level-1", workers=workers)
    parents_bytes = size(folder / "level-1")
    per_task = max(1, wanted // made.tasks)
    found = variants(
        VariantsConfig(per_task=per_task, seed=9),
        folder / "level-1",
        folder / "train",
        workers=workers,
    )
    each = (found.bytes - parents_bytes) / found.variants
    print(
        f"variants of level-1 tasks: {found.variants_per_second:.0f} per second ({found.variants} of "
        f"{found.parents} parents, {found.rejected} re-seeds rejected, {found.seconds:.1f} s); "
        f"target >= {VARIANTS_PER_SECOND:g}"
    )
    print(
        f"{MANY:,} variants: {each * MANY / 1e6:.1f} MB ({each:.0f} bytes each, on {found.variants}); "
        f"target <= {MANY_MEGABYTES:g} MB"
    )


def measure_quickstart(folder: Path, workers: int) -> None:
    """The whole of ``envgen quickstart`` with its defaults."""
    started = time.monotonic()
    summary = quickstart(QuickstartConfig(), folder / "quickstart", workers=workers)
    seconds = time.monotonic() - started
    stages = ", ".join(f"{name} {took:.0f}" for name, took in summary.stages.items())
    print(f"quickstart: {seconds:.0f} s ({stages}); target <= {QUICKSTART_S:g} s")


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()

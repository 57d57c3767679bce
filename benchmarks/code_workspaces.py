"""Code workspaces: the reset of an episode, and how many can be open at once.

``python -m benchmarks.code_workspaces [--layer NAME] [--files N] [--open N]``. The repository is made
here: N files of 10 kB in folders of 50. A reset is what an episode waits for: start the sandbox, lay
the tree out, answer a first command. Run it on an idle machine; the load is printed beside the figures.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from envgen.core.code_types import Recipe
from envgen.sandboxes.workspace import (
    OpenWorkspace,
    Workspace,
    WorkspaceLimits,
    base_tree,
    build_workspace,
)

RESET_S = {"bubblewrap": 0.5, "docker": 1.5}
"""Targets."""
TIMES = 10


def main() -> None:
    """Measure both backends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layer", default="host")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--open", type=int, default=64)
    parser.add_argument("--backend", action="append", choices=tuple(RESET_S))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tree = repository(Path(scratch), options.files)
        print(
            f"{options.files} files, {tree.stat().st_size >> 20} MiB, load {os.getloadavg()[0]:.1f}"
        )
        for backend in options.backend or RESET_S:
            measure(backend, options.layer, tree, Path(scratch) / "cache", options.open)


def repository(folder: Path, files: int) -> Path:
    """The tree of a repository of ``files`` text files of 10 kB."""
    repo, draw = folder / "clone", random.Random(0)
    words = [f"word{n}" for n in range(1000)]
    for number in range(files):
        path = repo / f"package{number // 50}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(f"# {' '.join(draw.choices(words, k=10))}" for _ in range(150))
        path.write_text(text)
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run([*git, *command], check=True)
    return base_tree(repo, "HEAD", folder / "tree.tar")


def measure(backend: str, layer: str, tree: Path, cache: Path, at_once: int) -> None:
    """Print the figures of one backend."""
    own = cache if layer == "host" else None  # another layer is in the user's cache
    recipe = Recipe(language="python", runner="pytest", layer=layer)
    began = time.perf_counter()
    built = build_workspace(recipe, tree, backend=backend, cache_root=own)
    show(backend, "build (nothing to install)", time.perf_counter() - began)
    resets, diffs, ends = [], [], []
    for _ in range(TIMES):
        began = time.perf_counter()
        place = opened(built)
        resets.append(time.perf_counter() - began)
        place.write("package0/module0.py", b"changed")
        diffs.append(seconds(place.diff))
        ends.append(seconds(place.close))
    show(backend, "reset", statistics.median(resets), RESET_S[backend])
    show(backend, "diff", statistics.median(diffs))
    show(backend, "close", statistics.median(ends))
    many(built, backend, at_once)


def opened(built: Workspace, limits: WorkspaceLimits | None = None) -> OpenWorkspace:
    """An episode that has answered."""
    place = built.open(limits)
    if place.shell("git log --oneline").exit_code:
        raise SystemExit("the episode does not answer")
    return place


def many(built: Workspace, backend: str, at_once: int) -> None:
    """Open many, keep them open, and talk to each."""
    limits = WorkspaceLimits(memory_bytes=1 << 30, disk_bytes=512 << 20)
    before = available_bytes()
    with ExitStack() as stack:
        began = time.perf_counter()
        places = [stack.enter_context(opened(built, limits)) for _ in range(at_once)]
        show(backend, f"open {at_once} one after another", time.perf_counter() - began)
        each = (before - available_bytes()) / at_once / (1 << 20)
        print(f"{backend:>12}  {'memory of an open episode':<36} {each:8.1f} MiB")
        slowest = max(seconds(partial(place.shell, "git status")) for place in places)
        show(backend, "slowest first git status among them", slowest)


def available_bytes() -> int:
    """Memory that could still be had."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


def seconds(act: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def show(backend: str, name: str, value: float, target: float | None = None) -> None:
    """Print one figure, and whether it meets its target."""
    verdict = (
        "" if target is None else f"  target {target:g} s: {'met' if value <= target else 'MISSED'}"
    )
    print(f"{backend:>12}  {name:<36} {value:8.3f} s{verdict}", flush=True)


if __name__ == "__main__":
    main()

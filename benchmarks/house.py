"""Measure the shape of the source: files and lines by room, lengths of functions, depth of imports.

``python -P benchmarks/house.py [COMMIT]`` prints this checkout beside an older commit's files. Lines are
counted as ``wc -l`` does; a function's length is that of its source with its docstring.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/helpers"))
TARGETS = {"pipelines/general": "<= 12000", "cli": "<= 2000"}
Sources = dict[str, str]


def here() -> Sources:
    """The checkout's own Python files and pages of domains."""
    return {name: (ROOT / name).read_text("utf-8") for name in _wanted(_git("ls-files"))}


def at(commit: str) -> Sources:
    """The same files of a commit."""
    names = _wanted(_git("ls-tree", "-r", "--name-only", commit))
    return {name: _git("show", f"{commit}:{name}") for name in names}


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True
    ).stdout


def _wanted(listing: str) -> Iterator[str]:
    rooms = ("envgen/", "environments/", "pipelines/", "sandboxes/", "verifiers/")
    for name in listing.splitlines():
        tests = name.startswith(("tests/", "benchmarks/", "examples/")) and "/data/" not in name
        source = name.startswith(rooms) and not name.startswith("environments/data/")
        if (source or tests) and name.endswith((".py", ".toml")) and not (ROOT / name).is_symlink():
            yield name


def room(name: str) -> str:
    """The room of a file; ``pipelines/general`` counts as one."""
    parts = name.removeprefix("envgen/").split("/")
    return "/".join(parts[:2]) if parts[:2] == ["pipelines", "general"] else parts[0]


def by_room(sources: Sources) -> dict[str, tuple[int, int]]:
    """By room its number of files and of lines."""
    found = defaultdict(list)
    for name, text in sources.items():
        found[room(name)].append(text.count("\n"))
    return {name: (len(lines), sum(lines)) for name, lines in found.items()}


def function_lengths(texts: Iterable[str]) -> list[int]:
    """Lines of every function and method."""
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def report(commit: str | None) -> None:
    """Print the tables."""
    from import_graph import imports, longest_chain

    now, before = here(), at(commit) if commit else {}
    rooms, old = by_room(now), by_room(before)
    print(f"{'room':<20}{'files':>8}{'lines':>8}   {'before':>8}{'lines':>8}   target")
    for name in sorted(set(rooms) | set(old)):
        files, lines = rooms.get(name, (0, 0))
        was = "{:>8}{:>8}".format(*old[name]) if name in old else " " * 16
        print(f"{name:<20}{files:>8}{lines:>8}   {was}   {TARGETS.get(name, '')}".rstrip())
    for title, sources in (("now", now), ("before", before)):
        package = [t for n, t in sources.items() if n.endswith(".py") and room(n) not in OUTSIDE]
        if package:
            lengths = function_lengths(package)
            p90 = quantiles(lengths, n=10)[-1]
            print(
                f"function lines, {title}: median {median(lengths):g} (8-12), p90 {p90:g} (20-30)"
            )
    chain = [
        name.rpartition(".")[2] for name in longest_chain(imports(), "envgen.pipelines.general")
    ]
    print(
        f"longest chain of imports in pipelines/general: {len(chain)} (<= 12): {' -> '.join(chain)}"
    )


OUTSIDE = ("tests", "benchmarks", "examples")

if __name__ == "__main__":
    report(sys.argv[1] if len(sys.argv) > 1 else None)

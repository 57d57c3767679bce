"""Lines, tool calls and time of emitted solutions, an old commit's beside today's.

    python -m benchmarks.solutions c7681cd [--rounds 5]

One task of each domain and level (the same problems for both). A solution runs in its sandbox, its tools in
this process; runs alternate and the least time of each counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from generated import Tools, database
from ladders import ladder

from envgen.core.ir import Problem
from envgen.pipelines.general.programs.solution_source import solution_source
from envgen.pipelines.general.semantics.tables import Tables
from envgen.sandboxes.solution import SolutionHost, solution_host

ROOT = Path(__file__).parents[1]
DOMAINS = ("trip", "orders", "meetings")
SEED = 11
EMIT = """
import json, sys
from envgen.core.ir import Problem
from envgen.pipelines.general.programs.solution_source import solution_source
texts = [solution_source(Problem.model_validate_json(text)) for text in json.load(sys.stdin)]
json.dump(texts, sys.stdout)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="whose compiler writes the old solutions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--domain", choices=DOMAINS, action="append")
    parser.add_argument("--level", type=int, action="append")
    arguments = parser.parse_args()
    tasks = [
        (f"{domain} {level}", *step)
        for domain in arguments.domain or DOMAINS
        for level, step in enumerate(ladder(domain, SEED)[:10], start=1)
        if level in (arguments.level or range(1, 11))
    ]
    old = old_sources([problem for _, problem, _ in tasks], arguments.commit)
    print("| task | lines | calls | ms | ratio |\n|---|---|---|---|---|")
    host = solution_host(trusted=True)
    try:
        for (name, problem, tables), before in zip(tasks, old, strict=True):
            after = solution_source(problem)
            rows = list(measured(host, problem, tables, [before, after], arguments.rounds))
            calls, times = zip(*rows, strict=True)
            lines = f"{before.count(chr(10))} -> {after.count(chr(10))}"
            print(
                f"| {name} | {lines} | {calls[0]} -> {calls[1]} | "
                f"{1000 * times[0]:.1f} -> {1000 * times[1]:.1f} | {times[1] / times[0]:.2f} |",
                flush=True,
            )
    finally:
        host.close()


def old_sources(problems: list[Problem], commit: str) -> list[str]:
    """What the compiler of ``commit`` makes of the problems."""
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        tarfile.open(fileobj=BytesIO(archive)).extractall(folder, filter="data")
        told = subprocess.run(
            [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {folder!r})\n{EMIT}"],
            input=json.dumps([problem.model_dump_json() for problem in problems]),
            capture_output=True,
            text=True,
            check=True,
        )
        texts: list[str] = json.loads(told.stdout)
        return texts


def measured(
    host: SolutionHost, problem: Problem, tables: Tables, sources: list[str], rounds: int
) -> Iterator[tuple[int, float]]:
    """Calls and least seconds of each source; runs alternate."""
    times: dict[str, list[float]] = {source: [] for source in sources}
    calls: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        initial = database(problem, tables, Path(folder) / "initial.sqlite")
        for _ in range(rounds):
            for source in sources:
                tools = Tools(problem, initial, Path(folder) / "final.sqlite")
                done = host.run(source, tools.call, list(tools.specs.values()))
                tools.close()
                if done.fault is not None or done.answer is None:
                    raise SystemExit(f"no answer: {done.fault}")
                calls[source] = done.num_calls
                times[source].append(done.wall_s)
    for source in sources:
        yield calls[source], min(times[source])


if __name__ == "__main__":
    main()

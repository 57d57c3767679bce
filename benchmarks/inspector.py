"""How well an inspector finds planted faults: precision and recall by kind, as JSON.

    python -P benchmarks/inspector.py openai:MODEL@URL
    python -P benchmarks/inspector.py batch:MODEL@DIR --work FOLDER

Thirteen runs with faults and three without are played for real (``tests/helpers/planted_runs.py``); each is
one conversation of four trajectories. What counts as found says ``figures``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))

from planted_trajectories import PlayedRun, figures, play_all

from envgen.pipelines.inspect.inspect_run import InspectSummary, inspect_run, open_inspector
from envgen.policies.registry import PolicyConfig


def measure(runs: Sequence[PlayedRun], policy: PolicyConfig, work: Path) -> dict[str, Any]:
    """What an inspector finds in these runs; all of them are asked about at the same time."""
    inspector = open_inspector(policy, work / "findings.jsonl")

    def one(run: PlayedRun) -> InspectSummary:
        out = work / f"{run.name}.findings.jsonl"
        return inspect_run(run.folder, run.dataset, inspector, out, concurrency=1)

    with ThreadPoolExecutor(len(runs)) as pool:
        found = list(pool.map(one, runs))
    filed = [
        (run.name, line)
        for run, summary in zip(runs, found, strict=True)
        for line in summary.findings
    ]
    return {
        "inspector": inspector.name,
        "conversations": len(runs),
        "read": sum(one.read for one in found),
        "trajectories": sum(one.trajectories for one in found),
        "dropped": sum(one.dropped for one in found),
        **figures([plant for run in runs for plant in run.plants], filed),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("inspector", help="a policy")
    parser.add_argument("--option", action="append", default=[], help="NAME=JSON, of the policy")
    parser.add_argument("--work", type=Path, help="where runs, records and findings stay")
    given = parser.parse_args()
    pairs = (one.partition("=") for one in given.option)
    options = {name: json.loads(value) for name, _, value in pairs}
    with TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        runs = play_all(work / "runs")
        policy = PolicyConfig(spec=given.inspector, options=options)
        print(json.dumps(measure(runs, policy, work), indent=2))


if __name__ == "__main__":
    main()

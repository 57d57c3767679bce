"""Generate a small dataset, roll a policy out, and keep what it solves sometimes but not always.

python examples/filter_by_pass_at_k.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import envgen
from envgen.pipelines.general.generate import GenerateConfig
from envgen.policies.registry import PolicyConfig
from envgen.rollout.filter import FilterConfig
from envgen.rollout.run import RolloutConfig


def main(folder: Path) -> None:
    """Everything below ``folder``."""
    summary = envgen.generate(
        GenerateConfig(categories=("meeting_scheduling",), environments=1, max_level=2, seed=1),
        folder / "ds",
    )
    print(f"{summary.tasks} proven tasks")

    runs = folder / "runs"
    config = RolloutConfig(
        dataset=str(folder / "ds"), policy=PolicyConfig(spec="random-valid"), out=str(runs), n=50
    )
    envgen.rollout(config)
    report = envgen.pass_at_k(runs, (1, 50))
    for task in report.tasks:
        print(task.task_id, task.level, f"{task.c} of {task.n} passed")

    kept = envgen.filter(
        FilterConfig(
            dataset=str(folder / "ds"),
            rollouts=str(runs),
            out=str(folder / "kept"),
            pass_at=50,
            max_pass_at_1=0.95,
        )
    )
    print("kept:", ", ".join(kept.kept))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

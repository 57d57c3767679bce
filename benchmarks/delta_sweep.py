"""Which delta of eq. 9? GRPO at several, where engine and trainer differ and updates make rollouts stale.

    python -P benchmarks/delta_sweep.py --work FOLDER --out docs/figures/delta_sweep.json

Task, model, cold start and engine (bfloat16, index keys in fp8) are those of ``stabilisers.json``; the key
sets are kept, as by default. ``usual`` is that study's learning rate, ``hasty`` four times as much, so that
the eighth update of a batch is far from its first. 0 stands for no mask at all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from stabilisers import StudyConfig, cold_start, run, write

DELTAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 0.0)
RATES = {"usual": (1.0, (0, 1)), "hasty": (4.0, (0,))}
"""Times the study's learning rate, and seeds."""


def settings(study: StudyConfig, delta: float, rate: float) -> StudyConfig:
    """The study with another delta and learning rate."""
    on = {"off_policy_delta": delta or 1.0, "off_policy_mask": delta > 0, "keep_topk": True}
    rates = {"lr": study.optimizer.lr * rate, "indexer_lr": study.optimizer.indexer_lr * rate}
    return study.model_copy(
        update={
            "objective": study.objective.model_copy(update=on),
            "optimizer": study.optimizer.model_copy(update=rates),
        }
    )


def runs(study: StudyConfig, work: Path) -> Iterator[dict[str, Any]]:
    """All runs, rate by rate; what is there is not run again."""
    for name, (rate, seeds) in RATES.items():
        for seed in seeds:
            cold = work / "cold" / f"seed-{seed}"
            before = cold_start(study, seed, cold)
            for delta in DELTAS:
                path = work / name / f"{delta:g}" / f"seed-{seed}.json"
                if not path.exists():
                    found = run(settings(study, delta, rate), "all-on", seed, cold)
                    write(path, {"rate": name, "mask": delta, "before": before, **found})
                yield json.loads(path.read_text())


def row(some: list[dict[str, Any]]) -> dict[str, Any]:
    """The seeds of a rate and delta."""

    def mean(name: str) -> float:
        """Of all batches of all seeds."""
        return float(np.mean([b[name] for one in some for b in one["curve"] if name in b]))

    finals = [one["final"] for one in some]
    return {
        "rate": some[0]["rate"],
        "delta": some[0]["mask"] or None,
        "final": round(float(np.mean(finals)), 3),
        "finals": [round(value, 3) for value in finals],
        "greedy": round(
            float(np.mean([(one["after"] or {"greedy": 0.0})["greedy"] for one in some])), 3
        ),
        "collapsed": sum(one["collapsed_after"] is not None for one in some),
        "diverged": sum(one["diverged"] is not None for one in some),
        "masked_negatives": round(mean("masked_negatives"), 3),
        "mismatch_p95": round(mean("mismatch_p95"), 4),
        "clip_fraction": round(mean("clip_fraction"), 3),
        "entropy": round(mean("entropy"), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--out", type=Path, required=True, help="the figures, JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = Path(__file__).with_name("stabilisers.json").read_text()
    study = StudyConfig.model_validate_json(text)
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for one in runs(study, arguments.work):
        found.setdefault((one["rate"], one["mask"]), []).append(one)
        print(one["rate"], one["mask"], one["seed"], one["final"], one["diverged"], flush=True)
    rows = [row(some) for some in found.values()]
    record = {"rates": RATES, "updates": study.batches * study.update.mini_batches, "rows": rows}
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    for line in rows:
        print(json.dumps(line))


if __name__ == "__main__":
    main()

"""What Muon, and learning the deciding tokens first, gain in the dense stage of the training demo.

    python -P benchmarks/cold_start.py --demo runs/quickstart --work FOLDER [--seeds 0 1] [--out docs/figures]

The dense stage is the longest of the cold start (``pipelines/training_demo.py``): gold's answers to 6,000
tasks, from random weights, over and over. Each arm is that stage from the demo's own start, with another
optimiser or weighting; seeds order the batches. What it left plays the demo's held-out tasks greedily,
with all keys: its indexer has learnt nothing yet. What is measured already stays.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from envgen.pipelines.deciding_tokens import DecidingFirst
from envgen.pipelines.demo_records import TrainingDemoConfig
from envgen.pipelines.training_demo import dense_config, evaluation_config
from envgen.train.cold_start import train_sft
from envgen.train.config import OptimizerConfig
from envgen.train.evaluate import evaluate_model

ALL_KEYS = 512
"""More than any conversation has."""


class Arm(NamedTuple):
    """Settings of a dense stage."""

    kind: str
    lr: float
    """Of AdamW, which steps all weights, or those that Muon leaves."""
    deciding_first: bool


ARMS = {
    "muon, deciding tokens first": Arm("muon", 1.2e-3, True),
    "muon": Arm("muon", 1.2e-3, False),
    "adamw 1.2e-3": Arm("adamw", 1.2e-3, False),
    "adamw 3e-3": Arm("adamw", 3e-3, False),
    "adamw 3e-3, deciding tokens first": Arm("adamw", 3e-3, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--demo", type=Path, required=True, help="a finished training demo")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--out", type=Path, help="where cold_start_study.json goes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = [
        measured(name, seed, arguments.demo, arguments.work)
        for seed in arguments.seeds
        for name in arguments.arms
    ]
    for one in found:
        print(json.dumps(one), flush=True)
    if arguments.out is not None:
        text = json.dumps({"runs": found}, indent=1) + "\n"
        (arguments.out / "cold_start_study.json").write_text(text)


def measured(name: str, seed: int, demo: Path, work: Path) -> dict[str, Any]:
    """One arm with one seed."""
    arm, folder = ARMS[name], work / f"{name.replace(' ', '-')}-{seed}"
    record = folder / "measured.json"
    if record.exists():
        known: dict[str, Any] = json.loads(record.read_text())
        return known
    config = TrainingDemoConfig.model_validate_json((demo / "training_config.json").read_text())
    data = demo / "tasks" / "variants"
    teachers = (str(demo / "teachers" / "gold"), str(demo / "teachers" / "greedy"))
    plain = dense_config(config, data, teachers, demo)
    optimizer = plain.optimizer.model_dump() | {"kind": arm.kind, "lr": arm.lr}
    settings = plain.model_copy(
        update={"optimizer": OptimizerConfig.model_validate(optimizer), "seed": seed}
    )
    began = time.process_time()
    weighting = DecidingFirst if arm.deciding_first else None
    summary = train_sft(settings, folder, weighting=weighting)
    cpu_s = time.process_time() - began
    shape = folder / "last" / "config.json"
    shape.write_text(json.dumps(json.loads(shape.read_text()) | {"index_topk": ALL_KEYS}))
    played = evaluation_config(config, demo, data, "sft").model_copy(
        update={
            "model": str(folder / "last"),
            "out": str(folder / "played"),
            "temperatures": (0.0,),
        }
    )
    rate = evaluate_model(played).temperatures[0.0].pass_at[1]
    assert rate is not None
    found = {
        "arm": name, "seed": seed, "steps": summary.steps, "cpu_s": round(cpu_s, 1),
        "greedy": [rate.value, rate.low, rate.high],
    }  # fmt: skip
    record.write_text(json.dumps(found))
    return found


if __name__ == "__main__":
    main()

"""Does GRPO help where no bias was planted? From a cold start saturated on few demonstrations.

    python -P benchmarks/unbiased_study.py --work FOLDER [--seeds 0 1] [--demonstrations N] [--out DIR]

The cold start learns right answers only, from few demonstrations and until more epochs give nothing. Then
GRPO plays training tasks without a demonstration, and beside it the supervised training of the cold start
goes on for as many processor seconds. Both are judged on held-out databases, paired over these. From a
cold start that is unfinished, more SFT wins: that says how to spend seconds, not what rewards can teach.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
from pathlib import Path
from typing import Any

import torch

from envgen.core.canonical import pretty
from envgen.pipelines.deciding_tokens import DecidingFirst
from envgen.pipelines.demo_records import TrainingDemoConfig
from envgen.pipelines.training_demo import (
    ceiling_config,
    dense_config,
    evaluation_config,
    grpo_config,
    indexer_config,
    make_model,
    make_tasks,
    play_teachers,
    train_tasks,
)
from envgen.rollout.bootstrap import Estimate
from envgen.train.cold_start import train_sft
from envgen.train.evaluate import EvalSummary, compare_runs, evaluate_model
from envgen.train.grpo_run import train_grpo

SATURATING_EPOCHS = 20.0
"""Of the sparse stage, after its usual ones; the loss is then about 2e-4."""
GRPO_STEPS = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--demonstrations", type=int, default=1200)
    parser.add_argument("--out", type=Path, help="where unbiased_study.json goes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in arguments.seeds:
        config = TrainingDemoConfig(
            taught=arguments.demonstrations,
            dense_epochs=15,
            index_epochs=1,
            sparse_epochs=4,
            grpo_steps=GRPO_STEPS,
            processes=2,
            seed=seed,
        )
        folder = arguments.work / f"seed-{seed}"
        rows.append(row(config, folder))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.out is not None:
        record = {"demonstrations": arguments.demonstrations, "seeds": rows}
        (arguments.out / "unbiased_study.json").write_text(json.dumps(record, indent=1) + "\n")


def row(config: TrainingDemoConfig, out: Path) -> dict[str, Any]:
    """Greedy pass@1 of the cold start, after GRPO and after more SFT, with the seconds of each."""
    out.mkdir(parents=True, exist_ok=True)
    data = make_tasks(config, out, quiet)
    runs = play_teachers(config, out, data, quiet)
    make_model(config, out, data)
    train_sft(dense_config(config, data, runs, out), out / "dense", weighting=DecidingFirst)
    train_sft(indexer_config(config, data, runs, out), out / "indexer")
    train_sft(ceiling_config(config, data, runs, out), out / "short")
    sparse = ceiling_config(config, data, runs, out)
    longer = {"model": str(out / "short" / "last"), "epochs": SATURATING_EPOCHS}
    started = cpu_s()
    cold = train_sft(sparse.model_copy(update=longer), out / "sft")  # where grpo_config looks
    sft_s = cpu_s() - started
    before = evaluate_model(evaluation_config(config, out, data, "sft"))
    started = cpu_s()
    taught = set(train_tasks(config, data, "taught")[: config.taught])
    train_grpo(grpo_config(config, out, data, tuple(taught)), out / "grpo")
    grpo_s = cpu_s() - started
    after = evaluate_model(evaluation_config(config, out, data, "grpo"), against=out / "before")
    more = {"model": str(out / "sft" / "last"), "epochs": SATURATING_EPOCHS * grpo_s / sft_s}
    shutil.rmtree(out / "more", ignore_errors=True)
    train_sft(sparse.model_copy(update=more), out / "more")
    settings = evaluation_config(config, out, data, "grpo").model_copy(
        update={"model": str(out / "more" / "last"), "out": str(out / "after_more")}
    )
    instead = evaluate_model(settings, against=out / "before")
    grpo_run = evaluation_config(config, out, data, "grpo").run(0.0)
    paired = compare_runs([settings.run(0.0)], [grpo_run]).pass_at[1]
    return {
        "seed": config.seed,
        "loss": cold.loss,
        "cold start": greedy(before),
        "GRPO": greedy(after),
        "more SFT": greedy(instead),
        "GRPO lift": told(after.against[0.0].pass_at[1]),
        "more SFT lift": told(instead.against[0.0].pass_at[1]),
        "GRPO over more SFT": told(paired),
        "cpu_s": {"GRPO": round(grpo_s), "a saturating stage": round(sft_s)},
    }


def greedy(summary: EvalSummary) -> dict[str, Any] | None:
    return told(summary.temperatures[0.0].pass_at[1])


def told(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else json.loads(pretty(found))


def cpu_s() -> float:
    """Processor seconds of this process and of children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def quiet(done: int, total: int, text: str) -> None:
    """Shows no progress."""


if __name__ == "__main__":
    main()

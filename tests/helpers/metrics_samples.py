"""Metrics of training runs, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envgen.train.metrics import Metrics


def grpo_line(step: int, **changes: float) -> dict[str, float]:
    return {
        "reward/total": 0.2 + 0.01 * step,
        "reward/pass_rate": 0.2 + 0.01 * step,
        "reward/length": 0.0,
        "policy/kl": 0.001 * step,
        "policy/clip_fraction": 0.01,
        "policy/masked_negatives": 0.1,
        "policy/entropy": 0.5,
        "policy/kept_mass": 0.9,
        "policy/ref_kept_mass": 0.8,
        "policy/log_ratio_p99": 1e-4,
        "policy/log_ratio_max": 0.0,
        "rollout/model_tokens": 20.0,
        "rollout/valid_calls": 0.97,
        "time/sampling_s": 3.0,
        "time/update_s": 1.0,
        "time/assembly_s": 0.1,
        "time/model_tokens_per_s": 500.0,
        **changes,
    }


def write_run(folder: Path, lines: list[dict[str, float]], **settings: Any) -> Path:
    with Metrics(folder) as metrics:
        for step, line in enumerate(lines, 1):
            metrics.write(step, line)
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder

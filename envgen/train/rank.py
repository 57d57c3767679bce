"""``python -m envgen.train.rank``: a further process of a training run; see ``parallel``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from envgen.train.cold_start import ColdStartConfig, teach
from envgen.train.grpo_run import TrainGRPOConfig, play_and_learn
from envgen.train.parallel import Together


def main(arguments: list[str]) -> None:
    """Take part in a run.

    Args:
        arguments: kind of run, file with its config, its folder, rank, number of processes, meeting file.
    """
    kind, config_file, out, rank, size, meeting = arguments
    text = Path(config_file).read_text(encoding="utf-8")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(size)))
    if kind == "sft":
        taught = ColdStartConfig.model_validate_json(text)
        teach(taught, Path(out), Together(int(rank), int(size), meeting, taught))
    else:
        played = TrainGRPOConfig.model_validate_json(text)
        play_and_learn(played, Path(out), Together(int(rank), int(size), meeting, played))


if __name__ == "__main__":
    main(sys.argv[1:])

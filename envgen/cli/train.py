"""``envgen train``: cold start, GRPO and the indexer's stages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from envgen.cli.command import Makes, require_trainers, run_folder
from envgen.cli.console import NEXT_LINES_S, OnProgress, remark, require, talk
from envgen.cli.settings import Values
from envgen.core.errors import ConfigError
from envgen.train.config import ColdStartConfig, TrainGRPOConfig

HARDLY = 0.9
"""A loss that keeps more than this share of its first value tells that next to nothing was learnt."""
TERMINAL_S = 1.0
"""Rows of figures are at least so far apart on a terminal."""


class Trains(Makes):
    """What the commands have in common."""

    device: str
    threads: int | None = Field(default=None, ge=1)
    """Of PyTorch. None: as many as OMP_NUM_THREADS says, or one per core."""

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Set PyTorch's threads, and try folder and device before any work is done for them."""
        require_trainers()
        import torch

        out = run_folder(self.out)
        if self.threads or "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(self.threads or os.cpu_count() or 1)
        try:
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError) as error:  # PyTorch without CUDA asserts
            reason = str(error).splitlines()[0]
            what = f"device {self.device!r} is not available: {reason}"
            raise ConfigError(what, "--device cpu") from error
        return {"out": out}


class Sft(ColdStartConfig, Trains):
    """Cold-start a policy: learn what teachers did, token by token.

    Gold teaches where neither --teacher nor --rollouts is given. OUT/last is the model. The same command
    goes on where a stopped run left off.
    """

    names = {
        "--model FOLDER": "model",
        "--teacher POLICY": "teachers",
        "--rollouts RUN": "rollouts",
    }
    examples: ClassVar[tuple[str, ...]] = (
        "envgen train sft ds/ --model m/ --out runs/sft",
        "envgen train sft ds/ --model m/ --teacher hasty:0.6 --out s",
        "envgen train sft ds/ --model m/ --rollouts runs/x --passed-only -o s",
        "envgen train sft ds/ --model m/ --attention dense -o s",
    )
    verb = "envgen.train.cold_start:train_sft"

    @classmethod
    def settle(cls, given: Values) -> None:
        """Gold teaches where nobody else does; dense attention leaves the indexer for its own stage."""
        if not given.get("rollouts"):
            given.setdefault("teachers", ("gold",))
        if given.get("attention") == "dense":
            given.setdefault("optimizer", {}).setdefault("indexer", "frozen")

    def tell(self, summary: Any) -> None:
        """Warn where next to nothing was learnt."""
        super().tell(summary)
        require(summary.steps, None, "steps: nothing was learnt", "--epochs is above 0")
        if summary.loss > HARDLY * summary.first_loss > 0:
            what = "indexer's loss" if self.trunk == "frozen" else "loss"
            remark(
                f"warning: {summary.steps} steps on {summary.rows} rows took the {what} from "
                f"{summary.first_loss:.2f} to {summary.loss:.2f}: hardly anything was learnt; more "
                "rows (--episodes, variants) or --epochs"
            )


class IndexerCommand(Sft):
    """Teach the lightning indexer where attention looks.

    Learns from what teachers did, like the cold start. OUT/last is the model.
    """

    names = {**Sft.names, "--lr": "optimizer.indexer_lr"}
    examples = (
        "envgen train indexer ds/ --stage warmup --model m/ --out w",
        "envgen train indexer ds/ --stage sparse --model w/last --out s",
    )

    stage: Literal["warmup", "sparse"]
    """warmup: eq. 3, attention dense, trunk frozen. sparse: eq. 4, the trunk learns too."""

    @classmethod
    def settle(cls, given: Values) -> None:
        """The stage says what attention and trunk do."""
        warmup = given.get("stage") == "warmup"
        given.pop("attention", None)
        super().settle(given)
        given["attention"], given["trunk"] = ("dense", "frozen") if warmup else ("sparse", "learns")


class Grpo(TrainGRPOConfig, Trains):
    """Train a policy in the environments of a dataset, by GRPO after DeepSeek-V3.2.

    OUT/last is the model, OUT/metrics.jsonl the curves (OUT/tensorboard, too), OUT/report.html shows
    them. The same command goes on where a stopped run left off, with the same steps to the bit.
    """

    names = {
        "--model FOLDER": "model",
        "--groups": "sampling.groups",
        "--judge POLICY": "judge.policy.spec",
        "--group-size": "sampling.group_size",
    }
    examples = (
        "envgen train grpo ds/ --model runs/sft/last --out runs/grpo",
        "envgen train grpo ds/ --model m/ --groups 32 --steps 200 --out g",
        "envgen train grpo ds/ --model m/ -c objective.kl_coef=0.01 -o g",
        "envgen train grpo ds/ --model m/ -c tasks.kind=band -c eval.every=10 -o g",
        "envgen train grpo qa/ --model m/ --judge openai:MODEL@URL -o g",
        "envgen train grpo --settings | less",
    )
    verb = "envgen.train.grpo_run:train_grpo"

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Rows of figures are shown as the run goes on."""
        interval = TERMINAL_S if talk.is_terminal else NEXT_LINES_S
        return {**super().inputs(update), "watch": step_rows(self.steps, interval)}

    def tell(self, summary: Any) -> None:
        """Write the report."""
        from envgen.cli.evaluate import Report

        super().tell(summary)
        Report(run_folder=self.out).execute()


COLUMNS = {
    "reward": "reward/total",
    "passed": "reward/pass_rate",
    "KL": "policy/kl",
    "clipped": "policy/clip_fraction",
    "masked": "policy/masked_negatives",
    "entropy": "policy/entropy",
    "kept": "policy/kept_mass",
    "tokens": "rollout/model_tokens",
    "calls ok": "rollout/valid_calls",
    "tokens/s": "time/model_tokens_per_s",
}
"""Heads and metrics of the figures that are shown as a run goes on."""


def step_rows(
    steps: int, interval: float, clock: Callable[[], float] = time.monotonic
) -> Callable[[int, Mapping[str, float | None]], None]:
    """Show a run's figures as rows: the first step, the last, and some between, ``interval`` s apart."""
    last: float | None = None

    def show(step: int, figures: Mapping[str, float | None]) -> None:
        nonlocal last
        if last is None:
            remark("  step " + " ".join(f"{head:>8}" for head in COLUMNS))
        elif clock() - last < interval and step < steps:
            return
        last = clock()
        values = [figures.get(metric) for metric in COLUMNS.values()]
        cells = ("-" if value is None else f"{value:.4g}" for value in values)
        remark(f"{step:>6} " + " ".join(f"{cell:>8}" for cell in cells))

    return show

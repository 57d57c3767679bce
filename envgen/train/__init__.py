"""Train policies: a cold start from teachers, GRPO in the environments, and what they can do afterwards.

Needs PyTorch: ``pip install 'envgen-gym[train]'``. ``examples/grpo_in_one_page.py`` is the same on one page.
What it is told is in ``config``, which needs no PyTorch. In the order of a step of GRPO:

* ``tasks``, ``rollouts``, ``lockstep``: draw tasks, play groups of episodes, with the same bits every time;
* ``rewards``, ``language``, ``well_formed``: what a rollout is worth;
* ``rows``, ``packing``, ``batch``, ``scoring``: its tokens as rows, shared beginnings once, their scores;
* ``grpo``: the paper's equations: advantages, mask, loss;
* ``update``, ``optimize``, ``muon``: gradients and steps, each part replaceable (``update.Parts``);
* ``grpo_run``, with ``figures``, ``metrics``, ``checkpoints``, ``held_out``: the loop, and what it keeps.

Beside it the cold start (``teachers``, ``sft``, ``cold_start``), several processes (``parallel``,
``sharding``) and evaluation (``evaluate``, ``estimates``, ``canary_report``).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from envgen.core.errors import ConfigError, MissingExtraError, install_hint

if TYPE_CHECKING:
    from envgen.train.cold_start import ColdStartSummary
    from envgen.train.config import ColdStartConfig, TrainGRPOConfig
    from envgen.train.figures import TrainGRPOSummary

__all__ = ["train"]


def train(
    config: ColdStartConfig | TrainGRPOConfig, out: str | Path, **options: Any
) -> ColdStartSummary | TrainGRPOSummary:
    """Train a policy: a ``ColdStartConfig`` learns what teachers did, a ``TrainGRPOConfig`` what is rewarded.

    The same call goes on where a stopped run left off.

    Args:
        config: from ``envgen.train.config``.
        out: the run's folder; ``out/last`` is the model, ``out/metrics.jsonl`` holds a line for each step.
        options: see ``train_sft`` and ``train_grpo``: ``progress``, a run's replaceable parts.

    Returns:
        Counts, seconds and the last figures.

    Raises:
        ConfigError: if the config is of another kind, or can't work: no tasks, a tokenizer that does not fit.
        MissingExtraError: without PyTorch.
        ResumeError: if ``out`` holds a run with another config.
        RewardError: if a reward of GRPO is no number, or never differs.
        DivergedError: if a loss or gradient is not finite; ``out/diverged.pt`` holds the batch.
    """
    try:
        from envgen.train.cold_start import train_sft
        from envgen.train.config import ColdStartConfig, TrainGRPOConfig
        from envgen.train.grpo_run import train_grpo
    except ImportError as error:
        raise MissingExtraError(
            f"training needs {error.name}, which is not installed", install_hint("train")
        ) from error
    if isinstance(config, ColdStartConfig):
        return train_sft(config, out, **options)
    if isinstance(config, TrainGRPOConfig):
        return train_grpo(config, out, **options)
    raise ConfigError(
        f"nothing is trained by a {type(config).__name__!r}",
        "give a ColdStartConfig or a TrainGRPOConfig",
    )


class _Room(ModuleType):
    """This room as ``envgen.train``: importing binds that name to the module, and it is a verb, too."""

    def __call__(
        self, config: ColdStartConfig | TrainGRPOConfig, out: str | Path, **options: Any
    ) -> ColdStartSummary | TrainGRPOSummary:
        """See ``train``."""
        return train(config, out, **options)


sys.modules[__name__].__class__ = _Room

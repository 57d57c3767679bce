"""Train policies: a cold start from teachers' rollouts, GRPO in the environments, and evaluation.

Needs PyTorch: ``pip install 'envgen-gym[train]'``. ``examples/grpo_in_one_page.py`` is the same on one page.
The settings are in ``config``, which needs no PyTorch. The modules, in the order of a step of GRPO:

* ``tasks``, ``rollouts``, ``lockstep``: draw tasks and play groups of episodes, bit for bit reproducibly;
* ``rewards``, ``language``, ``well_formed``: the reward of a rollout;
* ``rows``, ``packing``, ``batch``, ``scoring``: turn rollouts into rows of tokens, run shared prefixes once,
  and score the tokens;
* ``grpo``: the paper's equations: advantages, mask, loss;
* ``update``, ``optimize``, ``muon``: gradients and optimiser steps, each part replaceable (``update.Parts``);
* ``grpo_run``, with ``figures``, ``metrics``, ``checkpoints``, ``held_out``: the training loop and its files.

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
    """Train a policy: imitate teachers with a ``ColdStartConfig``, run GRPO with a ``TrainGRPOConfig``.

    The same call resumes a stopped run.

    Args:
        config: from ``envgen.train.config``.
        out: the run's folder; ``out/last`` is the model, ``out/metrics.jsonl`` holds a line for each step.
        options: keyword arguments of ``train_sft`` or ``train_grpo``, such as ``progress`` and ``parts``.

    Returns:
        Counts, seconds and the last figures.

    Raises:
        ConfigError: if the config has another type, or can't work: no tasks, or a tokenizer with more tokens
            than the model.
        MissingExtraError: if PyTorch is not installed.
        ResumeError: if ``out`` holds a run with another config.
        RewardError: if a GRPO reward is not finite, or rewards never differ within a group.
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
        f"train() can't use a config of type {type(config).__name__!r}",
        "give a ColdStartConfig or a TrainGRPOConfig",
    )


class _Room(ModuleType):
    """Make the module callable: ``envgen.train(config, out)`` is ``train``, and the name stays a module."""

    def __call__(
        self, config: ColdStartConfig | TrainGRPOConfig, out: str | Path, **options: Any
    ) -> ColdStartSummary | TrainGRPOSummary:
        """See ``train``."""
        return train(config, out, **options)


sys.modules[__name__].__class__ = _Room

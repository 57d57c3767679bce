"""Checkpoints of a training run: model folders that anything can load, plus the trainer's state.

    out/step-000200/  config.json  model.safetensors  tokenizer.json  encoding.json  trainer.pt
    out/last          -> step-000200
    out/settings.json the run's config

A checkpoint is written under a temporary name and renamed, so it is always complete; ``last`` moves after it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from uuid import uuid4

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import ConfigError, ResumeError
from envgen.core.limits import Count, Label, Sha256, Text
from envgen.model.checkpoint import read_config
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import Encoding, load_encoding

TRAINER_FILE = "trainer.pt"
COMPANIONS = ("tokenizer.json", "encoding.json")
LAST = "last"
SETTINGS_FILE = "settings.json"
"""The run's config, for people and reports."""


class TrainerState(BaseModel):
    """The contents of ``trainer.pt`` beside the weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: Count
    config_hash: Sha256
    optimizer: list[dict[Label, Any]]
    updates: Count = 0
    tasks: Text = "{}"
    """The task sampler's state as JSON; of GRPO only."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        out: the run's folder.
        config: the resolved config; a run with another one can't be resumed.
        source: model folder whose tokenizer and encoding are copied into each checkpoint.
        keep: how many are kept.
    """

    def __init__(
        self, out: Path, config: Mapping[str, Any], source: Path, *, keep: int = 2
    ) -> None:
        self._out, self._source, self._keep = out, source, keep
        self._config = dict(config)
        self._config_hash = content_hash(self._config)

    @property
    def last(self) -> Path | None:
        """The newest one, or None."""
        link = self._out / LAST
        return link.resolve() if link.exists() else None

    def save(self, step: int, model: DSAForCausalLM, trainer: Mapping[str, Any]) -> Path:
        """Write a checkpoint; remove the oldest beyond ``keep``."""
        folder = self._out / f"step-{step:06d}"
        partial = self._out / f".{folder.name}.{uuid4().hex}"
        partial.mkdir(parents=True)
        (self._out / SETTINGS_FILE).write_text(pretty(self._config), encoding="utf-8")
        model.save_pretrained(partial)
        for name in COMPANIONS:
            if (self._source / name).exists():
                shutil.copyfile(self._source / name, partial / name)
        torch.save(
            {"step": step, "config_hash": self._config_hash, **trainer}, partial / TRAINER_FILE
        )
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
        link = self._out / f".{LAST}.{uuid4().hex}"
        link.symlink_to(folder.name)
        os.replace(link, self._out / LAST)
        for old in sorted(self._out.glob("step-*"))[: -self._keep]:
            shutil.rmtree(old)
        return folder

    def resume(self) -> tuple[Path, TrainerState] | None:
        """Load the newest checkpoint: its folder and the trainer's state; None in a new run.

        Raises:
            ResumeError: if it was made with another config, or can't be read.
        """
        folder = self.last
        if folder is None:
            return None
        try:
            saved = torch.load(folder / TRAINER_FILE, weights_only=True)
            state = TrainerState.model_validate(saved)
        except (OSError, RuntimeError, EOFError, UnpicklingError, ValidationError) as error:
            raise ResumeError(
                f"can't read {str(folder / TRAINER_FILE)!r}: {error}", "remove the checkpoint"
            ) from error
        if state.config_hash != self._config_hash:
            raise ResumeError(
                f"{str(self._out)!r} holds a run with another config",
                "choose another --out, or give the same settings",
            )
        return folder, state


def fitting_encoding(folder: str | Path) -> Encoding:
    """The encoding of a model folder.

    Raises:
        ConfigError: if its tokenizer has more tokens than its model.
        CheckpointError: if there is no model.
    """
    encoding, config = load_encoding(folder), read_config(folder)
    if encoding.tokenizer.vocab_size > config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {encoding.tokenizer.vocab_size} tokens, the model {config.vocab_size}",
            "take both from one model folder; make one with `envgen model init`",
        )
    return encoding

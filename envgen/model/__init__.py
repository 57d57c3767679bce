"""The sparse-attention language model: architecture, cache, engine, checkpoints, tokenizer.

Needs PyTorch: ``pip install 'envgen-gym[train]'``. Names load their module on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envgen.model.config import PRESETS, DSAConfig, preset
    from envgen.model.modeling import DSAForCausalLM, Output, Replay

__all__ = ["DSAConfig", "DSAForCausalLM", "Output", "PRESETS", "Replay", "preset"]

_HOME = {
    "DSAConfig": "config",
    "DSAForCausalLM": "modeling",
    "Output": "modeling",
    "PRESETS": "config",
    "Replay": "modeling",
    "preset": "config",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)

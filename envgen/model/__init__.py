"""The sparse-attention language model: architecture, cache, engine, checkpoints, tokenizer.

Needs PyTorch: ``pip install 'envgen-gym[train]'``. Names load their module on first use.

- The architecture: ``config.py``, ``modeling.py``, ``layer.py``, ``attention.py``,
  ``indexer.py`` (the lightning indexer and its top-k), ``sparse.py``, ``moe.py``, ``rope.py``, ``norm.py``.
- The engine: ``engine.py``, ``scheduler.py`` (who runs, who is preempted), ``runner.py`` (one step),
  ``paged.py`` and ``prefix.py`` (cache pages, and the records beside them), ``sampling.py``, ``decode*.py``.
- What a reply keeps: ``batch.py``, ``requests.py``.
- Files: ``checkpoint.py``, ``weight_files.py``, ``quantize.py``, ``tokenizer.py``; costs: ``cost.py``.
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

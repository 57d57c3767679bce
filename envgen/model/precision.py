"""Where a computation must not lose bits: routing, key selection, softmaxes and their gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """In float32, or in float64 if it is in that already."""
    return x if x.dtype is torch.float64 else x.float()


def exactly(device: torch.device) -> AbstractContextManager[object]:
    """Within it, autocast does not narrow what is computed on ``device``."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()

"""The engine's weights where they are not the trainer's own: a copy in another precision, or of shards."""

from __future__ import annotations

import torch

from envgen.model.modeling import DSAForCausalLM
from envgen.train.sharding import is_sharded, state_of, whole


def engine_model(
    model: DSAForCausalLM, dtype: torch.dtype, index_fp8: bool | None = None
) -> DSAForCausalLM:
    """What the engine runs: the trainer's own model, or a copy that ``publish`` fills.

    Args:
        model: the trainer's, in float32.
        dtype: of the engine.
        index_fp8: round index queries and keys to e4m3; None: as the model says.
    """
    fp8 = model.config.index_fp8 if index_fp8 is None else index_fp8
    if dtype is torch.float32 and fp8 == model.config.index_fp8 and not is_sharded(model):
        return model
    own = DSAForCausalLM(model.config.model_copy(update={"index_fp8": fp8})).to(model.device)
    return own.cast(dtype).eval().requires_grad_(False)


@torch.no_grad()
def publish(model: DSAForCausalLM, played: DSAForCausalLM) -> None:
    """Bring the trainer's weights to ``played``, the router's correction biases (buffers) with them.

    Where weights are in shards, all processes must call it.
    """
    if played is model:
        return
    state = state_of(model)
    for name, own in played.state_dict().items():
        own.copy_(whole(state[name]))

"""A model in shards: torch's ``fully_shard`` (FSDP2; after ZeRO stage 3, Rajbhandari et al. 2020).

Each process keeps a shard of every weight, its gradient and its optimiser state. Layers are gathered while
they run, by all processes at once, so each must run as many passes as the others; ``stand_in`` is a pass for
a process that has no rows left. Files hold whole tensors.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from envgen.model.attention import IndexLoss
from envgen.model.modeling import DSAForCausalLM


def shard(model: DSAForCausalLM) -> None:
    """Shard the model's weights layer by layer; all processes must call it."""
    mesh = init_device_mesh(model.device.type, (dist.get_world_size(),))
    for layer in model.layers():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def is_sharded(model: nn.Module) -> bool:
    """Whether ``shard`` was called."""
    return isinstance(model, FSDPModule)


def whole(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor, or return a plain one; all processes must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, weight: Tensor) -> Tensor:
    """Return this process's shard of a whole tensor, sharded as ``weight`` is."""
    if not isinstance(weight, DTensor):
        return tensor
    return distribute_tensor(tensor.to(weight.device), weight.device_mesh, weight.placements)


def state_of(model: DSAForCausalLM) -> dict[str, Tensor]:
    """Return the model's state; pass its tensors to ``whole`` in order."""
    if isinstance(model, FSDPModule):
        model.reshard()  # a pass without gradients leaves the weights it gathered last in place
    state: dict[str, Tensor] = model.state_dict()
    return state


@torch.no_grad()
def whole_model(model: DSAForCausalLM) -> DSAForCausalLM:
    """Return the model itself, or a whole CPU copy of a sharded one; all processes must call it."""
    if not is_sharded(model):
        return model
    with torch.device("meta"):
        copy = type(model)(model.config)
    copy = copy.to(model.dtype).materialize("cpu")
    state = state_of(model)
    for name, own in copy.state_dict().items():
        own.copy_(whole(state[name]))
    return copy


def whole_optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return ``state_dict`` with whole tensors; all processes must call it."""
    saved = optimizer.state_dict()
    state = {
        i: {k: whole(v) if isinstance(v, Tensor) else v for k, v in kept.items()}
        for i, kept in saved["state"].items()
    }
    return {**saved, "state": state}


def load_optimizer_state(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load what ``whole_optimizer_state`` returned; all processes must call it."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state = {
        i: {
            k: like(v, weights[i]) if isinstance(v, Tensor) and v.shape == weights[i].shape else v
            for k, v in kept.items()
        }
        for i, kept in saved["state"].items()
    }
    optimizer.load_state_dict({**saved, "state": state})


def stand_in(
    model: DSAForCausalLM, index_loss: IndexLoss | None = None, *, dense: bool = False
) -> None:
    """Run a pass whose gradients are zero (backward only if gradients are enabled); expert loads stay."""
    loads = [gate.load.clone() for gate in model.gates()]
    output = model(
        torch.zeros((1, 2), dtype=torch.int64, device=model.device),
        dense=dense,
        index_loss=index_loss,
    )
    if torch.is_grad_enabled():
        total = 0.0 * output.logits.sum()
        if output.index_loss is not None:
            total = total + 0.0 * output.index_loss
        torch.autograd.backward(total)
    for gate, load in zip(model.gates(), loads, strict=True):
        gate.load.copy_(load)

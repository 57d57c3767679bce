"""One layer of the transformer, and what it is built of: attention, indexer, MLP.

Shapes: B batch, T tokens, D width, A experts per token, K kept keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from envgen.model.attention import Ask, Attended, LatentAttention
from envgen.model.config import DSAConfig
from envgen.model.indexer import Indexer
from envgen.model.moe import MLP, MoE
from envgen.model.norm import RMSNorm
from envgen.model.rope import Angles
from envgen.model.span import Span


class Pass(NamedTuple):
    """The inputs that all layers of a forward pass share."""

    angles: Angles
    span: Span
    ask: Ask


class Given(NamedTuple):
    """The choices that one layer must repeat."""

    kept_BTK: Tensor | None = None
    routing_BTA: Tensor | None = None


class LayerOutput(NamedTuple):
    """The output of one layer."""

    x_BTD: Tensor
    attended: Attended
    experts_BTA: Tensor | None
    """The chosen experts; None without a mixture."""


def mlp_block(config: DSAConfig, layer: int) -> nn.Module:
    """A dense MLP in the first layers, a mixture of experts behind them."""
    if layer >= config.first_k_dense_replace:
        return MoE(config)
    return MLP(config.hidden_size, config.intermediate_size)


class Blocks(NamedTuple):
    """What layers are built of; each makes a module from the config, and the layer's number.

    ::

        class Mine(DSAForCausalLM):
            blocks = Blocks(mlp=lambda config, layer: MyMLP(config))
    """

    attention: Callable[[DSAConfig, int], LatentAttention] = LatentAttention
    """A subclass, with another ``forward``: it is given normed activations, and gives ``Attended``."""
    indexer: Callable[[DSAConfig], Indexer] = Indexer
    """A subclass, with other ``queries`` or ``keys``; becomes the attention's ``indexer``."""
    mlp: Callable[[DSAConfig, int], nn.Module] = mlp_block
    """Maps [B, T, D] to the same shape. A mixture whose routes are recorded and replayed: a ``MoE``."""


class DecoderLayer(nn.Module):
    """Attention, then a dense MLP or a mixture of experts, each behind a norm."""

    def __init__(self, config: DSAConfig, index: int, blocks: Blocks | None = None) -> None:
        super().__init__()
        blocks = blocks or Blocks()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = blocks.attention(config, index)
        if blocks.indexer is not Indexer:
            self.self_attn.indexer = blocks.indexer(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp: nn.Module = blocks.mlp(config, index)

    @property
    def fusible(self) -> bool:
        """Whether the blocks are those that fused decoding knows."""
        attention = self.self_attn
        own = type(attention) is LatentAttention and type(attention.indexer) is Indexer
        return own and type(self.mlp) in (MLP, MoE)

    def forward(self, x_BTD: Tensor, common: Pass, given: Given) -> LayerOutput:
        """The residual stream with attention and MLP added."""
        attended: Attended = self.self_attn(self.input_layernorm(x_BTD), *common, given.kept_BTK)
        x_BTD = x_BTD + attended.out_BTD
        normed = self.post_attention_layernorm(x_BTD)
        if not isinstance(self.mlp, MoE):
            return LayerOutput(x_BTD + self.mlp(normed), attended, None)
        y_BTD, experts_BTA = self.mlp(normed, given.routing_BTA)
        return LayerOutput(x_BTD + y_BTD, attended, experts_BTA)

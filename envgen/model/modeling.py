"""DSAForCausalLM: DeepSeek-V3.2's transformer at any size.

    from envgen.model.config import preset
    from envgen.model.modeling import DSAForCausalLM

    model = DSAForCausalLM(preset("tiny"))
    logits = model(input_ids).logits

Everything about a token that training replays can be asked for and given back: the expert routing of
every mixture layer and the key sets of every layer. A subclass that names other ``Blocks`` has another
attention, indexer or MLP. Torch's own hooks see every forward pass; an engine decodes small models by fused
copies of the weights, which have none, unless it is told ``EngineConfig(fused=False)``.

Shapes: B batch, T new tokens, S slots, D width, V vocabulary, L layers, X mixture layers,
A experts per token, K kept keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path as FilePath
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from envgen.model.attention import Ask, IndexLoss, Path
from envgen.model.checkpoint import load_model, save_model
from envgen.model.config import DSAConfig
from envgen.model.layer import Blocks, DecoderLayer, Given, LayerOutput, Pass
from envgen.model.moe import Gate, MoE
from envgen.model.norm import RMSNorm
from envgen.model.paged import BatchCache, CacheView
from envgen.model.rope import Angles, RopeTable
from envgen.model.span import Span

KEPT_FLOAT32 = (".e_score_correction_bias", ".indexer.weights_proj.weight")
"""Ends of the names of tensors that are float32 in a model of any dtype."""


def keeps_float32(name: str) -> bool:
    """Whether the tensor of this name is float32 whatever the model's dtype."""
    return name.endswith(KEPT_FLOAT32)


class Replay(NamedTuple):
    """Choices of an earlier run that the model shall repeat."""

    routing_BTXA: Tensor | None = None
    """Experts of the mixture layers; a token whose first entry is ``moe.NOT_ROUTED`` chooses live."""
    topk: Sequence[Tensor] | None = None
    """Per layer int32 [B, T, K]; see ``attention.LatentAttention.forward``."""


@dataclass(frozen=True)
class Output:
    """The output of a forward pass."""

    logits: Tensor
    """[B, T, V], or fewer tokens by ``keep``; in the model's dtype."""
    routing_BTXA: Tensor | None = None
    """int64; None without mixture layers."""
    topk: tuple[Tensor, ...] | None = None
    """Per layer int32 [B, T, K]; only if asked for."""
    index_loss: Tensor | None = None
    """Sum over layers of eq. 3 or eq. 4, each a mean over valid tokens; only if asked for."""


class Trunk(nn.Module):
    """Embedding, layers and the last norm: ``model.*`` in Hugging Face's names."""

    def __init__(self, config: DSAConfig, blocks: Blocks) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            DecoderLayer(config, i, blocks) for i in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class DSAForCausalLM(nn.Module):
    """A causal language model with DeepSeek sparse attention.

    Attributes:
        config: the architecture.
        checkpoint_layers: recompute each layer in the backward pass: less memory, a third more time.
        blocks: what layers are built of; of the class.
    """

    blocks: ClassVar[Blocks] = Blocks()

    def __init__(self, config: DSAConfig) -> None:
        super().__init__()
        self.config = config
        self.checkpoint_layers = False
        self.model = Trunk(config, self.blocks)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.tie_weights()
        self._rope = RopeTable(config.rope, config.qk_rope_head_dim)
        if self.lm_head.weight.device.type != "meta":
            self.reset_parameters()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return self.lm_head.weight.dtype

    @classmethod
    def from_pretrained(
        cls,
        folder: str | PathLike[str],
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
    ) -> Self:
        """The model of a folder in Hugging Face's layout, in evaluation mode.

        Reads tensor by tensor into place: there are never two copies of the weights.

        Args:
            folder: holds ``config.json`` and ``model.safetensors``, or shards and their index; fp32, bf16,
                fp16, or e4m3 with block scales, which is made wide.
            dtype: of the weights; by default the one of the folder. What ``cast`` keeps in float32 stays.
            device: where to put them.

        Raises:
            CheckpointError: if a file is missing, can't be read or does not fit the others.
        """
        return load_model(cls, FilePath(folder), dtype=dtype, device=device)

    def save_pretrained(
        self, folder: str | PathLike[str], *, max_shard_bytes: int = 5 * 10**9
    ) -> None:
        """Write ``config.json`` and the weights in Hugging Face's layout, in the dtypes they have.

        Cut short while writing, the weights that were there before are whole.

        Args:
            folder: is made if need be; other files in it stay.
            max_shard_bytes: weights above this are split; a larger tensor gets a file of its own.

        Raises:
            CheckpointError: if the disk does not take it.
        """
        save_model(self, FilePath(folder), max_shard_bytes=max_shard_bytes)

    def cast(self, dtype: torch.dtype) -> Self:
        """Convert the weights, except what decides between near scores: that stays float32.

        These are the experts' correction biases and the indexer's head weights, as in Hugging Face's
        files; ``to(dtype)`` rounds the latter.
        """
        for name, weight in self.named_parameters():
            weight.data = weight.data.to(torch.float32 if keeps_float32(name) else dtype)
        return self

    def materialize(self, device: torch.device | str) -> Self:
        """Give a model that was made on the meta device memory; what is in it is undefined."""
        self.to_empty(device=device)
        self.tie_weights()
        for gate in self.gates():
            gate.load.zero_()
        return self

    def tie_weights(self) -> None:
        """Make the head the embedding, if the config says so."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @torch.no_grad()
    def reset_parameters(self, seed: int = 0) -> None:
        """Draw all weights anew: normal with ``initializer_range``; norms 1, biases 0."""
        generator = torch.Generator("cpu").manual_seed(seed)
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
            elif weight.dim() == 1:
                weight.fill_(1.0)
            else:
                drawn = torch.empty(weight.shape, device="cpu").normal_(
                    0.0, self.config.initializer_range, generator=generator
                )
                weight.copy_(drawn)
        for gate in self.gates():
            gate.e_score_correction_bias.zero_()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        until: Tensor | None = None,
        cache: BatchCache | None = None,
        view: CacheView | None = None,
        slots_BT: Tensor | None = None,
        replay: Replay | None = None,
        path: Path = "auto",
        dense: bool = False,
        index_loss: IndexLoss | None = None,
        capture_topk: bool = False,
        keep: Tensor | slice | tuple[Tensor, Tensor] | None = None,
    ) -> Output:
        """Logits of the next token after each of ``input_ids``.

        Args:
            input_ids: int64 [B, T].
            attention_mask: [B, S], 0 or False where a slot is padding (on either side).
            position_ids: int64 [B, T], for the rotary embedding; by default the slots, padding counted.
            until: int64 [B, T], where sequences that begin alike lie in one row, each common part once and
                what continues it behind it: the place at which that ends. A token sees what it continues.
                Needs ``position_ids``, which count along each sequence.
            cache: continue these sequences; the new tokens are added to it. It keeps no gradients.
            view: the same for an engine that keeps its own pages; needs ``slots_BT``.
            slots_BT: place of each token in its sequence.
            replay: choices to repeat.
            path: how to attend; see ``attention``.
            dense: leave no key out.
            index_loss: also compute what trains the indexer, eq. 3 (``dense``) or eq. 4 (``sparse``).
            capture_topk: return the key sets.
            keep: positions along T whose logits are wanted, one axis; all by default. Or pairs of rows and
                positions, [N] each: then logits are [N, V].

        Raises:
            ValueError: if shapes don't fit together, or a cache is to be trained through.
            CacheFullError: if the cache has no room for the new tokens.
        """
        self._check(input_ids, position_ids, until, (cache or view) is not None, replay, keep)
        span = self._span(input_ids, attention_mask, cache, view, slots_BT)
        span = span._replace(until_BS=until)
        angles = self.angles(span.slots_BT if position_ids is None else position_ids)
        common = Pass(angles, span, Ask(path, dense, index_loss, capture_topk))
        x_BTD = self.model.embed_tokens(input_ids)
        kept, losses, routing = [], [], []
        for layer, given in zip(self.layers(), self._given(replay), strict=True):
            x_BTD, attended, experts_BTA = self._run(layer, x_BTD, common, given)
            if attended.kept_BTK is not None:
                kept.append(attended.kept_BTK)
            if attended.index_loss is not None:
                losses.append(attended.index_loss)
            if experts_BTA is not None:
                routing.append(experts_BTA)
        normed = self.model.norm(x_BTD)
        if keep is None:
            wanted = normed
        else:
            wanted = normed[keep] if isinstance(keep, tuple) else normed[:, keep]
        if self.training and torch.is_grad_enabled():
            # Not inside the layers, which may run again in the backward pass.
            for gate, experts_BTA in zip(self.gates(), routing, strict=True):
                gate.count(_of_valid(experts_BTA, span))
        return Output(
            logits=self.lm_head(wanted),
            routing_BTXA=torch.stack(routing, 2) if routing else None,
            topk=tuple(kept) if capture_topk else None,
            index_loss=torch.stack(losses).sum() if losses else None,
        )

    def _run(self, layer: DecoderLayer, x_BTD: Tensor, common: Pass, given: Given) -> LayerOutput:
        if self.checkpoint_layers and torch.is_grad_enabled():
            out: LayerOutput = checkpoint(layer, x_BTD, common, given, use_reentrant=False)
            return out
        out = layer(x_BTD, common, given)
        return out

    def _given(self, replay: Replay | None) -> Iterator[Given]:
        """What each layer shall repeat; routing is recorded of mixtures only."""
        mixture = 0
        for i, layer in enumerate(self.layers()):
            kept = replay.topk[i] if replay and replay.topk is not None else None
            routing = None
            if isinstance(layer.mlp, MoE):
                if replay and replay.routing_BTXA is not None:
                    routing = replay.routing_BTXA[:, :, mixture]
                mixture += 1
            yield Given(kept, routing)

    def _check(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None,
        until: Tensor | None,
        cached: bool,
        replay: Replay | None,
        keep: Tensor | slice | tuple[Tensor, Tensor] | None,
    ) -> None:
        """Refuse what does not fit together, before a cache is touched."""
        if isinstance(keep, Tensor) and keep.dim() != 1:
            raise ValueError(f"keep must have one axis, the positions along T, not {keep.dim()}")
        if cached and self.training and torch.is_grad_enabled():
            raise ValueError("a cache keeps no gradients; train without, or use torch.no_grad()")
        if replay is not None:
            self._check_replay(replay, input_ids)
        if until is not None and (position_ids is None or cached):
            raise ValueError("until needs position_ids, and no cache")

    def _span(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        cache: BatchCache | None,
        view: CacheView | None,
        slots_BT: Tensor | None,
    ) -> Span:
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids must be [batch, tokens], not {tuple(input_ids.shape)}")
        batch, tokens = input_ids.shape
        if (view is None) != (slots_BT is None) or (cache is not None and view is not None):
            raise ValueError("give a view with slots_BT, or a cache, or none of them")
        if cache is not None and cache.batch != batch:
            raise ValueError(f"the cache is for {cache.batch} sequences, input_ids has {batch}")
        past = cache.length if cache is not None else 0
        num_slots = past + tokens if view is None else view.place_BS.shape[1]
        if attention_mask is not None and attention_mask.shape != (batch, num_slots):
            raise ValueError(
                f"attention_mask must be {(batch, num_slots)}, not {tuple(attention_mask.shape)}"
            )
        if cache is not None:  # only now: a call that fails leaves the cache as it was
            view = cache.grow(tokens)
        if slots_BT is None:
            slots = torch.arange(past, past + tokens, device=input_ids.device)
            slots_BT = slots.expand(batch, -1)
        if attention_mask is None:
            return Span(slots_BT, num_slots, None, view)
        valid = attention_mask.bool()
        return Span(slots_BT, num_slots, None if bool(valid.all()) else valid, view)

    def _check_replay(self, replay: Replay, input_ids: Tensor) -> None:
        c = self.config
        if replay.routing_BTXA is not None:
            wanted = (*input_ids.shape, len(c.moe_layers), c.num_experts_per_tok)
            if replay.routing_BTXA.shape != wanted:
                raise ValueError(
                    f"replayed routing must be {wanted}, not {tuple(replay.routing_BTXA.shape)}"
                )
        if replay.topk is None:
            return
        if len(replay.topk) != c.num_hidden_layers:
            raise ValueError(
                f"replayed key sets must be of {c.num_hidden_layers} layers, not {len(replay.topk)}"
            )
        for given in replay.topk:
            if given.dim() != 3 or given.shape[:2] != input_ids.shape or not given.shape[2]:
                raise ValueError(
                    f"replayed key sets must be {(*input_ids.shape, 'K')}, not {tuple(given.shape)}"
                )

    def angles(self, positions_BT: Tensor) -> Angles:
        """Rotary angles at int64 positions, in the dtype of the weights."""
        largest = int(positions_BT.max()) if positions_BT.numel() else 0
        return self._rope.at(positions_BT, largest, self.dtype)

    def new_cache(self, batch: int, max_tokens: int) -> BatchCache:
        """An empty cache for ``batch`` sequences of at most ``max_tokens`` tokens."""
        return BatchCache(self.config, batch, max_tokens, self.dtype, self.device)

    def layers(self) -> list[DecoderLayer]:
        """The layers in order."""
        return [layer for layer in self.model.layers if isinstance(layer, DecoderLayer)]

    def gates(self) -> list[Gate]:
        """The gates of the mixture layers."""
        return [layer.mlp.gate for layer in self.layers() if isinstance(layer.mlp, MoE)]

    def update_router_bias(self, rate: float = 1e-3) -> None:
        """One step of loss-free load balancing on what was routed in training since the last one."""
        for gate in self.gates():
            gate.update_bias(rate)

    def indexer_parameters(self) -> list[nn.Parameter]:
        """What ``index_loss`` trains."""
        return [p for name, p in self.named_parameters() if ".indexer." in name]

    def trunk_parameters(self) -> list[nn.Parameter]:
        """What the language-modelling loss trains."""
        return [p for name, p in self.named_parameters() if ".indexer." not in name]


def _of_valid(experts_BTA: Tensor, span: Span) -> Tensor:
    """The experts of tokens that are no padding: [n, A]."""
    if span.key_valid_BS is None:
        return experts_BTA.flatten(0, 1)
    return experts_BTA[span.key_valid_BS.gather(1, span.slots_BT)]

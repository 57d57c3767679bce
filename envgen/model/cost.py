"""The costs of a DSA model, from its configuration alone: parameters, arithmetic, cache, replay.

A multiplication with addition counts as 2 operations; norms, softmax, rotations and the choice of the k
best are left out. Per head and pair of tokens, with N nope, R rotary, V value and C latent width:

* MHA mode (dense prefill): 2 (N + R + V);
* MQA mode (absorbed: decoding, and all that is sparse): 2 (C + R + C);
* the indexer, over all visible keys: 2 index_head_dim per indexer head.

MHA mode expands each latent once and MQA mode turns each query and output once: the same arithmetic, that of
``kv_b_proj``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from envgen.core.types import Record
from envgen.model.config import DSAConfig

Phase = Literal["prefill", "decode"]
Mode = Literal["dense", "sparse"]
Form = Literal["bf16", "fp8"]

SCALE_WIDTH = 128
"""fp8: latent numbers that share a float32 scale."""
LONGEST = 1 << 31
"""Contexts from here on count as never."""


class Part(Record):
    """Parameters of one kind of module, in all layers together."""

    name: str
    total: int
    active: int
    """How many of them take part in one token."""


class Parameters(Record):
    """What a model consists of. The router's correction biases, which no gradient moves, are not in it."""

    parts: tuple[Part, ...]
    total: int
    active: int


class Flops(Record):
    """Operations of one token's forward pass."""

    phase: Phase
    mode: Mode
    weights: int
    """Products with weights; the indexer's only where it is used."""
    attention: int
    indexer: int
    """Scores of all keys."""
    total: int


class CacheBytes(Record):
    """Bytes of one token in the cache, all layers together."""

    form: Form
    latent: int
    """Latents and rotary keys."""
    index: int
    """Index keys; a dense model has none."""


class ReplayBytes(Record):
    """Bytes that one token adds to a stored rollout, for training to repeat its choices."""

    mask_per_token: int
    """Sampling mask: where a token's ids end (int32)."""
    mask_per_kept_id: int
    """Sampling mask: each id that the truncation left (int32)."""
    routing_uint16: int
    routing_uint8: int | None
    """None where there are too many experts."""
    topk_int32: int
    """Key sets as they are."""
    topk_delta: int
    """Key sets sorted, the gaps as base-128 numbers; an estimate, for keys spread at random."""


class BreakEven(Record):
    """Contexts from which sparse attention is cheaper than dense; None: never."""

    prefill_tokens: int | None
    """Operations of a whole prompt of this length."""
    prefill_position: int | None
    """Operations of the one token that sees so many."""
    decode_bytes_bf16: int | None
    """Bytes of cache that one token reads."""
    decode_bytes_fp8: int | None


class Cost(Record):
    """All of it at one context."""

    context: int
    parameters: Parameters
    flops: tuple[Flops, ...]
    cache: tuple[CacheBytes, ...]
    decode_bytes: dict[str, int]
    """Cache read by one token: "dense bf16", "sparse bf16", "dense fp8", "sparse fp8"."""
    replay: ReplayBytes
    break_even: BreakEven


def cost(config: DSAConfig, context: int) -> Cost:
    """Everything that this module knows, at ``context`` tokens."""
    phases: tuple[Phase, ...] = ("prefill", "decode")
    modes: tuple[Mode, ...] = ("dense", "sparse")
    forms: tuple[Form, ...] = ("bf16", "fp8")
    return Cost(
        context=context,
        parameters=parameters(config),
        flops=tuple(flops(config, context, phase, mode) for phase in phases for mode in modes),
        cache=tuple(cache_bytes(config, form) for form in forms),
        decode_bytes={
            f"{mode} {form}": decode_bytes(config, context, mode, form)
            for form in forms
            for mode in modes
        },
        replay=replay_bytes(config, context),
        break_even=break_even(config),
    )


def parameters(config: DSAConfig) -> Parameters:
    """Numbers of parameters by part."""
    c, layers, mixtures = config, config.num_hidden_layers, len(config.moe_layers)
    expert = 3 * c.hidden_size * c.moe_intermediate_size
    chosen = min(c.num_experts_per_tok, c.n_routed_experts)
    tables = 1 if c.tie_word_embeddings else 2
    counts = {
        "embeddings": tables * c.vocab_size * c.hidden_size,
        "attention": layers * attention_parameters(c),
        "indexer": layers * indexer_parameters(c),
        "dense MLP": (layers - mixtures) * 3 * c.hidden_size * c.intermediate_size,
        "router": mixtures * c.n_routed_experts * c.hidden_size,
        "routed experts": mixtures * c.n_routed_experts * expert,
        "shared experts": mixtures * c.n_shared_experts * expert,
        "norms": (2 * layers + 1) * c.hidden_size,
    }
    active = {**counts, "routed experts": mixtures * chosen * expert}
    return Parameters(
        parts=tuple(Part(name=name, total=n, active=active[name]) for name, n in counts.items()),
        total=sum(counts.values()),
        active=sum(active.values()),
    )


def attention_parameters(config: DSAConfig) -> int:
    """Of one layer's latent attention, its two norms included, without the indexer."""
    c, heads = config, config.num_attention_heads
    bias = c.q_lora_rank + c.latent_width + c.hidden_size if c.attention_bias else 0
    down = c.hidden_size * (c.q_lora_rank + c.latent_width)
    queries = c.q_lora_rank * heads * c.qk_head_dim
    keys_values = c.kv_lora_rank * heads * (c.qk_nope_head_dim + c.v_head_dim)
    out = heads * c.v_head_dim * c.hidden_size
    return down + queries + keys_values + out + bias + c.q_lora_rank + c.kv_lora_rank


def indexer_parameters(config: DSAConfig) -> int:
    """Of one layer's indexer."""
    c = config
    queries = c.q_lora_rank * c.index_n_heads * c.index_head_dim
    return queries + c.hidden_size * (c.index_head_dim + c.index_n_heads) + 2 * c.index_head_dim


def flops(config: DSAConfig, context: int, phase: Phase, mode: Mode) -> Flops:
    """Operations of one token.

    Args:
        config: of the model.
        context: decode: tokens that the token sees, itself included. Prefill: length of the prompt; the
            figure is the mean over its tokens.
        phase: decides the mode of dense attention: MHA for prefill, absorbed MQA for decoding.
        mode: dense: all keys, no indexer. sparse: the index_topk best, and the indexer over all.
    """
    c = config
    seen = (context + 1) / 2 if phase == "prefill" else context
    kept = _mean_kept(c.index_topk, context) if phase == "prefill" else min(c.index_topk, context)
    in_heads = 2 * c.num_attention_heads * (c.qk_head_dim + c.v_head_dim)
    absorbed = 2 * c.num_attention_heads * (c.latent_width + c.kv_lora_rank)
    if mode == "sparse":
        attention = kept * absorbed
    else:
        attention = seen * (in_heads if phase == "prefill" else absorbed)
    indexer = seen * 2 * c.index_n_heads * c.index_head_dim if mode == "sparse" else 0
    figures = {
        "weights": _weight_flops(c, mode),
        "attention": round(c.num_hidden_layers * attention),
        "indexer": round(c.num_hidden_layers * indexer),
    }
    return Flops(phase=phase, mode=mode, total=sum(figures.values()), **figures)


def _mean_kept(topk: int, context: int) -> float:
    """Mean over a prompt's tokens of min(index_topk, visible keys)."""
    if context <= topk:
        return (context + 1) / 2
    return topk - topk * (topk - 1) / (2 * context)


def _weight_flops(config: DSAConfig, mode: Mode) -> int:
    c, counted = config, {part.name: part.active for part in parameters(config).parts}
    idle = counted["norms"] + c.num_hidden_layers * (c.q_lora_rank + c.kv_lora_rank)
    lookup = 0 if c.tie_word_embeddings else c.vocab_size * c.hidden_size
    if mode == "dense":
        idle += counted["indexer"]  # not asked at all
    else:
        idle += 2 * c.index_head_dim * c.num_hidden_layers
    return 2 * (sum(counted.values()) - idle - lookup)


def cache_bytes(config: DSAConfig, form: Form) -> CacheBytes:
    """What the cache keeps of a token.

    fp8 is the release's form: latents in e4m3 with a float32 scale per 128, rotary keys in bf16 (656 bytes
    a layer), index keys in e4m3 with one float32 scale (132 bytes a layer).
    """
    c, layers = config, config.num_hidden_layers
    if form == "bf16":
        return CacheBytes(
            form=form, latent=layers * 2 * c.latent_width, index=layers * 2 * c.index_head_dim
        )
    scales = 4 * math.ceil(c.kv_lora_rank / SCALE_WIDTH)
    latent = c.kv_lora_rank + scales + 2 * c.qk_rope_head_dim
    return CacheBytes(form=form, latent=layers * latent, index=layers * (c.index_head_dim + 4))


def decode_bytes(config: DSAConfig, context: int, mode: Mode, form: Form) -> int:
    """Cache that one token reads: all latents, or the index_topk best and all index keys."""
    each = cache_bytes(config, form)
    if mode == "dense":
        return context * each.latent
    return min(config.index_topk, context) * each.latent + context * each.index


def replay_bytes(config: DSAConfig, context: int) -> ReplayBytes:
    """What a token that sees ``context`` tokens adds to a stored rollout."""
    routed = len(config.moe_layers) * config.num_experts_per_tok
    kept = min(config.index_topk, context)
    gap = _gap_bytes(kept / context)
    return ReplayBytes(
        mask_per_token=4,
        mask_per_kept_id=4,
        routing_uint16=2 * routed,
        routing_uint8=routed if config.n_routed_experts <= 256 else None,
        topk_int32=4 * config.num_hidden_layers * kept,
        topk_delta=round(config.num_hidden_layers * kept * gap),
    )


def _gap_bytes(share: float) -> float:
    """Mean length of a gap in base 128, where each key is kept with probability ``share``.

    A gap is above g with probability (1 - share)^g; one of 128 takes a second byte, and so on.
    """
    return 1.0 + sum((1.0 - share) ** (128**more - 1) for more in (1, 2, 3, 4))


def break_even(config: DSAConfig) -> BreakEven:
    """From where on sparse attention pays."""
    modes: tuple[Mode, Mode] = ("dense", "sparse")

    def prompt(context: int) -> bool:
        dense, sparse = (flops(config, context, "prefill", mode).total for mode in modes)
        return sparse < dense

    def position(context: int) -> bool:
        per_key = 2 * config.num_attention_heads * (config.qk_head_dim + config.v_head_dim)
        dense = _weight_flops(config, "dense") + config.num_hidden_layers * context * per_key
        return flops(config, context, "decode", "sparse").total < dense

    def reads(context: int, form: Form) -> bool:
        dense, sparse = (decode_bytes(config, context, mode, form) for mode in modes)
        return sparse < dense

    return BreakEven(
        prefill_tokens=_first(prompt),
        prefill_position=_first(position),
        decode_bytes_bf16=_first(lambda context: reads(context, "bf16")),
        decode_bytes_fp8=_first(lambda context: reads(context, "fp8")),
    )


def _first(holds: Callable[[int], bool]) -> int | None:
    """The smallest context where ``holds``, which once true stays true."""
    if not holds(LONGEST):
        return None
    low, high = 0, LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high

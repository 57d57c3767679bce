"""The configuration of a DSA model: DeepSeek-V3.2's, by Hugging Face's field names.

Reads both of Hugging Face's styles (``rope_theta`` with ``rope_scaling``, or ``rope_parameters``) and
writes the newer one. The presets go from 1M parameters to the 671B of the release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from envgen.core.errors import ConfigError
from envgen.core.limits import Count, Real, Whole
from envgen.core.types import Record

MODEL_TYPE = "deepseek_v32"
ARCHITECTURE = "DeepseekV32ForCausalLM"
LARGEST_SIZE = 1 << 28
"""Of a width, a vocabulary or a context."""
MOST_PARTS = 1 << 14
"""Layers, or experts of one."""


class RopeConfig(Record):
    """Rotary position embedding, plain or stretched by YaRN (Peng et al. 2023)."""

    rope_theta: float = Field(default=10_000.0, gt=0)
    """Base of the angles."""
    rope_type: Literal["default", "yarn"] = "default"
    """default, or stretched by YaRN."""
    factor: float = Field(default=1.0, ge=1)
    """YaRN: context length over the one of pre-training."""
    beta_fast: Real = 32.0
    """YaRN: turns from which dimensions stay as they are."""
    beta_slow: Real = 1.0
    """YaRN: turns up to which they are stretched."""
    mscale: Real | None = None
    """YaRN: scale of cos and sin."""
    mscale_all_dim: Real | None = None
    """YaRN: the softmax scale grows by (0.1 * mscale_all_dim * ln(factor) + 1)^2."""
    attention_factor: Real | None = None
    """YaRN: multiplies cos and sin; None: from ``mscale`` and ``mscale_all_dim``."""
    original_max_position_embeddings: Count | None = None
    """YaRN: context of pre-training."""
    truncate: bool = True
    """YaRN: whether the bounds of the ramp are rounded to whole dimensions."""

    @model_validator(mode="after")
    def _yarn_is_whole(self) -> Self:
        if self.rope_type == "yarn" and self.original_max_position_embeddings is None:
            raise ValueError("yarn needs original_max_position_embeddings")
        return self

    @property
    def softmax_gain(self) -> float:
        """YaRN's factor of the softmax scale: m^2, with m = 0.1 * mscale_all_dim * ln(factor) + 1."""
        if self.rope_type == "default" or not self.mscale_all_dim:
            return 1.0
        return yarn_mscale(self.factor, self.mscale_all_dim) ** 2


def yarn_mscale(factor: float, mscale: float) -> float:
    """YaRN's m: 0.1 * mscale * ln(factor) + 1; 1 where nothing is stretched."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


class DSAConfig(Record):
    """Architecture of a DSA model. Names are those of Hugging Face's ``deepseek_v32``."""

    vocab_size: int = Field(default=129_280, ge=1, le=LARGEST_SIZE)
    """Rows of the embedding."""
    hidden_size: int = Field(default=7_168, ge=1, le=LARGEST_SIZE)
    """Width of the residual stream."""
    num_hidden_layers: int = Field(default=61, ge=1, le=MOST_PARTS)
    """Layers."""
    intermediate_size: int = Field(default=18_432, ge=1, le=LARGEST_SIZE)
    """Width of the dense layers' MLP."""
    first_k_dense_replace: int = Field(default=3, ge=0, le=MOST_PARTS)
    """How many layers come before the first mixture of experts."""

    n_routed_experts: int = Field(default=256, ge=1, le=MOST_PARTS)
    """Experts of a layer that tokens are routed to."""
    n_shared_experts: int = Field(default=1, ge=0, le=LARGEST_SIZE)
    """Experts that see every token."""
    num_experts_per_tok: int = Field(default=8, ge=1, le=LARGEST_SIZE)
    """Routed experts that a token gets."""
    moe_intermediate_size: int = Field(default=2_048, ge=1, le=LARGEST_SIZE)
    """Width of an expert's MLP."""
    n_group: int = Field(default=8, ge=1, le=LARGEST_SIZE)
    """Groups that experts stand in."""
    topk_group: int = Field(default=4, ge=1, le=LARGEST_SIZE)
    """Groups that a token's experts come from."""
    norm_topk_prob: bool = True
    """Weights of a token's experts add up to 1."""
    routed_scaling_factor: Real = 2.5
    """Multiplies what routed experts give."""

    num_attention_heads: int = Field(default=128, ge=1, le=LARGEST_SIZE)
    """Heads of the attention."""
    q_lora_rank: int = Field(default=1_536, ge=1, le=LARGEST_SIZE)
    """Width of the queries' latent."""
    kv_lora_rank: int = Field(default=512, ge=1, le=LARGEST_SIZE)
    """Width of the cached latent of keys and values."""
    qk_nope_head_dim: int = Field(default=128, ge=1, le=LARGEST_SIZE)
    """Width of a head's query and key without positions."""
    qk_rope_head_dim: int = Field(default=64, ge=2, le=LARGEST_SIZE)
    """Width of their rotary part."""
    v_head_dim: int = Field(default=128, ge=1, le=LARGEST_SIZE)
    """Width of a head's value."""
    attention_bias: bool = False
    """Whether projections add a bias."""

    index_n_heads: int = Field(default=64, ge=1, le=LARGEST_SIZE)
    """Heads of the lightning indexer."""
    index_head_dim: int = Field(default=128, ge=2, le=LARGEST_SIZE)
    """Width of each."""
    index_topk: int = Field(default=2_048, ge=1, le=LARGEST_SIZE)
    """Keys that sparse attention keeps for a token."""
    indexer_rope_interleave: bool = False
    """Rotate the indexer's pairs (x0, x1), (x2, x3), ... instead of halves. V3.2 uses halves."""
    index_hadamard: bool = False
    """Turn indexer queries and keys by a Hadamard matrix; scores stay, fp8 loses less."""
    index_fp8: bool = False
    """Round indexer queries and keys to e4m3 with one power-of-two scale a row, as the release does."""

    max_position_embeddings: int = Field(default=163_840, ge=1, le=LARGEST_SIZE)
    """Longest context, in tokens."""
    rope: RopeConfig = RopeConfig()
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    """Added to the mean square."""
    initializer_range: float = Field(default=0.02, gt=0)
    """Deviation of random weights."""
    tie_word_embeddings: bool = False
    """Use the embedding as the output layer."""
    bos_token_id: Whole | None = 0
    """First token of a text."""
    eos_token_id: Whole | tuple[Whole, ...] | None = 1
    """Tokens that end a reply."""
    pad_token_id: Whole | None = None
    """Fills rows up."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for broken, message in (
            (self.qk_rope_head_dim % 2, "qk_rope_head_dim must be even"),
            (
                self.index_head_dim < self.qk_rope_head_dim,
                "index_head_dim must be at least qk_rope_head_dim",
            ),
            (self.n_routed_experts % self.n_group, "n_group must divide n_routed_experts"),
            (self.topk_group > self.n_group, "topk_group must be at most n_group"),
            (
                self.has_experts and self.n_routed_experts // self.n_group < 2,
                "a group needs two experts: its score is the sum of its best two",
            ),
            (
                self.num_experts_per_tok
                > self.topk_group * (self.n_routed_experts // self.n_group),
                "num_experts_per_tok must fit the topk_group groups that are kept",
            ),
            (
                self.index_hadamard and self.index_head_dim & (self.index_head_dim - 1),
                "index_hadamard needs an index_head_dim that is a power of two",
            ),
        ):
            if broken:
                raise ValueError(message)
        return self

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return self.first_k_dense_replace < self.num_hidden_layers

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Indices of the layers that are mixtures of experts."""
        return tuple(range(self.first_k_dense_replace, self.num_hidden_layers))

    @property
    def qk_head_dim(self) -> int:
        """Width of a query or key head in MHA mode: nope and rope."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def latent_width(self) -> int:
        """Width of a cached row: the latent and the shared rotary key (576 in the release)."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def softmax_scale(self) -> float:
        """qk_head_dim^-0.5, times YaRN's m^2 where it is on."""
        return float(self.qk_head_dim**-0.5) * self.rope.softmax_gain

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The ids that end a reply; may be empty."""
        eos = self.eos_token_id
        return () if eos is None else (eos,) if isinstance(eos, int) else eos

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> DSAConfig:
        """From the content of a Hugging Face ``config.json``.

        Raises:
            ConfigError: if it is another architecture, or uses what the model does not do.
        """
        _refuse_strangers(raw)
        values = {name: raw[name] for name in cls.model_fields if name in raw and name != "rope"}
        if isinstance(values.get("eos_token_id"), list):
            values["eos_token_id"] = tuple(values["eos_token_id"])
        values["rope"] = _rope_of(raw)
        kinds = raw.get("mlp_layer_types")
        if kinds is not None:
            values["first_k_dense_replace"] = _leading_dense(kinds)
        try:
            return cls(**values)
        except ValidationError as error:
            raise ConfigError(
                _first_error(error), "compare config.json with the weights"
            ) from error

    def to_hf(self) -> dict[str, Any]:
        """The content of a Hugging Face ``config.json`` (``rope_parameters`` style)."""
        raw = self.model_dump(mode="json", exclude={"rope"})
        dense, layers = (
            min(self.first_k_dense_replace, self.num_hidden_layers),
            self.num_hidden_layers,
        )
        return {
            "architectures": [ARCHITECTURE],
            "model_type": MODEL_TYPE,
            **raw,
            "num_key_value_heads": self.num_attention_heads,
            "hidden_act": "silu",
            "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense),
            "rope_parameters": _rope_parameters(self.rope),
        }


_FIXED: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_act": "silu",
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
        "mlp_bias": False,
        "attention_dropout": 0,
    }
)
"""Settings of Hugging Face's files that have one value here."""


def _refuse_strangers(raw: Mapping[str, Any]) -> None:
    kind = raw.get("model_type")
    if kind != MODEL_TYPE:
        raise ConfigError(
            f"config.json is of model_type {kind!r}, not {MODEL_TYPE!r}",
            "only DeepSeek-V3.2's architecture can be loaded",
        )
    for name, only in _FIXED.items():
        if name in raw and raw[name] != only:
            raise ConfigError(
                f"config.json says {name}={raw[name]!r}", f"the model knows {only!r} only"
            )
    heads, kv_heads = raw.get("num_attention_heads"), raw.get("num_key_value_heads")
    if heads is not None and kv_heads is not None and heads != kv_heads:
        raise ConfigError(
            f"config.json says num_key_value_heads={kv_heads!r} for {heads!r} heads",
            "latent attention has one latent for all heads; both numbers must be equal",
        )


def _rope_of(raw: Mapping[str, Any]) -> RopeConfig:
    """Either style, as one."""
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            "config.json: the rotary embedding must be an object", "see rope_parameters"
        )
    found = dict(given)
    found.setdefault("rope_theta", raw.get("rope_theta", 10_000.0))
    kind = found.pop("rope_type", None) or found.pop("type", None) or "default"
    found.pop("type", None)
    if kind not in ("default", "yarn"):
        raise ConfigError(
            f"config.json asks for the rotary embedding {kind!r}", "known: 'default' and 'yarn'"
        )
    if kind == "yarn" and found.get("original_max_position_embeddings") is None:
        found["original_max_position_embeddings"] = raw.get("max_position_embeddings")
    known = {name: found[name] for name in RopeConfig.model_fields if name in found}
    try:
        return RopeConfig(rope_type=kind, **known)
    except ValidationError as error:
        raise ConfigError(_first_error(error), "see rope_parameters in config.json") from error


def _rope_parameters(rope: RopeConfig) -> dict[str, Any]:
    if rope.rope_type == "default":
        return {"rope_theta": rope.rope_theta, "rope_type": "default"}
    return rope.model_dump(mode="json", exclude_none=True)


def _leading_dense(kinds: object) -> int:
    if not isinstance(kinds, list) or len(kinds) > MOST_PARTS:
        raise ConfigError(
            "config.json: mlp_layer_types must be a list of layers", "see the release's"
        )
    dense = next((i for i, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if any(kind != "sparse" for kind in kinds[dense:]):
        raise ConfigError(
            f"config.json mixes mlp_layer_types: {kinds}", "dense layers must come first"
        )
    return dense


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "config"
    return f"{where}: {first['msg']}"


def _small(**changes: Any) -> DSAConfig:
    base = dict(
        vocab_size=1_024,
        n_group=1,
        topk_group=1,
        routed_scaling_factor=1.0,
        max_position_embeddings=32_768,
        bos_token_id=None,
        eos_token_id=None,
    )
    return DSAConfig(**{**base, **changes})


_YARN_671B = RopeConfig(
    rope_type="yarn",
    factor=40,
    mscale=1.0,
    mscale_all_dim=1.0,
    original_max_position_embeddings=4_096,
)

PRESETS: Mapping[str, DSAConfig] = MappingProxyType(
    {
        # 1.1M parameters.
        "tiny": _small(
            hidden_size=128,
            num_hidden_layers=4,
            intermediate_size=384,
            first_k_dense_replace=1,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            num_attention_heads=4,
            q_lora_rank=96,
            kv_lora_rank=64,
            qk_nope_head_dim=32,
            qk_rope_head_dim=16,
            v_head_dim=32,
            index_n_heads=4,
            index_head_dim=32,
            index_topk=256,
        ),
        # 10M parameters.
        "small": _small(
            vocab_size=4_096,
            hidden_size=256,
            num_hidden_layers=6,
            intermediate_size=768,
            first_k_dense_replace=1,
            n_routed_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=160,
            num_attention_heads=8,
            q_lora_rank=192,
            kv_lora_rank=96,
            qk_nope_head_dim=32,
            qk_rope_head_dim=32,
            v_head_dim=32,
            index_n_heads=4,
            index_head_dim=32,
            index_topk=512,
        ),
        # 132M parameters.
        "medium": _small(
            vocab_size=16_384,
            hidden_size=640,
            num_hidden_layers=10,
            intermediate_size=1_792,
            first_k_dense_replace=1,
            n_routed_experts=16,
            num_experts_per_tok=4,
            moe_intermediate_size=320,
            n_group=4,
            topk_group=2,
            num_attention_heads=16,
            q_lora_rank=256,
            kv_lora_rank=128,
            qk_nope_head_dim=48,
            qk_rope_head_dim=32,
            v_head_dim=48,
            index_n_heads=4,
            index_head_dim=32,
            index_topk=512,
            routed_scaling_factor=1.5,
            max_position_embeddings=65_536,
        ),
        # 851M parameters.
        "large": _small(
            vocab_size=65_536,
            hidden_size=1_024,
            num_hidden_layers=24,
            intermediate_size=3_072,
            first_k_dense_replace=1,
            n_routed_experts=32,
            num_experts_per_tok=4,
            moe_intermediate_size=256,
            n_group=4,
            topk_group=2,
            num_attention_heads=16,
            q_lora_rank=512,
            kv_lora_rank=256,
            qk_nope_head_dim=96,
            qk_rope_head_dim=32,
            v_head_dim=96,
            index_n_heads=8,
            index_head_dim=64,
            index_topk=1_024,
            routed_scaling_factor=1.5,
            max_position_embeddings=131_072,
        ),
        "deepseek-v3.2": DSAConfig(rope=_YARN_671B),
    }
)


def preset(name: str, **changes: Any) -> DSAConfig:
    """A preset by name, with fields changed.

    Raises:
        ConfigError: if there is no such preset or the changed fields don't fit together.
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}", f"presets: {', '.join(PRESETS)}")
    try:
        return DSAConfig(**{**PRESETS[name].model_dump(), **changes})
    except ValidationError as error:
        raise ConfigError(f"preset {name!r} changed: {_first_error(error)}") from error

"""A model folder that answers in this process: weights, encoding and a running engine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from envgen.core.errors import ConfigError, MissingExtraError, install_hint
from envgen.core.limits import Label
from envgen.core.types import Record
from envgen.policies.encoding import Encoding, load_encoding, make_encoding

if TYPE_CHECKING:
    from envgen.model.engine import Engine


class LocalModelConfig(Record):
    """Which model, and how much of the machine it gets."""

    model: Label
    """Model folder: config.json, weights, tokenizer.json, encoding.json."""
    thinking: bool | None = None
    """Whether the model reasons before it answers; None: as encoding.json says."""
    max_new_tokens: int = Field(default=1_024, ge=1)
    """Of a reply, where the request names no limit."""
    max_kept: int | None = Field(default=None, ge=1)
    """Most vocabulary entries a token is drawn from, so that stored sampling masks stay small; None: all."""
    max_batch: int = Field(default=32, ge=1)
    """Replies that are written together."""
    cache_tokens: int = Field(default=65_536, ge=1)
    """Tokens of all conversations that are kept computed."""
    threads: int | None = Field(default=None, ge=1)
    """Of PyTorch, in the whole process; None: as it is."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: as the weights are stored."""
    device: Label = "cpu"
    policy_version: Label = ""
    """Stamped on every reply; empty: a hash of the weights."""


class ServeConfig(LocalModelConfig):
    """A model folder behind a port."""

    host: Label = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65_535)
    """0: any free one."""
    model_name: Label | None = None
    """What clients call the model; None: the folder's name."""
    api_key_env: Label | None = None
    """Environment variable that holds the key clients must send; None: no key is asked for."""
    max_waiting: int = Field(default=256, ge=0)
    """Replies that may wait for a place; beyond that clients are told to come back later."""
    max_body_bytes: int = Field(default=32 << 20, ge=1)
    """Of a request."""
    idle_s: int = Field(default=75, ge=1)
    """In so many seconds a request's headers must be whole, then its body; idle connections stay as long.

    Longer than clients keep idle connections, or they would use one that is just being closed.
    """
    allow_hosts: tuple[Label, ...] = ()
    """Without a key: names that clients may call it by, beside ``host``, ``localhost`` and addresses."""


class LocalModel:
    """An encoding and an engine that runs; close it to stop the engine.

    Args:
        encoding: what the model reads and writes.
        engine: started by the caller.
    """

    def __init__(self, encoding: Encoding, engine: Engine) -> None:
        if encoding.tokenizer.vocab_size > engine.model.config.vocab_size:
            raise ConfigError(
                f"the tokenizer has {encoding.tokenizer.vocab_size} tokens, the model "
                f"{engine.model.config.vocab_size}",
                "put the tokenizer.json into the folder that the model was trained with",
            )
        self.encoding = encoding
        self.engine = engine

    @property
    def version(self) -> str:
        """Version of the weights."""
        return self.engine.policy_version

    @property
    def window(self) -> int:
        """Most tokens of prompt and reply together."""
        return self.engine.max_context

    def close(self) -> None:
        """Stop the engine; whoever waits for a reply gets an EngineClosedError."""
        self.engine.close()


def open_model(config: LocalModelConfig) -> LocalModel:
    """Load the folder and start its engine.

    Raises:
        CheckpointError: if the weights are missing or wrong.
        ConfigError: if another file of the folder is, or the device is not there.
        MissingExtraError: without PyTorch.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            "a model in this process needs PyTorch", install_hint("train")
        ) from error
    from envgen.model.engine import Engine, EngineConfig
    from envgen.model.modeling import DSAForCausalLM

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    dtype = None if config.dtype == "auto" else getattr(torch, config.dtype)
    try:
        device = torch.device(config.device)
        model = DSAForCausalLM.from_pretrained(config.model, dtype=dtype, device=device)
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # PyTorch's words for a device that is not there
        raise ConfigError(
            f"can't load {config.model!r} onto device {config.device!r}: {str(error)[:200]}",
            "choose device=cpu",
        ) from error
    encoding = load_encoding(config.model)
    if config.thinking is not None:
        changed = encoding.config.model_copy(update={"thinking": config.thinking})
        encoding = make_encoding(changed, encoding.tokenizer)
    sizes = EngineConfig(
        max_batch=config.max_batch,
        cache_tokens=config.cache_tokens,
        policy_version=config.policy_version or weights_hash(config.model),
    )
    model_policy = LocalModel(encoding, Engine(model, sizes))
    model_policy.engine.start()
    return model_policy


def weights_hash(folder: str | Path) -> str:
    """Names the weights of a model folder: 16 hex digits of the SHA-256 of its weight files."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).glob("*.safetensors")):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]

"""Encodings: conversations to token ids and back."""

from __future__ import annotations

from envgen.policies.encoding.base import Encoding, EncodingConfig, EncodingError
from envgen.policies.encoding.files import (
    control_tokens,
    load_encoding,
    make_encoding,
    save_encoding,
    tokenizer_config,
)

__all__ = [
    "Encoding",
    "EncodingConfig",
    "EncodingError",
    "control_tokens",
    "load_encoding",
    "make_encoding",
    "save_encoding",
    "tokenizer_config",
]

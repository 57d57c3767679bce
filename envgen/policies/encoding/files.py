"""Encodings in model folders: ``encoding.json`` beside ``tokenizer.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from envgen.core.canonical import pretty
from envgen.core.errors import ConfigError
from envgen.policies.encoding import compact
from envgen.policies.encoding.base import Encoding, EncodingConfig

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer

ENCODING_FILE = "encoding.json"


def control_tokens(config: EncodingConfig) -> tuple[str, ...]:
    """The control tokens that a tokenizer needs for the encoding."""
    return tuple(control.text for control in compact.CONTROLS)


def make_encoding(config: EncodingConfig, tokenizer: Tokenizer) -> Encoding:
    """The encoding that ``config`` describes.

    Raises:
        ConfigError: if the tokenizer lacks a control token of it.
    """
    return compact.CompactEncoding(config, tokenizer)


def save_encoding(config: EncodingConfig, folder: str | Path) -> None:
    """Write ``encoding.json`` into ``folder``, which is made if need be."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / ENCODING_FILE).write_text(pretty(config), encoding="utf-8")


def load_encoding(folder: str | Path) -> Encoding:
    """The encoding of a model folder, with its tokenizer.

    Raises:
        ConfigError: if a file is missing or wrong.
        MissingExtraError: if tokenizers is not installed.
    """
    from envgen.model.tokenizer import Tokenizer

    path = Path(folder) / ENCODING_FILE
    try:
        config = EncodingConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"can't read the encoding {str(path)!r}: {error}",
            'give a model folder, or write {"kind": "dsml", "thinking": true} there',
        ) from error
    return make_encoding(config, Tokenizer.load(folder))

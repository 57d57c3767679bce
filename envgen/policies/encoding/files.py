"""Encodings in model folders: ``encoding.json`` beside ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from envgen.core.errors import ConfigError
from envgen.policies.encoding import compact, dsml, dsml_text
from envgen.policies.encoding.base import Encoding, EncodingConfig

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer, TokenizerConfig

ENCODING_FILE = "encoding.json"


def control_tokens(config: EncodingConfig) -> tuple[str, ...]:
    """The control tokens that a tokenizer needs for the encoding."""
    controls = dsml_text.CONTROLS if config.kind == "dsml" else compact.CONTROLS
    return tuple(control.text for control in controls)


def tokenizer_config(
    config: EncodingConfig, names: Iterable[str] = (), **settings: Any
) -> TokenizerConfig:
    """Settings of a tokenizer for the encoding: control tokens, and the words of its tags as one token each.

    Args:
        config: the encoding.
        names: more words, such as ``dataset_names``; none needs to be new.
        settings: other fields of ``TokenizerConfig``, such as ``vocab_size``.
    """
    from envgen.model.tokenizer import TokenizerConfig

    tags = (config.block, *dsml_text.WORDS) if config.kind == "dsml" else ()
    words = tuple(dict.fromkeys([*tags, *names]))
    return TokenizerConfig(control_tokens=control_tokens(config), single_tokens=words, **settings)


def make_encoding(config: EncodingConfig, tokenizer: Tokenizer) -> Encoding:
    """The encoding that ``config`` describes.

    Raises:
        ConfigError: if the tokenizer lacks a control token of it.
    """
    kind = dsml.DsmlEncoding if config.kind == "dsml" else compact.CompactEncoding
    return kind(config, tokenizer)


def save_encoding(config: EncodingConfig, folder: str | Path) -> None:
    """Write ``encoding.json`` into ``folder``, which is made if need be."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    text = config.model_dump_json(indent=2) + "\n"  # a response format keeps the order of its keys
    (Path(folder) / ENCODING_FILE).write_text(text, encoding="utf-8")


def load_encoding(folder: str | Path) -> Encoding:
    """The encoding of a model folder, with its tokenizer.

    Raises:
        ConfigError: if a file is missing or wrong.
        MissingExtraError: if tokenizers is not installed.
    """
    from envgen.model.tokenizer import Tokenizer

    path = Path(folder) / ENCODING_FILE
    if not path.parent.is_dir():
        raise ConfigError(
            f"the model {str(folder)!r} is not a folder",
            "give a model folder; `envgen model init` makes one",
        )
    try:
        config = EncodingConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"can't read the encoding {str(path)!r}: {error}",
            'give a model folder, or write {"kind": "dsml", "thinking": true} there',
        ) from error
    return make_encoding(config, Tokenizer.load(folder))

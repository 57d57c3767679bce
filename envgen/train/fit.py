"""Whether a model folder can be trained at all, told from its small files before anything is computed."""

from __future__ import annotations

from pathlib import Path

from envgen.core.errors import ConfigError
from envgen.model.checkpoint import read_config
from envgen.policies.encoding import Encoding, load_encoding


def fitting_encoding(folder: str | Path) -> Encoding:
    """The encoding of a model folder.

    Raises:
        ConfigError: if its tokenizer has more tokens than its model.
        CheckpointError: if there is no model.
    """
    encoding, config = load_encoding(folder), read_config(folder)
    if encoding.tokenizer.vocab_size > config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {encoding.tokenizer.vocab_size} tokens, the model {config.vocab_size}",
            "they are not of one model; make one with `envgen model init`",
        )
    return encoding

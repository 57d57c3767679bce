"""New models: a preset, a tokenizer and an encoding become a model folder with random weights."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import Field, ValidationError, model_validator

from envgen.core.errors import ConfigError, StoreError
from envgen.core.limits import Line, Whole
from envgen.core.seeding import derive
from envgen.core.types import Record
from envgen.model.config import DSAConfig, preset
from envgen.model.cost import parameters
from envgen.policies.encoding import (
    EncodingConfig,
    load_encoding,
    make_encoding,
    save_encoding,
)
from envgen.policies.encoding.dsml_text import BOS
from envgen.policies.encoding.files import ENCODING_FILE, tokenizer_config

if TYPE_CHECKING:
    from envgen.model.tokenizer import Tokenizer
    from envgen.policies.encoding import Encoding

TOKENIZER_FILE = "tokenizer.json"
WEIGHT_BYTES = 4
FROM_TOKENIZER = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
"""Fields of a model's configuration that its tokenizer and encoding decide."""


class NewModelConfig(Record):
    """The settings of a new model folder."""

    preset: Line
    """tiny, small, medium, large or deepseek-v3.2."""
    model: DSAConfig | None = None
    """What differs from the preset; the rest is filled in. Its tokenizer decides ``FROM_TOKENIZER``."""
    encoding: EncodingConfig | None = None
    """None: the tokenizer folder's encoding, or compact. Compact unless its ``kind`` is given."""
    vocab_size: int | None = Field(default=None, ge=1)
    """Training a tokenizer: its size, by default the preset's. Copying one: rows of the embedding."""
    entity_tokens: int = Field(default=0, ge=0)
    """Training a tokenizer: so many names that tools return (of rooms, cities) are one token each."""
    line_tokens: int = Field(default=0, ge=0)
    """Training a tokenizer: so many lines that a tenth of all prompts have are one token each."""
    seed: Whole = 0
    """Fixes the random weights."""

    @model_validator(mode="before")
    @classmethod
    def _over_the_preset(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or "preset" not in fields:
            return fields
        base, settings = preset(str(fields["preset"])).model_dump(), dict(fields)
        changes, encoding = settings.get("model") or {}, settings.get("encoding") or None
        if isinstance(changes, DSAConfig):
            changes = changes.model_dump()
        if isinstance(changes, Mapping):
            for name in FROM_TOKENIZER:
                if changes.get(name, base[name]) != base[name]:
                    raise ConfigError(
                        f"{name!r} comes from the tokenizer and the encoding",
                        "see --vocab-size, --encoding",
                    )
            settings["model"] = base | dict(changes)
            if isinstance(rope := changes.get("rope"), Mapping):
                settings["model"]["rope"] = base["rope"] | dict(rope)
        settings["encoding"] = (
            {"kind": "compact"} | dict(encoding) if isinstance(encoding, Mapping) else encoding
        )
        return settings


def new_model(
    config: NewModelConfig, source: str | Path, out: str | Path, *, unproven: bool = False
) -> DSAConfig:
    """Make a model folder: ``config.json``, weights, ``tokenizer.json``, ``encoding.json``.

    The same settings and source give the same bytes.

    Args:
        config: what model.
        source: a folder with a ``tokenizer.json``, which is copied, or a dataset to train one on.
        out: a folder that is empty or not there yet; appears whole or not at all.
        unproven: accept a dataset whose tasks lack evidence.

    Raises:
        ConfigError: if the settings don't fit together, ``out`` is taken or the model is too large.
        DatasetError: if the dataset can't be opened.
        StoreError: if the disk does not take the model.
    """
    source, out = Path(source), Path(out)
    _require_free(out)
    encoding = _encoding(config, source, unproven=unproven)
    found = _config(config, **_from_tokenizer(config, encoding, trained=not _has_tokenizer(source)))
    _require_memory(found)
    partial = out.parent / f".{out.name}.partial-{uuid4().hex}"
    try:
        encoding.tokenizer.save(partial)
        save_encoding(encoding.config, partial)
        _write_weights(found, config.seed, partial)
        partial.replace(out)
    except OSError as error:
        raise StoreError(
            f"can't write the model {str(out)!r}: {error}",
            "check the path and the room on the disk",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return found


def _config(config: NewModelConfig, **decided: Any) -> DSAConfig:
    chosen = config.model or preset(config.preset)
    return DSAConfig.model_validate(chosen.model_dump() | decided)


def _has_tokenizer(source: Path) -> bool:
    return (source / TOKENIZER_FILE).is_file()


def _encoding(config: NewModelConfig, source: Path, *, unproven: bool) -> Encoding:
    from envgen.model.tokenizer import Tokenizer

    if _has_tokenizer(source) and not config.encoding and (source / ENCODING_FILE).is_file():
        return load_encoding(source)
    wanted = config.encoding or EncodingConfig(kind="compact")
    if _has_tokenizer(source):
        return make_encoding(wanted, Tokenizer.load(source))
    size = config.vocab_size or preset(config.preset).vocab_size
    return make_encoding(wanted, _trained(wanted, source, size, config, unproven=unproven))


def _trained(
    encoding: EncodingConfig, source: Path, size: int, config: NewModelConfig, *, unproven: bool
) -> Tokenizer:
    """A tokenizer whose free room is shared between the dataset's names and merges."""
    from envgen.model.tokenizer import (
        NUM_BYTES,
        dataset_lines,
        dataset_names,
        dataset_texts,
        dataset_values,
        train_tokenizer,
    )

    try:
        bare = tokenizer_config(encoding, vocab_size=size)
        room = size - NUM_BYTES - len(bare.control_tokens) - len(bare.single_tokens)
        names = dataset_names(source, unproven=unproven)[: room // 2]
        if config.entity_tokens:
            values = dataset_values(source, unproven=unproven)[: config.entity_tokens]
            names = tuple(dict.fromkeys([*names, *values]))[: room * 3 // 4]
        if config.line_tokens:
            lines = dataset_lines(source, unproven=unproven)[: config.line_tokens]
            names = tuple(dict.fromkeys([*lines, *names]))[: room * 3 // 4]
        settings = tokenizer_config(encoding, names, vocab_size=size)
    except ValidationError as error:
        raise ConfigError(
            f"vocab_size {size}: {error.errors()[0]['msg']}", "give a larger --vocab-size"
        ) from error
    texts = dataset_texts(source, unproven=unproven)
    first = next(texts, None)
    if first is None:
        raise ConfigError(
            f"{str(source)!r} has no text to train a tokenizer on", "see `envgen list`"
        )
    return train_tokenizer(itertools.chain((first,), texts), settings)


def _from_tokenizer(config: NewModelConfig, encoding: Encoding, *, trained: bool) -> dict[str, Any]:
    tokenizer, stops = encoding.tokenizer, encoding.stop_ids
    size = tokenizer.vocab_size if trained else config.vocab_size or tokenizer.vocab_size
    if size < tokenizer.vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model should have {size}",
            "leave --vocab-size out, or make it larger",
        )
    return {
        "vocab_size": size,
        "bos_token_id": tokenizer.control.get(BOS.text) if encoding.config.kind == "dsml" else None,
        "eos_token_id": stops[0] if len(stops) == 1 else tuple(stops),
        "pad_token_id": None,
    }


def _require_free(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(f"{str(out)!r} is there already", "choose another --out, or remove it")


def _require_memory(config: DSAConfig) -> None:
    needed = WEIGHT_BYTES * parameters(config).total
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ConfigError(
            f"the model's weights take {needed / 1e9:.0f} GB, this machine has {there / 1e9:.0f} GB",
            "choose a smaller preset, or lower num_hidden_layers or n_routed_experts",
        )


def _write_weights(config: DSAConfig, seed: int, folder: Path) -> None:
    import torch

    from envgen.model.modeling import DSAForCausalLM

    with torch.device("meta"):
        model = DSAForCausalLM(config)
    model.materialize("cpu").reset_parameters(derive(seed, "weights"))
    model.save_pretrained(folder)

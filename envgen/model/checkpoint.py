"""Model folders in Hugging Face's layout: load and save, one tensor at a time.

On disk each expert has three matrices (``mlp.experts.E.gate_proj.weight``, ``up_proj``, ``down_proj``); in
memory a layer's experts are two tensors. Files that keep them as two are read as well. Weights in e4m3 with
one scale per block (``X.weight_scale_inv``) become wide numbers. The layers of multi-token prediction behind
the last one are left out.

What is wrong with a folder is found from the files' headers, before memory is asked for.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from uuid import uuid4

import torch
from torch import Tensor

from envgen.core.canonical import pretty
from envgen.core.errors import CheckpointError, ConfigError
from envgen.model.config import DSAConfig
from envgen.model.quantize import dequantize_blocks
from envgen.model.weight_files import GET_AGAIN, Stored, WeightFiles, some, write_weights
from envgen.store.folders import told_of

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
SHARD_BYTES = 5 * 10**9
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
SCALE_SUFFIX = "_scale_inv"
WIDE = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
FP8 = "F8_E4M3"
_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in WIDE.values()}
Shape = tuple[int, ...]
M = TypeVar("M", bound="Stateful")
_LAYER = re.compile(r"model\.layers\.(\d+)\.")


def read_config(folder: str | Path) -> DSAConfig:
    """The configuration of a model folder.

    Raises:
        CheckpointError: if there is none, or it describes something else.
    """
    return _config_of(Path(folder), _raw_config(Path(folder)))


class Stateful(Protocol):
    """What is asked of a model (an ``nn.Module``) that is read from a folder and written to one."""

    config: DSAConfig

    def __init__(self, config: DSAConfig) -> None: ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""

    def state_dict(self) -> dict[str, Any]:
        """The weights by name; writing to them changes the model."""

    def cast(self, dtype: torch.dtype) -> Self:
        """Convert the weights."""

    def materialize(self, device: torch.device | str) -> Self:
        """Give a model that was made on the meta device memory."""

    def eval(self) -> Self:
        """Go into evaluation mode."""


def load_model(
    model_class: type[M],
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> M:
    """See ``DSAForCausalLM.from_pretrained``."""
    folder = Path(folder)
    raw = _raw_config(folder)
    config = _config_of(folder, raw)
    with torch.device("meta"):
        model = model_class(config)
    files = WeightFiles(folder)
    ours = _without_mtp(files.stored, config, folder)
    scales = {name: f"{name}{SCALE_SUFFIX}" for name, s in ours.items() if s.dtype == FP8}
    block = _block(folder, raw)
    shapes = {name: tuple(place.shape) for name, place in destinations(model, ours).items()}
    shapes |= {scales[name]: _scale_shape(shapes[name], block) for name in scales if name in shapes}
    _require_fit(folder, shapes, ours, {HEAD} if config.tie_word_embeddings else ())
    model.cast(dtype or _dtype(raw, ours)).materialize(device)
    _fill(destinations(model, ours), files, scales, block)
    return model.eval()


def save_model(model: Stateful, folder: str | Path, *, max_shard_bytes: int = SHARD_BYTES) -> None:
    """See ``DSAForCausalLM.save_pretrained``."""
    folder = Path(folder)
    write_weights(folder, destinations(model), max_shard_bytes)
    raw = {**model.config.to_hf(), "dtype": _NAMES.get(model.dtype, "float32")}
    partial = folder / f".{CONFIG_FILE}.{uuid4().hex}.partial"
    try:
        partial.write_text(pretty(raw), encoding="utf-8")
        partial.replace(folder / CONFIG_FILE)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CheckpointError(
            f"can't write {str(folder / CONFIG_FILE)!r}: {error}", "check the room on the disk"
        ) from error


def destinations(model: Stateful, fused: Collection[str] = ()) -> dict[str, Tensor]:
    """Name on disk -> the part of the model it stands for, as a view.

    Args:
        model: may be on the meta device.
        fused: names of experts' tensors that shall stay whole.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        base, _, leaf = name.rpartition(".")
        if name == HEAD and model.config.tie_word_embeddings:
            continue
        if not base.endswith(".experts") or name in fused:
            found[name] = tensor
            continue
        for i, expert in enumerate(tensor):
            if leaf == "down_proj":
                found[f"{base}.{i}.down_proj.weight"] = expert
            else:
                gate, up = expert.chunk(2)
                found[f"{base}.{i}.gate_proj.weight"] = gate
                found[f"{base}.{i}.up_proj.weight"] = up
    return found


def _raw_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    if not path.is_file():
        what = f"has no {CONFIG_FILE}" if folder.is_dir() else "is not a folder"
        raise CheckpointError(
            f"the model {str(folder)!r} {what}{told_of(folder)}",
            "give a model folder; `envgen model init` makes one",
        )
    try:
        raw = json.loads(path.read_bytes())
        if not isinstance(raw, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"can't read {str(path)!r}: {error}", GET_AGAIN) from error
    return raw


def _config_of(folder: Path, raw: Mapping[str, Any]) -> DSAConfig:
    try:
        return DSAConfig.from_hf(raw)
    except ConfigError as error:
        raise CheckpointError(f"the model {str(folder)!r}: {error}", error.hint) from error


def _dtype(raw: Mapping[str, Any], stored: Mapping[str, Stored]) -> torch.dtype:
    """Return the dtype in config.json, else that of the stored embedding."""
    named = str(raw.get("dtype") or raw.get("torch_dtype")).removeprefix("torch.")
    by_name = {name: dtype for dtype, name in _NAMES.items()}
    return by_name.get(named) or WIDE.get(stored[EMBEDDING].dtype, torch.bfloat16)


def _block(folder: Path, raw: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns that share a scale."""
    quantized = raw.get("quantization_config") or {}
    try:
        rows, columns = quantized.get("weight_block_size") or (128, 128)
        if quantized.get("quant_method", "fp8") == "fp8" and min(int(rows), int(columns)) > 0:
            return int(rows), int(columns)
    except (AttributeError, TypeError, ValueError):
        pass
    raise CheckpointError(
        f"the model {str(folder)!r} is quantized in a way that can't be read: {quantized!r}",
        "known: quant_method 'fp8' with a weight_block_size of two numbers",
    )


def _without_mtp(
    stored: Mapping[str, Stored], config: DSAConfig, folder: Path
) -> dict[str, Stored]:
    """The tensors less those of layers behind the last: they predict further tokens ahead."""
    kept = {}
    for name, tensor in stored.items():
        layer = _LAYER.match(name)
        if layer is None or int(layer[1]) < config.num_hidden_layers:
            kept[name] = tensor
    if len(kept) < len(stored):
        logger.info(
            "%s: leaving out %d tensors of multi-token prediction (layers from %d on)",
            folder,
            len(stored) - len(kept),
            config.num_hidden_layers,
        )
    return kept


def _require_fit(
    folder: Path,
    shapes: Mapping[str, Shape],
    stored: Mapping[str, Stored],
    unused: Collection[str],
) -> None:
    """All that is wrong with the names, shapes and dtypes, as one error."""
    both = sorted(shapes.keys() & stored.keys())
    found = {
        "missing": list(map(repr, sorted(shapes.keys() - stored.keys()))),
        "unexpected": list(map(repr, sorted(stored.keys() - shapes.keys() - set(unused)))),
        "of another shape": [
            f"{name!r} is {list(stored[name].shape)} and should be {list(shapes[name])}"
            for name in both
            if stored[name].shape != shapes[name]
        ],
        "of a dtype that can't be read": [
            f"{name!r} is {stored[name].dtype}"
            for name in both
            if not _is_readable(name, stored[name])
        ],
    }
    faults = [f"{len(those)} {what}: {some(those)}" for what, those in found.items() if those]
    if faults:
        raise CheckpointError(
            f"the weights in {str(folder)!r} don't fit its {CONFIG_FILE}; tensors {'; '.join(faults)}",
            "the weights are of another model, or a shard was not copied whole",
        )


def _is_readable(name: str, stored: Stored) -> bool:
    return (
        stored.dtype in WIDE
        or name.endswith(SCALE_SUFFIX)
        or (stored.dtype == FP8 and len(stored.shape) > 1)
    )


def _scale_shape(weight: Shape, block: tuple[int, int]) -> Shape:
    *more, rows, columns = (1, *weight)
    return (*more[1:], -(-rows // block[0]), -(-columns // block[1]))


@torch.no_grad()
def _fill(
    wanted: Mapping[str, Tensor],
    files: WeightFiles,
    scales: Mapping[str, str],
    block: tuple[int, int],
) -> None:
    """Copy every tensor to its place; the scales, which are small, are read first."""
    read = {name: tensor.clone() for name, tensor in files.read(sorted(scales.values()))}
    for name, tensor in files.read([name for name in files.stored if name in wanted]):
        if name in scales:
            tensor = dequantize_blocks(tensor, read[scales[name]], block)
        wanted[name].copy_(tensor)
        del tensor

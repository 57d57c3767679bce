"""Model folders: round trips, foreign layouts, and every way in which a folder can be wrong."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_samples import (
    YARN,
    edit_json,
    ids_of,
    quantized,
    random_model,
    rewrite,
    small_config,
)
from cli_runs import environment
from safetensors.torch import load_file, save_file
from torch import Tensor

from envgen.core.errors import CheckpointError, ConfigError
from envgen.model.checkpoint import read_config
from envgen.model.modeling import DSAForCausalLM, keeps_float32
from envgen.model.weight_files import MAPPED_BYTES, WeightFiles

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "no shared expert": {"n_shared_experts": 0},
    "dense": {"first_k_dense_replace": 3},
    "biased": {"attention_bias": True},
    "yarn, eos list": {"rope": YARN, "eos_token_id": (3, 4)},
}


def same(one: DSAForCausalLM, two: DSAForCausalLM) -> bool:
    """Whether all weights are equal, dtypes included."""
    a, b = one.state_dict(), two.state_dict()
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved model."""
    random_model().save_pretrained(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_saved_model_is_the_same_again(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    model = random_model(**KINDS[kind]).cast(dtype)
    model.save_pretrained(tmp_path / "m")
    again = DSAForCausalLM.from_pretrained(tmp_path / "m")
    assert again.config == model.config == read_config(tmp_path / "m")
    assert same(again, model)
    assert again.dtype == dtype
    assert not again.training
    ids = ids_of(model.config)
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_weights_lie_on_disk_in_the_model_s_dtypes(tmp_path: Path) -> None:
    random_model().cast(torch.bfloat16).save_pretrained(tmp_path)
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        assert tensor.dtype == (torch.float32 if keeps_float32(name) else torch.bfloat16), name
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"


def test_weights_are_as_readable_as_other_files(folder: Path) -> None:
    (folder / "other").write_text("")
    modes = {path.stat().st_mode for path in folder.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_dtype_can_be_chosen(folder: Path, dtype: torch.dtype) -> None:
    loaded = DSAForCausalLM.from_pretrained(folder, dtype=dtype)
    assert same(loaded, random_model().cast(dtype))
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == (torch.float32 if keeps_float32(name) else dtype), name


def test_without_a_dtype_in_the_config_the_embedding_decides(folder: Path) -> None:
    edit_json(folder / "config.json", dtype=None)
    assert DSAForCausalLM.from_pretrained(folder).dtype == torch.float32
    random_model().cast(torch.float16).save_pretrained(folder)
    edit_json(folder / "config.json", dtype=None)
    assert DSAForCausalLM.from_pretrained(folder).dtype == torch.float16
    edit_json(folder / "config.json", torch_dtype="bfloat16")
    assert DSAForCausalLM.from_pretrained(folder).dtype == torch.bfloat16


@pytest.mark.parametrize("path", ["auto", "reference", "masked", "gather"])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_a_cast_model_runs_forward_and_backward(path: Any, dtype: torch.dtype) -> None:
    exact = random_model()
    model, ids = random_model().cast(dtype).train(), ids_of(exact.config)
    out = model(ids, path=path, index_loss="sparse")
    assert out.logits.dtype == dtype
    assert out.index_loss is not None
    (out.logits.float().logsumexp(-1).mean() + out.index_loss).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.dtype == (torch.float32 if keeps_float32(name) else dtype)
        assert weight.grad.isfinite().all()
    wide = torch.stack((out.logits.detach().float().flatten(), exact(ids).logits.flatten()))
    assert wide.corrcoef()[0, 1] > 0.9


def test_casting_keeps_the_head_tied() -> None:
    model = random_model(tie_word_embeddings=True).cast(torch.bfloat16)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_loaded_model_trains(folder: Path) -> None:
    model = DSAForCausalLM.from_pretrained(folder).train()
    model(ids_of(model.config)).logits.logsumexp(-1).mean().backward()
    assert all(weight.grad is not None for weight in model.trunk_parameters())
    tokens_seen = ids_of(model.config).numel()
    assert all(gate.load.sum() == 3 * tokens_seen for gate in model.gates())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_a_model_is_loaded_onto_an_accelerator_and_saved_from_it(folder: Path) -> None:
    model = DSAForCausalLM.from_pretrained(folder, device="cuda")
    assert model.device.type == "cuda"
    model.save_pretrained(folder / "again")
    assert same(DSAForCausalLM.from_pretrained(folder / "again"), random_model())


# Shards


def test_shards_keep_to_their_size(tmp_path: Path) -> None:
    model = random_model().cast(torch.bfloat16)
    model.save_pretrained(tmp_path, max_shard_bytes=20_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(files) > 3
    assert files == sorted(set(index["weight_map"].values()))
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    total = 0
    for file in files:
        held = load_file(tmp_path / file)
        assert all(index["weight_map"][name] == file for name in held)
        size = sum(tensor.nbytes for tensor in held.values())
        assert size <= 20_000 or len(held) == 1
        total += size
    assert total == index["metadata"]["total_size"]
    assert same(DSAForCausalLM.from_pretrained(tmp_path), model)


@pytest.mark.parametrize("limits", [(10**9, 15_000), (15_000, 10**9), (15_000, 25_000)])
def test_saving_again_leaves_no_old_shards(tmp_path: Path, limits: tuple[int, int]) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    random_model(seed=1).save_pretrained(tmp_path, max_shard_bytes=limits[0])
    newer = random_model(seed=2)
    newer.save_pretrained(tmp_path, max_shard_bytes=limits[1])
    assert same(DSAForCausalLM.from_pretrained(tmp_path), newer)
    index = tmp_path / "model.safetensors.index.json"
    named = {"model.safetensors"}
    if index.exists():
        named = {*json.loads(index.read_text())["weight_map"].values(), index.name}
    names = {path.name for path in tmp_path.iterdir()}
    assert names == named | {"config.json", "tokenizer.json"}


def test_a_model_can_be_saved_over_the_files_it_came_from(folder: Path) -> None:
    model = DSAForCausalLM.from_pretrained(folder)
    model.save_pretrained(folder, max_shard_bytes=15_000)
    assert same(DSAForCausalLM.from_pretrained(folder), random_model())


FULL_DISK = """
import resource, sys, torch
from checkpoint_samples import random_model
from envgen.core.errors import CheckpointError
torch.set_num_threads(1)
model = random_model(seed=2)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    model.save_pretrained(sys.argv[1], max_shard_bytes=int(sys.argv[2]))
except CheckpointError as error:
    print(error, error.hint)
"""


def child(code: str, *arguments: object) -> str:
    """What a process of its own prints."""
    helpers = Path(__file__).resolve().parents[1] / "helpers"
    code = f"import sys; sys.path.insert(0, {str(helpers)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("limit", [10**9, 50_000])
def test_a_full_disk_leaves_the_old_model_whole(folder: Path, limit: int) -> None:
    before = {path.name for path in folder.iterdir()}
    output = child(FULL_DISK, folder, limit)
    if limit > 60_000:
        assert "can't write the model" in output
        assert "unharmed" in output
        assert same(DSAForCausalLM.from_pretrained(folder), random_model(seed=1))
        assert {path.name for path in folder.iterdir()} == before
    else:  # the sabotage's control: files below the limit are written
        assert output == ""
        assert same(DSAForCausalLM.from_pretrained(folder), random_model(seed=2))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_shard_holds_at_least_a_byte(tmp_path: Path, limit: int) -> None:
    with pytest.raises(ConfigError, match="max_shard_bytes"):
        random_model().save_pretrained(tmp_path, max_shard_bytes=limit)


# Memory

MEMORY = """
import sys, torch
from pathlib import Path
from envgen.model.checkpoint import read_config
from envgen.model.modeling import DSAForCausalLM

def kilobytes(field):  # unlike ru_maxrss, VmHWM does not start at the parent's size
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])

torch.set_num_threads(1)
folder, what = sys.argv[1:]
with torch.device("meta"):  # torch's first model there imports some 70 MB of it, whatever the size
    DSAForCausalLM(read_config(folder))
if what == "save":
    model = DSAForCausalLM.from_pretrained(folder)
    Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
if what == "save":
    model.save_pretrained(folder + "/again", max_shard_bytes=30_000_000)
else:
    model = DSAForCausalLM.from_pretrained(folder)
print((kilobytes("VmHWM") - before) * 1024 / sum(p.nbytes for p in model.parameters()))
"""


@pytest.fixture(scope="module")
def hundred_megabytes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    model = DSAForCausalLM(
        small_config(
            hidden_size=512, moe_intermediate_size=256, n_routed_experts=32, vocab_size=2_000
        )
    )
    size = sum(weight.nbytes for weight in model.parameters())
    assert 90e6 < size < 140e6, size
    assert size > 4 * MAPPED_BYTES
    model.save_pretrained(folder)
    return folder


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(("what", "most"), [("load", 1.5), ("save", 0.5)])
def test_there_are_never_two_copies(hundred_megabytes: Path, what: str, most: float) -> None:
    share = float(child(MEMORY, hundred_megabytes, what))
    assert share < most
    if what == "load":
        assert share > 0.9  # the measure sees the weights


# Foreign layouts


def test_fused_experts_are_read(folder: Path) -> None:
    state = random_model().state_dict()
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    assert same(DSAForCausalLM.from_pretrained(folder), random_model())


def test_a_tied_head_in_the_file_is_no_stranger(tmp_path: Path) -> None:
    model = random_model(tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    rewrite(tmp_path, lambda t: {**t, "lm_head.weight": t["model.embed_tokens.weight"].clone()})
    assert same(DSAForCausalLM.from_pretrained(tmp_path), model)


def test_layers_of_multi_token_prediction_are_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    extra = {f"model.layers.{i}.eh_proj.weight": torch.ones(2, 2) for i in (3, 4, 11)}
    rewrite(folder, lambda t: {**t, **extra})
    with caplog.at_level(logging.INFO, "envgen.model.checkpoint"):
        assert same(DSAForCausalLM.from_pretrained(folder), random_model())
    (record,) = caplog.records
    assert "leaving out 3 tensors of multi-token prediction" in record.getMessage()
    assert "layers from 3 on" in record.getMessage()


def _as_fp8(folder: Path, block: int, *, fused: bool = False) -> dict[str, Tensor]:
    """Quantise a folder's matrices; returns what they should be read as."""
    expected: dict[str, Tensor] = {}

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if fused:
            tensors = dict(random_model().state_dict())
        out: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            out[name] = expected[name] = tensor
            if tensor.dim() < 2 or "gate.weight" in name or "embed" in name or "lm_head" in name:
                continue
            parts = [quantized(part, block) for part in tensor.view(-1, *tensor.shape[-2:])]
            small, scales = (torch.stack(those) for those in zip(*parts, strict=True))
            if tensor.dim() == 2:
                small, scales = small[0], scales[0]
            out[name], out[f"{name}_scale_inv"] = small, scales
            wide = small.float()
            for place in torch.cartesian_prod(*map(torch.arange, wide.shape)).tolist():
                *more, i, j = place
                wide[(*more, i, j)] *= scales[(*more, i // block, j // block)]
            expected[name] = wide
        return out

    rewrite(folder, change)
    return expected


@pytest.mark.parametrize(
    ("block", "scales"), [(16, [16, 16]), (128, None), (7, [7, 7])], ids=["16", "default", "7"]
)
def test_fp8_is_made_wide_block_by_block(folder: Path, block: int, scales: Any) -> None:
    expected = _as_fp8(folder, block)
    if scales:
        edit_json(
            folder / "config.json",
            quantization_config={"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": scales},
        )
    loaded = DSAForCausalLM.from_pretrained(folder)
    loaded.save_pretrained(folder / "wide")
    wide = load_file(folder / "wide" / "model.safetensors")
    assert wide.keys() == expected.keys()
    for name, tensor in wide.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=0)
    exact, ids = random_model(), ids_of(loaded.config, tokens=8)
    rounded = torch.stack((loaded(ids).logits.flatten(), exact(ids).logits.flatten()))
    assert rounded.corrcoef()[0, 1] > 0.98
    assert DSAForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_fused_fp8_experts_are_read(folder: Path) -> None:
    expected = _as_fp8(folder, 16, fused=True)
    edit_json(folder / "config.json", quantization_config={"weight_block_size": [16, 16]})
    for name, tensor in DSAForCausalLM.from_pretrained(folder).state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "quantization",
    [{"quant_method": "gptq"}, {"weight_block_size": [0, 1]}, {"weight_block_size": 3}, ["fp8"]],
    ids=str,
)
def test_other_quantization_is_refused(folder: Path, quantization: Any) -> None:
    edit_json(folder / "config.json", quantization_config=quantization)
    with pytest.raises(CheckpointError, match="quantized in a way"):
        DSAForCausalLM.from_pretrained(folder)


# Wrong folders


def _drop(*names: str) -> Any:
    return lambda t: {name: tensor for name, tensor in t.items() if name not in names}


NORM, Q, WK = "model.norm.weight", "self_attn.q_a_proj.weight", "self_attn.indexer.wk.weight"
EIGHT = {f"model.layers.1.mlp.experts.{i}.up_proj.weight" for i in range(8)}
CHANGES: dict[str, tuple[Any, str]] = {
    "one missing": (_drop(NORM), f"1 missing: '{NORM}'"),
    "many missing": (
        _drop(*EIGHT),
        r"8 missing: '.*experts\.0\.up_proj\.weight', .*2\.up_proj\.weight' and 5 more",
    ),
    "one unexpected": (
        lambda t: {**t, "model.layers.0.mlp.up_proj.bias": torch.ones(2)},
        r"1 unexpected: 'model\.layers\.0\.mlp\.up_proj\.bias'",
    ),
    "misshapen": (
        lambda t: {**t, f"model.layers.0.{Q}": torch.ones(3, 40)},
        r"1 of another shape: 'model\.layers\.0.*' is \[3, 40\] and should be \[28, 40\]",
    ),
    "integers": (
        lambda t: {**t, NORM: torch.ones(40, dtype=torch.int8)},
        f"1 of a dtype that can't be read: '{NORM}' is I8",
    ),
    "fp8 without a scale": (
        lambda t: {**t, f"model.layers.0.{WK}": torch.ones(16, 40).to(torch.float8_e4m3fn)},
        r"1 missing: 'model.layers.0.*wk\.weight_scale_inv'",
    ),
    "a scale without fp8": (
        lambda t: {**t, f"model.layers.0.{WK}_scale_inv": torch.ones(1, 1)},
        r"1 unexpected: 'model.layers.0.*wk\.weight_scale_inv'",
    ),
    "a scale of another shape": (
        lambda t: {
            **t,
            f"model.layers.0.{WK}": torch.ones(16, 40).to(torch.float8_e4m3fn),
            f"model.layers.0.{WK}_scale_inv": torch.ones(2, 1),
        },
        r"wk\.weight_scale_inv' is \[2, 1\] and should be \[1, 1\]",
    ),
    "a vector in fp8": (
        lambda t: {
            **t,
            NORM: torch.ones(40).to(torch.float8_e4m3fn),
            f"{NORM}_scale_inv": torch.ones(1, 1),
        },
        f"'{NORM}' is F8_E4M3",
    ),
    "no tensors": (lambda t: {}, r"missing: .* and \d\d+ more"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_weights_that_do_not_fit_are_told(folder: Path, what: str) -> None:
    change, message = CHANGES[what]
    rewrite(folder, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        DSAForCausalLM.from_pretrained(folder)
    assert str(folder) in str(caught.value)
    assert caught.value.hint


def test_all_that_is_wrong_is_told_at_once(folder: Path) -> None:
    rewrite(folder, lambda t: {**_drop(NORM)(t), "x": torch.ones(1), "y": torch.ones(1)})
    with pytest.raises(CheckpointError, match=r"1 missing: .*; 2 unexpected: 'x', 'y'"):
        DSAForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("keep", [0, 4, 200, -1])
def test_a_cut_file_is_told(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors', which are cut"):
        DSAForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"can't read .*config\.json"),
        ("[]", "holds no JSON object"),
        ('{"model_type": "llama"}', "model_type 'llama'"),
        ('{"model_type": "deepseek_v32", "vocab_size": -1}', "vocab_size"),
        ('{"model_type": "deepseek_v32", "rope_scaling": {"type": "ntk"}}', "embedding 'ntk'"),
        ('{"model_type": "deepseek_v32", "rope_scaling": ["yarn"]}', "must be an object"),
        ('{"model_type": "deepseek_v32", "mlp_layer_types": 3}', "must be a list of layers"),
        ('{"model_type": "deepseek_v32", "num_hidden_layers": 1000000000}', "num_hidden_layers"),
        ('{"model_type": "deepseek_v32", "vocab_size": 1000000000000}', "vocab_size"),
        ('{"model_type": "deepseek_v32", "routed_scaling_factor": NaN}', "routed_scaling_factor"),
    ],
)
def test_a_wrong_config_is_told(folder: Path, text: str, message: str) -> None:
    (folder / "config.json").write_text(text)
    for load in (DSAForCausalLM.from_pretrained, read_config):
        with pytest.raises(CheckpointError, match=message) as caught:
            load(folder)
        assert caught.value.hint


def test_missing_parts_are_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a folder"):
        DSAForCausalLM.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        DSAForCausalLM.from_pretrained(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="neither model"):
        DSAForCausalLM.from_pretrained(folder)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A saved model in shards."""
    random_model().save_pretrained(tmp_path / "s", max_shard_bytes=50_000)
    return tmp_path / "s"


def test_a_missing_shard_is_told(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=f"names '{shard.name}', not in the folder"):
        DSAForCausalLM.from_pretrained(sharded)


def test_an_index_that_misplaces_a_tensor_is_told(sharded: Path) -> None:
    path = sharded / "model.safetensors.index.json"
    places = json.loads(path.read_text())["weight_map"]
    files = sorted(set(places.values()))
    there = next(name for name, file in places.items() if file == files[0])
    edit_json(path, weight_map={**places, there: files[1]})
    with pytest.raises(CheckpointError, match=f"'{files[1]}' is missing '{there}'"):
        DSAForCausalLM.from_pretrained(sharded)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}'])
def test_a_broken_index_is_told(sharded: Path, text: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match="can't read the weights' index"):
        DSAForCausalLM.from_pretrained(sharded)


@pytest.mark.parametrize("how", ["../outside", "sub/../../outside", "absolute", "..\\outside", ""])
def test_a_shard_outside_the_folder_is_refused(sharded: Path, tmp_path: Path, how: str) -> None:
    shard = sorted(sharded.glob("model-*"))[0]
    outside = tmp_path / "outside"
    shutil.copy(shard, outside)
    path = sharded / "model.safetensors.index.json"
    places = json.loads(path.read_text())["weight_map"]
    aim = str(outside) if how == "absolute" else how
    moved = {n: aim if file == shard.name else file for n, file in places.items()}
    edit_json(path, weight_map=moved)
    with pytest.raises(CheckpointError, match="not inside the model folder"):
        DSAForCausalLM.from_pretrained(sharded)


def test_linked_files_as_download_caches_have_them_are_read(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "model.safetensors", tmp_path / "blob")
    (folder / "model.safetensors").symlink_to("../blob")
    assert same(DSAForCausalLM.from_pretrained(folder), random_model())


def test_a_folder_that_is_a_file_can_t_be_saved_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="can't write the model"):
        random_model().save_pretrained(tmp_path / "file")


def test_tensors_come_in_small_parts(hundred_megabytes: Path) -> None:
    files = WeightFiles(hundred_megabytes)
    total = sum(stored.num_bytes for stored in files.stored.values())
    batches = list(files._batches(list(files.stored)))
    sizes = [sum(files.stored[name].num_bytes for name in batch) for batch in batches]
    assert sum(sizes) == total
    largest = max(stored.num_bytes for stored in files.stored.values())
    assert max(sizes) <= MAPPED_BYTES + largest
    assert [name for batch in batches for name in batch] == list(files.stored)

"""Folders that transformers wrote are read, and folders that we wrote are read by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_samples import YARN, edit_json, ids_of, random_model
from safetensors.torch import load_file

from envgen.model.checkpoint import read_config
from envgen.model.modeling import DSAForCausalLM

transformers = pytest.importorskip("transformers", reason="needs transformers")

TOLERANCE = 2e-5
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "yarn": {"rope": YARN},
    "tied": {"tie_word_embeddings": True},
    "eos list": {"eos_token_id": (1, 5), "bos_token_id": None},
}
SAME_NAMES = (
    "vocab_size hidden_size num_hidden_layers intermediate_size n_routed_experts n_shared_experts "
    "num_experts_per_tok moe_intermediate_size n_group topk_group norm_topk_prob routed_scaling_factor "
    "num_attention_heads q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim "
    "attention_bias index_n_heads index_head_dim index_topk max_position_embeddings rms_norm_eps "
    "initializer_range tie_word_embeddings bos_token_id pad_token_id first_k_dense_replace"
).split()


def theirs(folder: Path) -> Any:
    """transformers' model of a folder, in its readable form."""
    model = transformers.DeepseekV32ForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    )
    return model.eval()


def their_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(ids, use_cache=False).logits
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_our_folder(tmp_path: Path, kind: str) -> None:
    model = random_model(**KINDS[kind])
    model.save_pretrained(tmp_path, max_shard_bytes=80_000)
    config = transformers.DeepseekV32Config.from_pretrained(tmp_path)
    for name in SAME_NAMES:
        assert getattr(config, name) == getattr(model.config, name), name
    eos = config.eos_token_id
    assert tuple(eos if isinstance(eos, list) else [eos]) == model.config.eos_token_ids
    assert config.mlp_layer_types == ["dense", "sparse", "sparse"]
    rope = config.rope_parameters
    assert {name: rope[name] for name in ("rope_theta", "rope_type")} == {
        "rope_theta": model.config.rope.rope_theta,
        "rope_type": model.config.rope.rope_type,
    }
    ids = ids_of(model.config)
    with torch.no_grad():
        ours = model(ids).logits
    torch.testing.assert_close(ours, their_logits(theirs(tmp_path), ids), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("style", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", KINDS)
def test_we_read_transformers_folder(tmp_path: Path, kind: str, style: str) -> None:
    model = random_model(**KINDS[kind])
    model.save_pretrained(tmp_path / "ours")
    other = theirs(tmp_path / "ours")
    other.save_pretrained(tmp_path / "theirs", max_shard_size="100KB")
    if style == "rope_scaling":
        _in_the_older_style(tmp_path / "theirs" / "config.json", model)
    assert read_config(tmp_path / "theirs") == model.config
    again = DSAForCausalLM.from_pretrained(tmp_path / "theirs")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    ids = ids_of(model.config)
    with torch.no_grad():
        torch.testing.assert_close(
            again(ids).logits, their_logits(other, ids), atol=TOLERANCE, rtol=0
        )


def _in_the_older_style(path: Path, model: DSAForCausalLM) -> None:
    rope = model.config.rope.model_dump(exclude={"rope_theta", "rope_type"}, exclude_none=True)
    scaling = {"type": "yarn", **rope} if model.config.rope.rope_type == "yarn" else None
    edit_json(
        path,
        rope_parameters=None,
        rope_scaling=scaling,
        rope_theta=model.config.rope.rope_theta,
        mlp_layer_types=None,
        layer_types=None,
        head_dim=None,
    )


def test_tensor_names_on_disk_are_theirs(tmp_path: Path) -> None:
    random_model().save_pretrained(tmp_path / "ours")
    theirs(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    ours, other = (load_file(tmp_path / who / "model.safetensors") for who in ("ours", "theirs"))
    assert ours.keys() == other.keys()
    assert all(torch.equal(ours[name], other[name]) for name in ours)

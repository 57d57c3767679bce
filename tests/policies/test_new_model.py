"""New model folders: what is in them, and what can't be made."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from tiny_dataset import write_tiny_dataset

from envgen.core.errors import ConfigError
from envgen.core.types import Message
from envgen.model.checkpoint import read_config
from envgen.model.config import PRESETS
from envgen.model.modeling import DSAForCausalLM
from envgen.model.tokenizer import Tokenizer
from envgen.policies.encoding import load_encoding
from envgen.policies.new_model import NewModelConfig, new_model

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}


def config(**changes: Any) -> NewModelConfig:
    return NewModelConfig(**{"preset": "tiny", "model": SMALL, "vocab_size": 400, **changes})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_dataset(tmp_path_factory.mktemp("data") / "ds").path


@pytest.fixture(scope="module")
def folder(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a tokenizer trained on the dataset."""
    folder = tmp_path_factory.mktemp("models") / "m"
    new_model(config(), dataset, folder)
    return folder


def test_a_folder_is_whole(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "encoding.json"}
    assert [path.name for path in folder.parent.iterdir()] == ["m"]
    model, encoding = DSAForCausalLM.from_pretrained(folder), load_encoding(folder)
    assert model.config.vocab_size == encoding.tokenizer.vocab_size <= 400
    assert model.config.eos_token_ids == encoding.stop_ids
    assert model.config.bos_token_id is None
    prompt = encoding.prompt([Message(role="user", content="Which hotels are there?")], [])
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits
    assert logits.isfinite().all()
    assert logits.std() > 0


def test_the_tokenizer_knows_the_dataset(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    assert "list_hotels" in tokenizer.words
    assert tokenizer.vocab_size > 256 + len(tokenizer.words) + len(tokenizer.control)  # merges, too


def test_the_same_seed_gives_the_same_bytes(folder: Path, dataset: Path, tmp_path: Path) -> None:
    new_model(config(), dataset, tmp_path / "again")
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    new_model(config(seed=1), dataset, tmp_path / "other")
    weights = "model.safetensors"
    assert (folder / weights).read_bytes() != (tmp_path / "other" / weights).read_bytes()


def test_dsml_has_deepseek_s_beginning_and_end(dataset: Path, tmp_path: Path) -> None:
    asked = {"kind": "dsml", "thinking": True}
    found = new_model(config(encoding=asked, vocab_size=600), dataset, tmp_path / "m")
    tokenizer = Tokenizer.load(tmp_path / "m")
    assert found.bos_token_id == tokenizer.control["<\uff5cbegin\u2581of\u2581sentence\uff5c>"]
    assert found.eos_token_id == tokenizer.control["<\uff5cend\u2581of\u2581sentence\uff5c>"]
    assert load_encoding(tmp_path / "m").config.thinking
    assert read_config(tmp_path / "m") == found


def test_a_tokenizer_and_its_encoding_can_be_copied(dataset: Path, tmp_path: Path) -> None:
    asked = {"kind": "dsml", "thinking": True}
    new_model(config(encoding=asked, vocab_size=600), dataset, tmp_path / "m")
    padded = new_model(config(vocab_size=1_000), tmp_path / "m", tmp_path / "padded")
    assert padded.vocab_size == 1_000
    for name in ("tokenizer.json", "encoding.json"):
        assert (tmp_path / "padded" / name).read_bytes() == (tmp_path / "m" / name).read_bytes()
    plain = new_model(config(vocab_size=None), tmp_path / "m", tmp_path / "plain")
    assert plain.vocab_size == Tokenizer.load(tmp_path / "m").vocab_size


def test_a_copied_tokenizer_must_fit(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the model should have 300"):
        new_model(config(vocab_size=300), folder, tmp_path / "m")
    with pytest.raises(ConfigError, match=r"begin.of.sentence"):
        new_model(config(encoding={"kind": "dsml"}), folder, tmp_path / "m")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "nobody"}, "unknown preset 'nobody'"),
        ({"model": {"index_topk": 0}}, "index_topk"),
        ({"model": {"index_topk": "many"}}, "index_topk"),
        ({"model": {"rope": {"rope_type": "yarn"}}}, "yarn needs"),
        ({"model": {"n_group": 3}}, "n_group must divide"),
        ({"encoding": {"kind": "morse"}}, "encoding.kind"),
        ({"encoding": {"tool": "names"}}, "encoding.tool"),
        ({"model": {"index_topc": 3}}, "model.index_topc"),
        ({"model": {"rope": 3}}, "model.rope"),
        ({"model": 3}, "model"),
        ({"model": {"vocab_size": 3}}, "comes from the tokenizer"),
        ({"model": {"eos_token_id": 3}}, "comes from the tokenizer"),
        ({"encoding": {"kind": "dsml", "results": "table"}}, "has no results"),
        ({"vocab_size": 100}, "vocab_size"),
        ({"vocab_size": 258}, "has no room"),
        ({"preset": "deepseek-v3.2", "model": {}}, r"2\d\d\d GB"),
    ],
)
def test_what_can_t_be_made(
    dataset: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, ValidationError), match=message) as caught:
        new_model(config(**changes), dataset, tmp_path / "m")
    assert not any(tmp_path.iterdir())
    assert "Traceback" not in str(caught.value)


def test_nothing_is_overwritten(folder: Path, dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "m")
    with pytest.raises(ConfigError, match="is there already"):
        new_model(config(), dataset, tmp_path / "m")
    (tmp_path / "empty").mkdir()
    new_model(config(), dataset, tmp_path / "empty")
    assert (tmp_path / "empty" / "config.json").exists()


def test_rope_keeps_what_is_not_overridden(dataset: Path, tmp_path: Path) -> None:
    base = PRESETS["tiny"].rope
    changes = {**SMALL, "rope": {"rope_theta": 5_000.0}}
    found = new_model(config(model=changes), dataset, tmp_path / "m")
    assert found.rope == base.model_copy(update={"rope_theta": 5_000.0})

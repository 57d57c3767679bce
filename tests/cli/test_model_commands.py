"""model init and model info."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runs import Cli, envgen

from envgen.cli.records import number
from envgen.model.cost import Cost, cost
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import load_encoding

SIZES = ("hidden_size=32", "num_hidden_layers=2", "intermediate_size=48")
SMALL = tuple(word for size in SIZES for word in ("-c", f"model.{size}"))


def test_a_model_is_made_and_told(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    result = cli(
        "model", "init", "--preset", "tiny", "--tokenizer", dataset, "--out", "m",
        "--vocab-size", "400", "--encoding", "compact", "-c", "encoding.tools=signatures", *SMALL,
        "--json", "made.json",
    )  # fmt: skip
    assert result.code == 0, result
    assert result.out.split()[0] == "m"
    assert re.search(r"^num hidden layers +2$", result.out, re.MULTILINE)
    model = DSAForCausalLM.from_pretrained("m")
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (32, 2)
    assert load_encoding("m").config.tools == "signatures"
    result = cli("model", "info", "m", "--context", "5000", "--json", "told.json")
    assert result.code == 0, result
    for line in (r"context +5000", r"encoding +compact", r"decode bytes: dense bf16 +\d.*"):
        assert re.search(f"^{line}$", result.out, re.MULTILINE)
    assert "Operations of one token's forward pass" in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())
    created, described = (json.loads(Path(name).read_text()) for name in ("made.json", "told.json"))
    assert created["config"] == described["config"] == model.config.to_hf()
    assert Cost.model_validate(described["cost"]) == cost(model.config, 5_000)
    size = sum(weight.nbytes for weight in model.state_dict().values())
    assert described["weights"]["bytes"] == {"F32": size}
    assert described["tokens"] == model.config.vocab_size


def test_a_copied_tokenizer_brings_its_encoding(cli: Cli, dataset: Path) -> None:
    shared = ("model", "init", "--preset", "tiny", "--vocab-size", "600", *SMALL)
    assert cli(*shared, "--tokenizer", dataset, "--encoding", "dsml", "--out", "a").code == 0
    assert cli(*shared, "--tokenizer", "a", "--out", "b", "--seed", 1).code == 0
    assert load_encoding("b").config.kind == "dsml"
    assert Path("a/tokenizer.json").read_bytes() == Path("b/tokenizer.json").read_bytes()
    result = cli(*shared, "--tokenizer", "a", "--out", "b")
    assert result.code == 2
    assert "'b' is there already" in result.err


def test_the_release_is_told_without_weights(cli: Cli) -> None:
    result = cli("model", "info", "--preset", "deepseek-v3.2", "--json", "x.json")
    assert result.code == 0
    for line in (r"total +671\.9 G", r"active +38\.40 G", r"context +131072"):
        assert re.search(f"^{line}$", result.out, re.MULTILINE)
    assert "weights" not in result.out.partition("parameters")[0]
    assert all(len(line) <= 80 for line in result.out.splitlines())
    assert json.loads(Path("x.json").read_text())["cost"]["cache"][1]["latent"] == 61 * 656


def test_a_folder_without_weights_is_told(cli: Cli, dataset: Path) -> None:
    words = ("--preset", "tiny", "--vocab-size", "400", *SMALL)
    assert cli("model", "init", *words, "--tokenizer", dataset, "--out", "m").code == 0
    Path("m/model.safetensors").unlink()
    result = cli("model", "info", "m")
    assert result.code == 0
    assert re.search(r"^weights:? +none", result.out, re.MULTILINE)


@pytest.mark.parametrize(
    "override", ["model.index_topk", "model.index_topc=4", "model.vocab_size=4", "model.n_group=3"]
)
def test_wrong_overrides(cli: Cli, dataset: Path, override: str) -> None:
    words = ("--preset", "tiny", "--tokenizer", dataset, "--out", "m", "-c", override)
    result = cli("model", "init", *words)
    assert result.code == 2
    assert "error: " in result.err
    assert "hint: " in result.err
    assert not Path("m").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (99_990, "99990"),
        (0.33333, "0.3333"),
        (1_144_320, "1.14 M"),
        (671_877_929_216, "671.9 G"),
        (2_300_000_000_000, "2.30 T"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_info_of_a_preset_does_not_load_torch() -> None:
    result = envgen("model", "info", "--preset", "tiny", PYTHONPROFILEIMPORTTIME="1")
    assert result.code == 0
    imported = re.findall(r"\|\s+([\w.]+)$", result.err, re.MULTILINE)
    assert "envgen.model.cost" in imported
    assert "torch" not in imported

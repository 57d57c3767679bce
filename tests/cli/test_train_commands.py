"""train sft, train indexer, train grpo and eval, one after the other on real tasks."""

from __future__ import annotations

import json
import os
import sys
import threading
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Cli
from students import School, school


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> School:
    return school(tmp_path_factory.mktemp("school"))


def test_from_a_new_model_to_an_evaluated_policy(cli: Cli, taught: School, tmp_path: Path) -> None:
    data = (taught.dataset,)
    result = cli(
        "train", "sft", *data, "--model", taught.model, "--teacher", "gold", "--epochs", 40,
        "--lr", 0.004, "--split", "all", "-c", "validation_rows=0", "--threads", 1,
        "--out", "sft", "--json", "sft.json",
    )  # fmt: skip
    assert result.code == 0, result
    assert "validation loss" not in result.out
    assert "first loss" in result.out
    assert json.loads(Path("sft.json").read_text())["rows"] == 10

    result = cli(
        "train", "indexer", "--stage", "warmup", *data, "--model", "sft/last", "--rollouts",
        taught.gold, "--split", "all", "--threads", 1, "--out", "warm",
    )  # fmt: skip
    assert result.code == 0, result
    assert "first loss" in result.out

    result = cli(
        "train", "grpo", *data, "--model", "warm/last", "--steps", 2, "--groups", 2,
        "--group-size", 4, "--split", "all", "-c", "sampling.max_new_tokens=40",
        "-c", "objective.kl_coef=0.01", "--threads", 1, "--out", "grpo", "--json", "grpo.json",
    )  # fmt: skip
    assert result.code == 0, result
    assert json.loads(Path("grpo.json").read_text())["rollouts"] == 16

    evaluation = ("eval", *data, "--split", "all", "--max-tokens", 40)
    result = cli(*evaluation, "--model", "warm/last", "--temperature", "0", "--out", "before")
    assert result.code == 0, result
    result = cli(
        *evaluation, "--model", "grpo/last", "--k", "1,2", "--out", "after", "--against", "before",
        "--json", "after.json",
    )  # fmt: skip
    assert result.code == 0, result
    for part in ("pass@1", "pass@2", "against before", "call valid rate"):
        assert part in result.out, result.out
    assert not list(Path("after").rglob("*.npz"))  # nobody trains on it
    report = json.loads(Path("after.json").read_text())
    assert (
        report["temperatures"]["0.0"]["pass_at"]["1"]["value"] > 0.5
    )  # it learnt these very tasks


def test_a_dense_cold_start_leaves_the_indexer_for_its_own_stage(cli: Cli, taught: School) -> None:
    result = cli(
        "train", "sft", taught.dataset, "--model", taught.model, "--rollouts",
        taught.gold, "--attention", "dense", "--split", "all", "--threads", 1, "--out", "dense",
    )  # fmt: skip
    assert result.code == 0, result
    settings = json.loads(Path("dense/settings.json").read_text())
    assert settings["optimizer"]["indexer"] == "frozen"


def test_a_split_that_is_not_there_is_told_with_those_that_are(cli: Cli, taught: School) -> None:
    result = cli("eval", taught.dataset, "--model", "gold", "--out", "e")
    assert result.code == 2
    assert "has no task in split 'test': 10 in 'train'" in result.err
    assert "give --split train" in result.err


def test_threads_are_those_asked_for_or_of_the_environment_or_one_per_core(
    cli: Cli, taught: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def threads(*asked: object) -> int:
        torch.set_num_threads(3)
        result = cli(
            "train", "sft", taught.dataset, "--model", taught.model, "--device", "nowhere",
            "--out", "nothing", *asked,
        )  # fmt: skip
        assert result.code == 2
        return torch.get_num_threads()

    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert threads() == 3
        assert threads("--threads", 2) == 2
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert threads() == os.cpu_count()
    finally:
        torch.set_num_threads(before)


class NoTorch(MetaPathFinder):
    """Finds all but PyTorch, and notes which threads run when it is asked for."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.others = list(sys.meta_path)

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name == "torch":
            self.threads = {thread.name for thread in threading.enumerate()}
            return None
        found = (other.find_spec(name, path, target) for other in self.others)
        return next((spec for spec in found if spec is not None), None)


@pytest.mark.parametrize(
    "command", [("sft",), ("grpo",), ("indexer", "--stage", "warmup")], ids=lambda c: c[0]
)
def test_progress_is_shown_before_pytorch_is_imported(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    finder = NoTorch()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [finder])
    assert cli("train", *command, "ds", "--model", "m", "--out", "o").code == 2
    assert "progress" in finder.threads


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("steps", "sets nothing"),
        ("stepz=3", "unknown setting 'stepz'; did you mean 'steps'?"),
        ("objective.clip=1", "unknown setting 'objective.clip'"),
        ("steps.more=1", "--steps: Input should be a valid integer"),
        ("steps=none", "--steps: Input should be a valid integer"),
        ("objective=3", "'objective' is a table"),
        ("objective.tis_cap=2", 'needs old="recomputed"'),
    ],
)
def test_wrong_settings_are_told(cli: Cli, item: str, message: str) -> None:
    result = cli("train", "grpo", "ds", "--model", "m", "--out", "o", "-c", item)
    assert result.code == 2
    assert message in result.err
    assert "hint: " in result.err


@pytest.mark.parametrize(
    "command", [("sft",), ("grpo",), ("indexer", "--stage", "warmup")], ids=lambda c: c[0]
)
def test_without_the_extra_it_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = cli("train", *command, "ds", "--model", "m", "--out", "o")
    assert result.code == 2
    assert "training needs torch" in result.err
    assert "pip install 'envgen-gym[train]'" in result.err

"""Every example runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import ROOT, environment
from tiny_dataset import write_tiny_dataset

LINES = 300
"""Most that a page has."""


def run(name: str, *arguments: object) -> str:
    result = subprocess.run(
        [sys.executable, "-P", str(ROOT / "examples" / name), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_step_by_hand(tmp_path: Path) -> None:
    dataset = write_tiny_dataset(tmp_path / "ds")
    output = run("step_by_hand.py", dataset.path, "tiny-pair")
    assert "no_such_tool" in output
    assert "reward 0.0, terminated True" in output


@pytest.mark.slow
def test_filter_by_pass_at_k(tmp_path: Path) -> None:
    output = run("filter_by_pass_at_k.py", tmp_path)
    assert "proven tasks" in output
    assert "kept: " in output


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 4 minutes of processor time
def test_grpo_in_one_page_learns(tmp_path: Path) -> None:
    """From a cold start that does as one of two teachers, the reward rises, KL term and clip at work."""
    from students import school

    from envgen.train.cold_start import train_sft
    from envgen.train.config import ColdStartConfig, OptimizerConfig

    taught = school(tmp_path / "school", per_task=40)
    config = ColdStartConfig(
        data=str(taught.dataset),
        rollouts=(str(taught.gold), str(taught.greedy)),
        model=str(taught.model),
        epochs=30,
        validation_rows=0,
        optimizer=OptimizerConfig(lr=4e-3, warmup_steps=5),
    )
    train_sft(config, tmp_path / "student")
    output = run(
        "grpo_in_one_page.py",
        *("--data", taught.dataset, "--model", tmp_path / "student" / "last"),
        *("--out", tmp_path / "page", "--steps", 48, "--groups", 4, "--held-out", 4),
        *("--group-size", 8, "--max-turns", 3, "--warmup", 1),
        *("--beta", 0.01, "--mini-batches", 2, "--max-tokens", 400),
    )
    rewards = [float(text) for text in re.findall(r"step \d+: reward (\S+)", output)]
    assert len(rewards) == 48
    assert sum(rewards[-12:]) / 12 > sum(rewards[:12]) / 12 + 0.1, str(rewards)
    assert re.search(r"after: held-out pass@1 \d", output)
    assert (tmp_path / "page" / "model.safetensors").exists()


def test_the_page_is_a_page_and_names_files_that_there_are() -> None:
    text = (ROOT / "examples" / "grpo_in_one_page.py").read_text()
    assert text.count("\n") <= LINES
    for equation in ("eq. 5", "eq. 6", "Eq. 7", "eq. 8", "Eq. 9"):
        assert equation in text
    assert "envgen.train" not in "".join(line for line in text.splitlines() if "import" in line)
    named = set(re.findall(r"\b(\w+\.py)\b", text)) - {"grpo_in_one_page.py"}
    assert len(named) > 10
    for name in named:
        assert (ROOT / "envgen" / "train" / name).exists(), name


def test_every_example_is_run() -> None:
    here = Path(__file__).read_text()
    for example in (ROOT / "examples").glob("*.py"):
        assert f'"{example.name}"' in here

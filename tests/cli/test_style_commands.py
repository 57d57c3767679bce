"""A cold start by prompting as a user types it: three collections, one training run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Cli
from model_server import ModelServer
from styled_replies import LIST, STYLES, SUBMIT, good, says, scripted
from tiny_models import write_random_model

from envgen.policies.encoding import EncodingConfig

CHEAPEST = ("--task", "tiny-cheapest", "--backend", "inline", "--no-preflight")


def test_three_kinds_are_collected_and_learnt_from_at_once(cli: Cli, dataset: Path) -> None:
    write_random_model(Path("m"), EncodingConfig(kind="compact"))
    runs: list[str] = []
    with ModelServer([good]) as server:
        for style in STYLES:
            runs += ["--rollouts", style]
            result = cli(
                "rollout", dataset, "--policy", f"openai:m@{server.url}", "--option", "stream=false",
                "--style", style, *CHEAPEST, "--out", style,
            )  # fmt: skip
            assert result.code == 0, result.err
            assert "leaves it out" not in result.err
    with ModelServer([scripted([says("", LIST, thought="hm"), says("", SUBMIT)])]) as server:
        result = cli(
            "rollout", dataset, "--policy", f"openai:m@{server.url}", "--option", "stream=false",
            "--style", "agent", *CHEAPEST, "--out", "bad", "--json", "bad.json",
        )  # fmt: skip
    why = "there is reasoning where none was asked for"
    assert f"1 x no agent record, `train sft` leaves it out: {why}" in result.err
    assert json.loads(Path("bad.json").read_text())["misfits"] == {why: 1}
    result = cli(
        "train", "sft", dataset, "--model", "m", *runs, "--rollouts", "bad",
        "-c", "validation_rows=0", "--threads", 1, "--out", "sft", "--json", "sft.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert json.loads(Path("sft.json").read_text())["rows"] == 3
    output = " ".join(result.err.split())
    assert f"left out: 1 rollouts of another style than asked (agent: {why})" in output


@pytest.mark.parametrize("style", ["thinking", ""])
def test_unknown_styles_are_refused(cli: Cli, dataset: Path, style: str) -> None:
    result = cli("rollout", dataset, "--policy", "random", "--style", style, "--out", "x")
    assert result.code == 2
    assert "thinking-agent" in result.err

"""GRPO on a code task: the model works in a sandbox, and the project's own tests reward it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import toy_python

from envgen.core.errors import ConfigError
from envgen.core.types import Message, ToolCall
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.new_model import NewModelConfig, new_model
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.train.cold_start import train_sft
from envgen.train.config import ColdStartConfig, OptimizerConfig, SamplingConfig, TrainGRPOConfig
from envgen.train.grpo_run import train_grpo
from envgen.train.metrics import read_metrics
from envgen.train.rewards import RewardConfig

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


class Cold(NamedTuple):
    """A code task, and a model that mends it in some of its rollouts."""

    dataset: Path
    model: Path


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Cold:
    """The cold start saw the right patch once and a wrong one once; they differ in one character."""
    folder = tmp_path_factory.mktemp("code")
    fixed = toy_python.CART.replace("sum(price for", "sum(price * count for")
    fix = {"src/shop/cart.py": fixed.encode(), "tests/test_cart.py": toy_python.NEW_TESTS.encode()}
    dataset = folder / "ds"
    assert toy_python.generated(toy_python.clone(folder / "clone", fix), dataset).tasks == 1
    runs = []
    for name, operator, passed in (("right", "*", 1), ("wrong", "+", 0)):
        script = folder / f"{name}.json"
        script.write_text(json.dumps([one.model_dump() for one in patch(operator)]))
        found = rollout(
            RolloutConfig(
                dataset=str(dataset),
                policy=PolicyConfig(spec=f"scripted:{script}"),
                out=str(folder / name),
            )
        )
        assert found.passed == passed
        runs.append(str(folder / name))
    new_model(
        NewModelConfig(
            preset="tiny",
            model={"num_hidden_layers": 2, "index_topk": 96, "initializer_range": 0.06},
            encoding={"kind": "compact", "tools": "names", "results": "table", "system": False},
            vocab_size=500,
        ),
        dataset,
        folder / "model",
    )
    lessons = ColdStartConfig(
        data=str(dataset),
        rollouts=tuple(runs),
        model=str(folder / "model"),
        split=None,
        epochs=40,
        validation_rows=0,
        optimizer=OptimizerConfig(lr=4e-3, warmup_steps=5),
    )
    train_sft(lessons, folder / "sft")
    return Cold(dataset, (folder / "sft" / "last").resolve())


def patch(operator: str) -> tuple[Message, Message]:
    """An episode: an edit, then the submission."""
    line = f"sed -i 's/(price for/(price {operator} count for/' src/shop/cart.py"
    calls = (
        ToolCall(id="a", name="bash", arguments={"command": line}),
        ToolCall(id="b", name="submit", arguments={}),
    )
    edit, submit = (Message(role="assistant", tool_calls=(call,)) for call in calls)
    return edit, submit


def config_of(taught: Cold, **sampling: Any) -> TrainGRPOConfig:
    return TrainGRPOConfig(
        data=str(taught.dataset),
        model=str(taught.model),
        split=None,
        steps=2,
        sampling=SamplingConfig(groups=1, group_size=6, max_new_tokens=60, max_turns=3, **sampling),
        rewards=RewardConfig(length=0.0, language=0.0),
        save_every=2,
    )


def test_a_patch_that_mends_the_fault_is_rewarded_and_learnt_from(
    taught: Cold, tmp_path: Path
) -> None:
    summary = train_grpo(config_of(taught, backend="bubblewrap", concurrency=2), tmp_path)
    assert summary.rollouts == 12
    lines = read_metrics(tmp_path)
    assert [line["rollout/errored"] for line in lines] == [0, 0]
    # Some mend it and some do not, so there is something to learn.
    assert any(0 < line["reward/pass_rate"] < 1 for line in lines), lines
    assert any(line.get("update/grad_norm", 0) > 0 for line in lines)
    before, after = (
        dict(DSAForCausalLM.from_pretrained(folder).named_parameters())
        for folder in (taught.model, tmp_path / "last")
    )
    assert any(not before[name].equal(after[name]) for name in before)


def test_a_backend_that_code_tasks_lack_is_refused_before_the_run_begins(
    taught: Cold, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="code tasks don't run with backend 'inline'"):
        train_grpo(config_of(taught, backend="inline"), tmp_path / "run")
    assert not (tmp_path / "run").exists()

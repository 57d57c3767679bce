from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from students import School

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError, ResumeError
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.checkpoints import Checkpoints
from envgen.train.cold_start import train_sft
from envgen.train.config import ColdStartConfig, OptimizerConfig
from envgen.train.metrics import read_metrics
from envgen.train.optimize import DivergedError

pytestmark = pytest.mark.xdist_group("school")


def config_of(taught: School, **changes: object) -> ColdStartConfig:
    base: dict[str, object] = {
        "data": str(taught.dataset),
        "rollouts": (str(taught.gold), str(taught.greedy)),
        "model": str(taught.model),
        "epochs": 2,
        "tokens_per_batch": 1_500,
        "save_every": 2,
        "validation_rows": 4,
        "split": None,
        "optimizer": OptimizerConfig(lr=3e-3, warmup_steps=2),
    }
    return ColdStartConfig.model_validate(base | changes)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(DSAForCausalLM.from_pretrained(folder).state_dict())


def test_learns_and_leaves_a_model_folder(taught: School, tmp_path: Path) -> None:
    summary = train_sft(config_of(taught), tmp_path / "sft")
    figures = read_metrics(tmp_path / "sft")
    losses = [line["sft/loss"] for line in figures if "sft/loss" in line]
    assert len(losses) == summary.steps
    assert losses[-1] < 0.9 * losses[0]
    before, after = weights(taught.model), weights(tmp_path / "sft" / "last")
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(".indexer." in name for name in moved)
    assert any("lm_head" in name for name in moved)
    assert (tmp_path / "sft" / "last" / "encoding.json").exists()


def test_a_frozen_indexer_stays(taught: School, tmp_path: Path) -> None:
    optimizer = OptimizerConfig(indexer="frozen")
    train_sft(config_of(taught, epochs=0.5, optimizer=optimizer), tmp_path / "sft")
    before, after = weights(taught.model), weights(tmp_path / "sft" / "last")
    assert all(torch.equal(before[n], after[n]) for n in before if ".indexer." in n)
    assert not torch.equal(before["lm_head.weight"], after["lm_head.weight"])


class _StopError(Exception):
    pass


def test_a_stopped_run_goes_on_to_the_same_bits(taught: School, tmp_path: Path) -> None:
    config = config_of(taught)

    def stop(step: int, steps: int, text: str) -> None:
        if step == 3:
            raise _StopError

    summary = train_sft(config, tmp_path / "whole")
    with pytest.raises(_StopError):
        train_sft(config, tmp_path / "cut", progress=stop)
    assert (tmp_path / "cut" / "last").resolve().name == "step-000002"
    resumed = train_sft(config, tmp_path / "cut")
    assert (resumed.tokens, resumed.loss) == (summary.tokens, summary.loss)
    whole, cut = weights(tmp_path / "whole" / "last"), weights(tmp_path / "cut" / "last")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    lines = [
        [
            {k: v for k, v in line.items() if k != "seconds"}
            for line in read_metrics(tmp_path / name)
        ]
        for name in ("whole", "cut")
    ]
    assert lines[0] == lines[1]


def test_a_finished_run_tells_the_same_again(taught: School, tmp_path: Path) -> None:
    config = config_of(taught, epochs=0.5)
    summary = train_sft(config, tmp_path / "sft")
    again = train_sft(config, tmp_path / "sft")
    assert summary.tokens_per_second > 0
    assert again == summary


def test_another_config_is_not_resumed(taught: School, tmp_path: Path) -> None:
    train_sft(config_of(taught, epochs=0.5), tmp_path / "sft")
    with pytest.raises(ResumeError, match="another config"):
        train_sft(config_of(taught, epochs=1, teachers=("gold",)), tmp_path / "sft")
    assert not (tmp_path / "sft" / "teachers").exists()


@pytest.mark.parametrize(
    "change", [{"step": -1}, {"config_hash": "x"}, {"optimizer": 3}, {"more": 1}]
)
def test_a_checkpoint_that_is_none_is_not_resumed(
    tmp_path: Path, change: dict[str, object]
) -> None:
    kept = Checkpoints(tmp_path, {"seed": 1}, tmp_path)
    folder = tmp_path / "step-000001"
    folder.mkdir()
    (tmp_path / "last").symlink_to(folder.name)
    state = {"step": 1, "config_hash": content_hash({"seed": 1}), "optimizer": [{"state": {0: 1}}]}
    torch.save(state, folder / "trainer.pt")
    found = kept.resume()
    assert found is not None
    assert found[1].step == 1
    torch.save({**state, **change}, folder / "trainer.pt")
    with pytest.raises(ResumeError, match="can't read"):
        kept.resume()


def test_nothing_to_learn_from_is_an_error_before_any_step(taught: School, tmp_path: Path) -> None:
    model = DSAForCausalLM.from_pretrained(taught.model)
    short = model.config.model_copy(update={"max_position_embeddings": 8})
    DSAForCausalLM(short).save_pretrained(tmp_path / "short")
    for name in ("tokenizer.json", "encoding.json"):
        (tmp_path / "short" / name).write_bytes((taught.model / name).read_bytes())
    with pytest.raises(ConfigError, match="nothing to learn"):
        train_sft(config_of(taught, model=str(tmp_path / "short")), tmp_path / "sft")
    assert not list((tmp_path / "sft").glob("step-*"))


def test_too_little_to_learn_from_is_told_with_what_to_do(
    taught: School, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    summary = train_sft(config_of(taught, epochs=1), tmp_path)
    expected = f"{summary.rows} rows make {summary.steps} steps, of 1500 tokens each"
    assert expected in caplog.text
    assert "raise --epochs (1 now)" in caplog.text
    assert summary.first_loss >= summary.loss


def test_a_tokenizer_that_does_not_fit_is_refused(taught: School, tmp_path: Path) -> None:
    model = DSAForCausalLM.from_pretrained(taught.model)
    DSAForCausalLM(model.config.model_copy(update={"vocab_size": 100})).save_pretrained(
        tmp_path / "m"
    )
    for name in ("tokenizer.json", "encoding.json"):
        (tmp_path / "m" / name).write_bytes((taught.model / name).read_bytes())
    config = config_of(taught, model=str(tmp_path / "m"), rollouts=(), teachers=("gold",))
    with pytest.raises(ConfigError, match="the model 100"):
        train_sft(config, tmp_path / "sft")
    assert not (tmp_path / "sft").exists()  # no teacher was played


def test_divergence_stops_with_the_batch_saved(taught: School, tmp_path: Path) -> None:
    model = DSAForCausalLM.from_pretrained(taught.model)
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    model.save_pretrained(tmp_path / "m")
    for name in ("tokenizer.json", "encoding.json"):
        (tmp_path / "m" / name).write_bytes((taught.model / name).read_bytes())
    with pytest.raises(DivergedError, match="loss is nan in step 0"):
        train_sft(config_of(taught, model=str(tmp_path / "m")), tmp_path / "sft")
    saved = torch.load(tmp_path / "sft" / "diverged.pt", weights_only=True)
    assert saved["step"] == 0
    assert all(len(ids) > 50 for ids in saved["ids"])


def test_teachers_are_played_and_only_tasks_of_the_split_are_learnt(
    taught: School, tmp_path: Path
) -> None:
    config = config_of(taught, rollouts=(), teachers=("gold", "hasty:0.5"), split=None, epochs=0.2)
    summary = train_sft(config, tmp_path / "all")
    assert sorted(path.name for path in (tmp_path / "all/teachers").iterdir()) == [
        "gold",
        "hasty_0.5",
    ]
    dataset = open_dataset(taught.dataset)
    assert summary.rows == 2 * len(dataset.tasks) - 2  # a tenth is set aside
    splits = Counter(task.split for _, task in dataset.tasks.items())
    split, _ = splits.most_common(1)[0]
    kept = config.model_copy(update={"split": split})
    rows = train_sft(kept, tmp_path / "same").rows
    assert 0 < rows <= summary.rows
    assert (rows == summary.rows) == (len(splits) == 1)
    other = next(name for name in ("train", "validation", "test") if name not in splits)
    with pytest.raises(ConfigError, match="nothing to learn"):
        train_sft(config.model_copy(update={"split": other}), tmp_path / "other")


def test_the_warm_up_moves_the_indexer_alone_and_the_dense_stage_the_trunk_alone(
    taught: School, tmp_path: Path
) -> None:
    before = weights(taught.model)
    indexer = {name for name in before if ".indexer." in name}
    for name, moving, changes in (
        ("warm-up", indexer, {"attention": "dense", "trunk": "frozen"}),
        (
            "dense",
            set(before) - indexer,
            {"attention": "dense", "optimizer": OptimizerConfig(lr=1e-3, indexer="frozen")},
        ),
    ):
        config = config_of(taught, epochs=0.2, **changes)
        summary = train_sft(config, tmp_path / name)
        figure = "index/loss" if name == "warm-up" else "sft/loss"
        losses = [line[figure] for line in read_metrics(tmp_path / name) if figure in line]
        assert (summary.first_loss, summary.loss) == (losses[0], losses[-1])
        after = weights(tmp_path / name / "last")
        moved = {key for key, weight in after.items() if not torch.equal(weight, before[key])}
        assert moved
        assert moved <= moving, name


def test_a_config_that_teaches_nothing_is_refused(taught: School) -> None:
    with pytest.raises(ValueError, match="no rollouts to learn from"):
        config_of(taught, rollouts=())
    with pytest.raises(ValueError, match="both frozen"):
        config_of(taught, trunk="frozen", optimizer=OptimizerConfig(indexer="frozen"))

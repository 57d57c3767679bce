"""The GRPO loop on real tasks: it learns, resumes to the bit, and refuses what can't work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from students import School

from envgen.core.errors import ConfigError, ResumeError
from envgen.core.types import Style
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.pipelines.canaries import CanaryConfig, make_canaries
from envgen.policies.encoding import make_encoding
from envgen.store.bundles import EnvironmentBundle
from envgen.store.runs import RunStore
from envgen.store.writer import DatasetWriter
from envgen.train.checkpoints import fitting_encoding
from envgen.train.config import (
    GRPOConfig,
    OptimizerConfig,
    SamplingConfig,
    TrainGRPOConfig,
    UpdateConfig,
)
from envgen.train.grpo_run import train_grpo
from envgen.train.metrics import read_metrics
from envgen.train.optimize import DivergedError
from envgen.train.rewards import RewardConfig, RewardError
from envgen.train.rollouts import Sampler

PLAIN = RewardConfig(length=0.0, language=0.0)

pytestmark = pytest.mark.xdist_group("school")


def config_of(taught: School, student: Path, **changes: Any) -> TrainGRPOConfig:
    settings: dict[str, Any] = {
        "data": str(taught.dataset),
        "model": str(student),
        "split": None,
        "steps": 3,
        "sampling": SamplingConfig(groups=4, group_size=4, max_new_tokens=40),
        "rewards": PLAIN,
        "optimizer": OptimizerConfig(lr=2e-4, indexer_lr=5e-5, warmup_steps=2, weight_decay=0.0),
        "save_every": 1,
        **changes,
    }
    return TrainGRPOConfig(**settings)


def disputed(taught: School) -> str:
    """A task that one teacher passes and the other fails."""
    with RunStore.read(taught.greedy) as run:
        return next(
            one.task_id
            for one in run.trajectories()
            if one.score is not None and not one.score.passed
        )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(DSAForCausalLM.from_pretrained(folder).named_parameters())


def test_a_step_moves_the_policy_and_tells_what_happened(
    taught: School, student: Path, tmp_path: Path
) -> None:
    texts: list[str] = []
    summary = train_grpo(
        config_of(taught, student), tmp_path, progress=lambda *update: texts.append(update[2])
    )
    assert texts[0] == "plays 4 tasks, each 4 times"
    assert summary.steps == len(texts[1:]) == 3
    assert summary.rollouts == 3 * 16
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3]
    moved = [line for line in lines if "policy/entropy" in line]
    assert moved
    for line in moved:
        # One process, one precision, one update a batch: sampler and trainer agree.
        assert line["policy/log_ratio_max"] < 1e-4
        assert line["policy/kept_mass"] == pytest.approx(1)
        assert line["update/grad_norm"] > 0
        assert line["policy/masked_negatives"] == 0
        assert 0 < line["time/assembly_s"] < line["time/sampling_s"] + line["time/update_s"]
    assert "ref_kept_mass" not in str(lines)  # without a KL term nothing is asked of pi_ref
    before, after = weights(student), weights(tmp_path / "last")
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_learns_what_is_rewarded(taught: School, student: Path, tmp_path: Path) -> None:
    # The task on which the two teachers disagree: the student does as one or the other.
    task_id = disputed(taught)
    config = config_of(
        taught,
        student,
        steps=16,
        task_ids=(task_id,),
        sampling=SamplingConfig(groups=1, group_size=16, max_new_tokens=40),
        save_every=16,
    )
    train_grpo(config, tmp_path)
    passed = [line["reward/pass_rate"] for line in read_metrics(tmp_path)]
    assert sum(passed[-4:]) / 4 > sum(passed[:4]) / 4 + 0.2, passed


def test_without_a_baseline_what_passed_is_learnt_and_nothing_else(
    taught: School, student: Path, tmp_path: Path
) -> None:
    task_ids = (disputed(taught),)
    sampling = SamplingConfig(groups=1, group_size=16, max_new_tokens=40)
    lines = {}
    for advantage in ("mean", "none"):
        config = config_of(
            taught, student, steps=1, task_ids=task_ids, sampling=sampling,
            objective=GRPOConfig(advantage=advantage),
        )  # fmt: skip
        train_grpo(config, tmp_path / advantage)
        (lines[advantage],) = read_metrics(tmp_path / advantage)
    mean, none = lines["mean"], lines["none"]
    assert 0 < none["reward/pass_rate"] == mean["reward/pass_rate"] < 1
    assert "policy/masked_negatives" in mean
    assert "policy/masked_negatives" not in none  # no rollout counts against the policy
    assert 0 < none["update/tokens_run"] < mean["update/tokens_run"]


@pytest.mark.slow
def test_nothing_is_learnt_from_permuted_rewards(
    taught: School, student: Path, tmp_path: Path
) -> None:
    """The same draws in the first step, the truth in the figures, other weights, and no way up."""
    settings: dict[str, Any] = {
        "task_ids": (disputed(taught),),
        "sampling": SamplingConfig(groups=1, group_size=16, max_new_tokens=40),
        "save_every": 16,
        "steps": 16,
    }
    train_grpo(config_of(taught, student, **settings), tmp_path / "real")
    permuted = config_of(taught, student, permute_rewards=True, **settings)
    train_grpo(permuted, tmp_path / "permuted")
    real, shuffled = (
        [line["reward/pass_rate"] for line in read_metrics(tmp_path / name)]
        for name in ("real", "permuted")
    )
    assert real[0] == shuffled[0]
    assert sum(shuffled[-4:]) < sum(real[-4:])


@pytest.mark.parametrize("style", ["agent", "thinking-agent"])
def test_rollouts_are_asked_for_the_style_of_the_cold_start(
    taught: School, student: Path, style: Style
) -> None:
    encoding = fitting_encoding(student)
    config = encoding.config.model_copy(update={"system": True})
    sampler = Sampler(
        DSAForCausalLM.from_pretrained(student),
        make_encoding(config, encoding.tokenizer),
        open_dataset(taught.dataset),
        SamplingConfig(groups=1, group_size=2, max_new_tokens=8, style=style),
    )
    try:
        drawn = sampler.draw([disputed(taught)], seed=0)
    finally:
        sampler.close()
    assert {one.style for one in drawn.trajectories} == {style}
    prompt = encoding.tokenizer.decode(drawn.rows[0].ids[: drawn.rows[0].places[0]].tolist())
    assert ("Think before you answer" in prompt) == (style == "thinking-agent")
    assert ("Act at once" in prompt) == (style == "agent")


def test_where_and_how_many_episodes_run_changes_no_rollout(
    taught: School, student: Path, tmp_path: Path
) -> None:
    found = []
    for backend, concurrency in (("inline", 1), ("process", 6)):
        sampling = SamplingConfig(
            groups=4, group_size=4, max_new_tokens=40, backend=backend, concurrency=concurrency
        )
        train_grpo(config_of(taught, student, steps=2, sampling=sampling), tmp_path / backend)
        found.append(weights(tmp_path / backend / "last"))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def spoiled(taught: School, out: Path) -> tuple[str, str]:
    """A dataset of a sound task, and of the same with a verifier that breaks; their ids."""
    source = open_dataset(taught.dataset)
    sound = source.task_files(source.own_task_ids[0])
    files = source.environment_files(sound.spec.environment_id)
    spec = sound.spec.model_copy(update={"id": f"{sound.spec.id}-spoiled"})
    verifier = 'def verify(answer, initial, final):\n    raise RuntimeError("spoiled")\n'
    with DatasetWriter(out, name="spoiled", compiled=True) as writer:
        assert files.database is not None
        writer.add_environment(
            EnvironmentBundle(
                spec=files.spec,
                database=files.database.read_bytes(),
                tools_source=files.tools_source,
                blueprint=files.blueprint,
            )
        )
        writer.add_task(sound)
        writer.add_task(sound.model_copy(update={"spec": spec, "verifier": verifier}))
        writer.finish()
    return sound.spec.id, spec.id


def test_a_step_that_errors_spoil_is_drawn_again(
    taught: School, student: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sound, broken = spoiled(taught, tmp_path / "ds")
    settings: dict[str, Any] = {
        "data": str(tmp_path / "ds"),
        "sampling": SamplingConfig(groups=1, group_size=4, max_new_tokens=40, temperature=1.2),
        "steps": 4,
    }
    both = config_of(taught, student, task_ids=(broken, sound), seed=6, **settings)
    assert train_grpo(both, tmp_path / "both").rollouts == 4 * 4
    assert "an episode was left out" in caplog.text
    alone = config_of(taught, student, task_ids=(broken,), **settings)
    with pytest.raises(ConfigError, match=r"step 1 was tried 3 times.*spoiled"):
        train_grpo(alone, tmp_path / "alone")


class _StopError(Exception):
    """Ends a run in a test."""


VARIED: dict[str, Any] = {
    "objective": GRPOConfig(kl_coef=0.01),
    "update": UpdateConfig(mini_batches=2, part_tokens=600),
    "sampling": SamplingConfig(groups=4, group_size=4, max_new_tokens=40, top_p=0.9),
    "steps": 4,
}


@pytest.fixture(scope="module")
def whole(taught: School, student: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole")
    with one_thread():
        train_grpo(config_of(taught, student, **VARIED), out)
    return out


@contextmanager
def one_thread() -> Iterator[None]:
    """As in the processes that are killed: sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_a_stopped_run_goes_on_to_the_same_bits(
    taught: School, student: Path, whole: Path, tmp_path: Path
) -> None:
    config = config_of(taught, student, **VARIED)

    def stop(step: int, steps: int, text: str) -> None:
        if step == 2:
            raise _StopError

    with one_thread():
        with pytest.raises(_StopError):
            train_grpo(config, tmp_path, progress=stop)
        assert train_grpo(config, tmp_path).steps == 2
    require_same(whole, tmp_path)
    first = read_metrics(whole)[0]
    # Before an update policy and reference are one; the policy's is also of the second mini-batch.
    assert first["policy/ref_kept_mass"] == pytest.approx(first["policy/kept_mass"], abs=0.02)
    assert first["policy/ref_kept_mass"] < 1
    timeless = [
        [{k: v for k, v in line.items() if "_s" not in k and k != "seconds"} for line in lines]
        for lines in (read_metrics(whole), read_metrics(tmp_path))
    ]
    assert timeless[0] == timeless[1]


def require_same(one: Path, other: Path) -> None:
    wanted, found = weights(one / "last"), weights(other / "last")
    for name, weight in wanted.items():
        assert torch.equal(weight, found[name]), name


_RUN = """
import sys
from envgen.train.grpo_run import TrainGRPOConfig, train_grpo
config = TrainGRPOConfig.model_validate_json(sys.argv[1])
train_grpo(config, sys.argv[2], progress=lambda *told: print(*told, flush=True))
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits(
    taught: School, student: Path, whole: Path, tmp_path: Path
) -> None:
    config = config_of(taught, student, **VARIED)
    command = [sys.executable, "-P", "-c", _RUN, config.model_dump_json(), str(tmp_path)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=alone) as cut:
        assert cut.stdout is not None
        assert "plays" in next(cut.stdout)
        next(cut.stdout)  # one step is done; the next one is under way
        cut.send_signal(signal.SIGKILL)
    with one_thread():
        assert train_grpo(config, tmp_path).steps < VARIED["steps"]
    require_same(whole, tmp_path)


def test_mini_batches_and_parts_leave_the_first_gradient_alone(
    taught: School, student: Path, tmp_path: Path
) -> None:
    norms = []
    # 20: every row is longer than a pack, and those of other lengths have other parts.
    for part_tokens, pack_tokens in ((100, 400), (100_000, 400), (100_000, 20)):
        out = tmp_path / f"{part_tokens}-{pack_tokens}"
        update = UpdateConfig(part_tokens=part_tokens, pack_tokens=pack_tokens)
        config = config_of(taught, student, steps=1, update=update)
        train_grpo(config, out)
        norms.append(read_metrics(out)[0]["update/grad_norm"])
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-4)


def test_without_an_update_the_policy_is_its_own_reference(
    taught: School, student: Path, tmp_path: Path
) -> None:
    config = config_of(
        taught,
        student,
        steps=1,
        objective=GRPOConfig(kl_coef=0.1),
        sampling=SamplingConfig(groups=4, group_size=4, max_new_tokens=40, top_p=0.8),
    )
    assert config.sampling.capture_topk  # else the reference would choose its own key sets
    train_grpo(config, tmp_path)
    line = read_metrics(tmp_path)[0]
    assert abs(line["policy/kl"]) < 1e-7
    assert line["policy/kept_mass"] < 1


@pytest.mark.parametrize(("steps", "seen"), [(30, 8), (1, 1)])
def test_equal_rewards_end_the_run_with_an_error(
    taught: School, tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: int, seen: int
) -> None:
    config = config_of(taught, taught.model, steps=steps)  # random weights never pass
    with pytest.raises(RewardError, match=f"first {seen} steps"):
        train_grpo(config, tmp_path)
    if steps > 1:  # else the error is what is said at once
        assert "none of 16 rollouts passed; GRPO learns from groups" in caplog.text


def test_a_config_that_can_not_work_is_refused_before_any_step(
    taught: School, student: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no task in split 'validation': 10 in 'train'"):
        train_grpo(config_of(taught, student, split="validation"), tmp_path / "a")
    config = config_of(taught, student, steps=1)
    train_grpo(config, tmp_path / "b")
    changed = config.model_copy(update={"seed": 5})
    with pytest.raises(ResumeError, match="another config"):
        train_grpo(changed, tmp_path / "b")


def test_tasks_that_nobody_can_solve_are_refused_before_any_step(
    taught: School, student: Path, tmp_path: Path
) -> None:
    twins = tmp_path / "twins"
    make_canaries(taught.dataset, twins, CanaryConfig(holes=()))
    with pytest.raises(ConfigError, match="all are unsolvable canaries"):
        train_grpo(config_of(taught, student, data=str(twins)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_divergence_stops_with_the_batch_saved(
    taught: School, student: Path, tmp_path: Path
) -> None:
    config = config_of(
        taught,
        student,
        # The first mini-batch throws the weights away, the second one sees it.
        objective=GRPOConfig(kl_coef=0.01),
        update=UpdateConfig(mini_batches=2),
        optimizer=OptimizerConfig(lr=1e30, warmup_steps=0, clip_norm=1e30),
    )
    with pytest.raises(DivergedError, match="step 1"):
        train_grpo(config, tmp_path)
    saved = torch.load(tmp_path / "diverged.pt", weights_only=True)
    assert saved["step"] == 0
    assert len(saved["ids"]) == len(saved["rollout"]) >= 16
    assert len(saved["reward"]) == 16
    assert not (tmp_path / "last").exists()

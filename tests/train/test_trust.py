"""Whose code runs where: what was not compiled here from the package's domains never runs unisolated.

The sabotage: tools that leave a mark on the host, in datasets that lie here, written by envgen's own
writer or forged from one that is trusted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from seals import seal
from students import School

import envgen
from envgen.core.errors import SandboxUnavailableError
from envgen.core.types import SourceKind
from envgen.pipelines.canaries import make_canaries
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.validate import validate
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.sandboxes import bwrap
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.bundles import EnvironmentBundle
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.store.writer import TRUSTED_GATE, DatasetWriter
from envgen.train.config import SamplingConfig, TrainGRPOConfig
from envgen.train.grpo_run import train_grpo

pytestmark = pytest.mark.xdist_group("school")


def marking(source: str, mark: Path) -> str:
    """Tools that try to leave a mark on the host, and then do their work."""
    return f"{source}\n\ntry:\n    open({str(mark)!r}, 'w').close()\nexcept OSError:\n    pass\n"


def written(parents: Path, out: Path, mark: Path) -> None:
    """What anyone can write on this machine with envgen's writer."""
    source = Dataset.open(parents)
    with DatasetWriter(out, name="written", sources=[source]) as writer:
        for name in source.environments:
            files = source.environment_files(name)
            writer.add_environment(
                EnvironmentBundle(
                    spec=files.spec,
                    database=files.database and files.database.read_bytes(),
                    tools_source=marking(files.tools_source, mark),
                    blueprint=files.blueprint,
                )
            )
        for task_id in source.own_task_ids:
            writer.add_task(source.task_files(task_id))
        writer.finish()


def forged(parents: Path, out: Path, mark: Path) -> None:
    """A trusted dataset with other tools, sealed again."""
    shutil.copytree(parents, out)
    for path in out.glob("environments/*/tools.py"):
        path.write_text(marking(path.read_text(), mark))
    seal(out)


@pytest.fixture(params=[written, forged])
def foreign(request: pytest.FixtureRequest, taught: School, tmp_path: Path) -> Path:
    make: Callable[[Path, Path, Path], None] = request.param
    make(taught.dataset.parent / "parents", tmp_path / "foreign", tmp_path / "mark")
    return tmp_path / "foreign"


def play(data: Path, out: Path, backend: WorkerBackend, *, trust: bool = False) -> None:
    policy = PolicyConfig(spec="gold")
    rollout(
        RolloutConfig(dataset=str(data), policy=policy, out=str(out), backend=backend, trust=trust)
    )


def test_what_was_compiled_here_is_vouched_for(taught: School, tmp_path: Path) -> None:
    parents = Dataset.open(taught.dataset.parent / "parents")
    assert parents.source is SourceKind.LOCAL
    assert Dataset.open(taught.dataset).source is SourceKind.LOCAL  # its variants
    canaries = make_canaries(parents.path, tmp_path / "canaries")
    assert Dataset.open(canaries.path).source is SourceKind.LOCAL


@pytest.mark.bwrap
def test_foreign_code_sees_the_sandbox_only(foreign: Path, tmp_path: Path) -> None:
    """Where nothing is said, the same commands work, isolated; variants of it stay foreign."""
    assert Dataset.open(foreign).source is SourceKind.FOREIGN
    play(foreign, tmp_path / "run", "auto")
    with RunStore.read(tmp_path / "run") as run:
        assert [one.score is not None and one.score.passed for one in run.trajectories()] == [True]
    variants(VariantsConfig(per_task=1), foreign, tmp_path / "more", workers=1)
    assert Dataset.open(tmp_path / "more").source is SourceKind.FOREIGN
    assert validate(foreign, variants=0).tasks
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_no_command_runs_foreign_code_on_the_host(
    foreign: Path, taught: School, tmp_path: Path, backend: WorkerBackend
) -> None:
    out = tmp_path / "out"
    config = TrainGRPOConfig(
        data=str(foreign),
        model=str(taught.model),
        sampling=SamplingConfig(backend=backend),
        steps=1,
    )
    commands: dict[str, Callable[[], object]] = {
        "rollout": lambda: play(foreign, out, backend),
        "variants": lambda: variants(VariantsConfig(), foreign, out, workers=1, backend=backend),
        "validate": lambda: validate(foreign, backend=backend),
        "canaries": lambda: make_canaries(foreign, out, backend=backend),
        "grpo": lambda: train_grpo(config, out),
    }
    for name, run in commands.items():
        with pytest.raises(SandboxUnavailableError, match="not trusted") as caught:
            run()
        assert "--trust" in caught.value.hint, name
        shutil.rmtree(out, ignore_errors=True)
    assert not (tmp_path / "mark").exists()


def test_without_a_sandbox_foreign_code_does_not_run(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bwrap, "unavailable", lambda: "it is not installed")
    with pytest.raises(SandboxUnavailableError, match="not trusted"):
        play(foreign, tmp_path / "run", "auto")
    assert not (tmp_path / "mark").exists()


def test_the_user_s_word_is_needed_and_recorded(foreign: Path, tmp_path: Path) -> None:
    play(foreign, tmp_path / "run", "inline", trust=True)
    assert (tmp_path / "mark").exists()  # the attack of these tests is a real one
    with RunStore.read(tmp_path / "run") as run:
        assert run.config["trust"] is True
    out = tmp_path / "made"
    variants(VariantsConfig(per_task=1), foreign, out, workers=1, backend="process", trust=True)
    dataset = Dataset.open(out)
    assert dataset.source is SourceKind.FOREIGN  # one word, one command
    assert TRUSTED_GATE in {gate.gate for gate in dataset.manifest.evidence}
    report = validate(foreign, backend="process", variants=0, trust=True)
    assert TRUSTED_GATE in {gate.gate for gate in report.dataset_evidence}


def test_work_that_was_planted_for_a_resumed_generation_is_not_trusted(
    taught: School, tmp_path: Path
) -> None:
    from envgen.pipelines.general.generate import GenerateConfig

    config = GenerateConfig(
        categories=("meeting_scheduling",), environments=1, tasks_per_environment=1, max_level=1
    )

    class _Stop(Exception):
        """Ends the run after its first environment."""

    def stop(done: int, total: int, what: str) -> None:
        raise _Stop

    with pytest.raises(_Stop):
        envgen.generate(config, tmp_path / "ds", workers=1, progress=stop)
    shutil.copytree(tmp_path / "ds.partial", tmp_path / "other.partial")
    envgen.generate(config, tmp_path / "ds", workers=1)
    assert Dataset.open(tmp_path / "ds").source is SourceKind.LOCAL
    planted = next((tmp_path / "other.partial").glob("0*.json"))
    planted.write_text(planted.read_text().replace("import ", "import os, ", 1))
    envgen.generate(config, tmp_path / "other", workers=1)
    assert Dataset.open(tmp_path / "other").source is SourceKind.FOREIGN

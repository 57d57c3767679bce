"""What breaks inside a gate, a draft or a re-seed costs one task, with its reason, and never the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drafts import drafted

from envgen.core.errors import PipelineError, SandboxUnavailableError
from envgen.core.types import GateResult, GateStatus
from envgen.environments.hosts import PACKAGE_DATA
from envgen.pipelines.general import synthesize
from envgen.pipelines.general import variants as varying
from envgen.pipelines.general.author import ProceduralAuthor, draft_of
from envgen.pipelines.general.domains import DOMAINS
from envgen.pipelines.general.draft import (
    Draft,
    NoDraft,
    Proof,
    environment_bundle,
    task_bundle,
)
from envgen.pipelines.general.gates import dataset as datasets
from envgen.pipelines.general.gates import prove as proving
from envgen.pipelines.general.gates.prove import GATES
from envgen.pipelines.general.gates.trial import Trial
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.validate import validate
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

CONFIG = GenerateConfig(
    categories=("trip_planning",), environments=1, max_level=1, seed=5, agreement_episodes=16
)
UNPROVEN = Proof(())
PASS = GateResult(gate="pass", status=GateStatus.PASSED, n=1)


def written(path: Path, *drafts: Draft, **constraints: Any) -> Dataset:
    """A dataset of drafts that nobody proved; ``constraints`` replace some of the last one's."""
    with DatasetWriter(path, name="drafts") as writer:
        for draft in drafts:
            writer.add_environment(environment_bundle(draft))
            task = task_bundle(draft, UNPROVEN)
            if draft is drafts[-1] and isinstance(task.constraints, dict):
                changed: Any = task.constraints | constraints
                task = task.model_copy(update={"constraints": changed})
            writer.add_task(task)
        return writer.finish()


def only(monkeypatch: pytest.MonkeyPatch, name: str, gate: Callable[[Trial], GateResult]) -> None:
    """Leave one gate, so that a test is about it alone."""
    monkeypatch.setattr(proving, "GATES", ((name, gate),))


def raises_for(task_id: str, error: Exception) -> Callable[[Trial], GateResult]:
    def gate(trial: Trial) -> GateResult:
        if trial.draft.task_id == task_id:
            raise error
        return PASS

    return gate


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("two") / "ds", drafted(1), drafted(1, seed=1)).path


OF_SOME = ("certified",)
"""Gates of tasks that ask for the best answer, or in which a rule may give way."""


OFTEN = ("compiled", "gold", "tools", "difficulty")
"""A gate is only named there: where it is called, all are called alike."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow)
        for name, _ in GATES
        if name not in OF_SOME
    ],
)
def test_a_gate_that_raises_fails_its_task_and_validation_goes_on(
    name: str, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = drafted(1).task_id, drafted(1, seed=1).task_id
    only(monkeypatch, name, raises_for(bad, ZeroDivisionError("by zero")))
    report = validate(two, backend="process", trust=True)
    failures = {task.task_id: task.failure for task in report.tasks}
    assert failures[good] is None
    failure = failures[bad]
    assert failure is not None
    assert (failure.gate, failure.status) == (name, GateStatus.FAILED)
    assert failure.reason == "ZeroDivisionError: by zero"


def test_a_trial_that_can_not_be_closed_fails_its_task(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "gold", lambda trial: PASS)
    close = Trial.close

    def stuck(trial: Trial) -> None:
        close(trial)
        if trial.draft.task_id == drafted(1).task_id:
            raise OSError("disk full")

    monkeypatch.setattr(Trial, "close", stuck)
    report = validate(two, backend="process", trust=True)
    failures = {task.task_id: task.failure for task in report.tasks}
    failure = failures.pop(drafted(1).task_id)
    assert failure is not None
    assert (failure.gate, failure.reason) == ("proof", "OSError: disk full")
    assert [*failures.values()] == [None]


def test_a_dataset_gate_that_raises_leaves_the_tasks_their_report(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "gold", lambda trial: PASS)
    monkeypatch.setattr(datasets, "MIN_TASKS", 2)
    monkeypatch.setattr(datasets, "signature", lambda task: 1 // 0)
    report = validate(two, backend="process", trust=True)
    assert all(task.passed for task in report.tasks)
    assert not report.passed
    found = {result.gate: result.status for result in report.dataset_evidence}
    assert found["diversity"] is GateStatus.FAILED


def test_a_machine_without_a_sandbox_is_no_tasks_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = drafted(1)
    written(tmp_path / "ds", draft)
    only(monkeypatch, "gold", raises_for(draft.task_id, SandboxUnavailableError("none", "install")))
    with pytest.raises(SandboxUnavailableError):
        validate(tmp_path / "ds", backend="process", trust=True)


def test_validation_reports_a_prompt_that_can_not_be_read_back(tmp_path: Path) -> None:
    bad = drafted(3)
    assert bad.problem is not None
    clauses = [clause.model_dump(mode="json") for clause in bad.problem.clauses]
    assert isinstance(bad.problem.goal.model_dump(), dict)
    written(
        tmp_path / "ds", drafted(1, 1), bad, fields={"opening": "no such opening"}, clauses=clauses
    )
    report = validate(tmp_path / "ds", backend="process", trust=True)
    failures = {task.task_id: task.failure for task in report.tasks}
    assert len(failures) == 2
    failure = failures.pop(bad.task_id)
    assert failure is not None
    assert (failure.gate, failure.status) == ("stated", GateStatus.FAILED)
    assert "no such opening" in failure.reason
    assert [*failures.values()] == [None]


def test_validation_reports_constraints_that_are_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "gold", lambda trial: PASS)
    bad = drafted(3)
    written(tmp_path / "ds", drafted(1), bad, clauses="none")
    report = validate(tmp_path / "ds", backend="process", trust=True)
    failures = {task.task_id: task.failure for task in report.tasks}
    failure = failures.pop(bad.task_id)
    assert failure is not None
    assert failure.gate == "files"
    assert "is not a valid problem" in failure.reason
    assert [*failures.values()] == [None]


def test_a_gate_that_raises_is_in_the_funnel_and_generation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def gate(trial: Trial) -> GateResult:
        tried.append(trial.draft.task_id)
        if tried[0] == trial.draft.task_id:
            raise OverflowError("too large")
        return PASS

    only(monkeypatch, "density", gate)
    summary = generate(CONFIG, tmp_path / "ds", workers=1, backend="process")
    assert summary.rejected["density"] == 1
    assert "trip level 1: density: OverflowError: too large" in summary.reasons
    assert summary.tasks == summary.drafted - sum(summary.rejected.values()) == 2


@pytest.mark.parametrize(
    ("where", "name", "step"),
    [
        (ProceduralAuthor, "draft", "draft: error"),
        (ProceduralAuthor, "sibling", "sibling: error"),
        (synthesize, "environment_bundle", "bundle"),
        (synthesize, "task_bundle", "bundle"),
        (datasets, "_dataset", "agreement"),
    ],
)
def test_a_step_that_raises_is_in_the_funnel_and_generation_goes_on(
    where: Any, name: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "gold", lambda trial: PASS)
    real, calls = getattr(where, name), []

    def once(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        if len(calls) == 1:
            raise KeyError("missing")
        return real(*args, **kwargs)

    monkeypatch.setattr(where, name, once)
    monkeypatch.setattr(datasets, "_episodes_needed", lambda task, most: 1)
    monkeypatch.setattr(datasets, "agreement", lambda *_: PASS)
    summary = generate(CONFIG, tmp_path / "ds", workers=1, backend="process")
    lost = 2 if step == "agreement" else 1
    assert summary.rejected[step] == lost
    assert f"trip level 1: {step}: KeyError: 'missing'" in summary.reasons
    assert summary.tasks == summary.drafted - sum(summary.rejected.values()) == 2


def test_an_environment_whose_worker_breaks_is_in_the_funnel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "gold", lambda trial: PASS)
    real = synthesize._Maker.first

    def first(maker: Any, attempt: int) -> Any:
        if maker.job.index == 0:
            raise MemoryError("no room")
        return real(maker, attempt)

    monkeypatch.setattr(synthesize._Maker, "first", first)
    config = CONFIG.model_copy(update={"environments": 2, "tasks_per_environment": 1})
    summary = generate(config, tmp_path / "ds", workers=1, backend="process")
    assert (summary.asked, summary.tasks) == (2, 1)
    assert summary.rejected["environment"] == 1
    assert "trip level 1: environment: MemoryError: no room" in summary.reasons


def test_where_no_task_is_proven_the_reasons_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = NoDraft("tuning", "nothing fits")
    monkeypatch.setattr(ProceduralAuthor, "draft", lambda *_: stuck)
    with pytest.raises(PipelineError) as caught:
        generate(CONFIG, tmp_path / "ds", workers=1, backend="process")
    assert "draft: tuning: nothing fits (8 times)" in caught.value.hint


def test_a_re_seed_that_raises_costs_one_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "ds", drafted(1))
    real, calls = ProceduralAuthor.reseed, []

    def reseed(author: ProceduralAuthor, draft: Draft, seed: int) -> Draft | None:
        calls.append(seed)
        if len(calls) == 1:
            raise ValueError("no rows")
        return real(author, draft, seed)

    monkeypatch.setattr(ProceduralAuthor, "reseed", reseed)
    summary = make_variants(tmp_path, per_task=2)
    assert summary.variants == 2
    assert [*summary.reasons.values()] == [1]
    assert next(iter(summary.reasons)).endswith("ValueError: no rows")


def test_a_parent_that_breaks_costs_its_variants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = drafted(1), drafted(1, seed=1)
    written(tmp_path / "ds", bad, good)

    def load(dataset: Dataset, task_id: str) -> Draft | None:
        if task_id == bad.task_id:
            raise RecursionError("too deep")
        return draft_of(dataset, task_id)

    monkeypatch.setattr(varying, "draft_of", load)
    summary = make_variants(tmp_path, per_task=2)
    assert (summary.asked, summary.variants, summary.rejected) == (4, 2, 2)
    assert summary.reasons == {f"{bad.task_id}: RecursionError: too deep": 1}


def make_variants(folder: Path, per_task: int) -> Any:
    return variants(
        VariantsConfig(per_task=per_task),
        folder / "ds",
        folder / "out",
        workers=1,
        backend="process",
        unproven=True,
        trust=True,
    )


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("level", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 10))])
def test_what_is_read_back_from_files_is_what_was_written(
    domain: str, level: int, tmp_path: Path
) -> None:
    """The order of the answer's keys, too, which canonical JSON does not keep and the prompt shows."""
    draft = drafted(level, domain=domain)
    again = draft_of(written(tmp_path / "ds", draft), draft.task_id)
    assert again is not None
    assert again.problem is not None
    assert draft.problem is not None
    assert repr(again.problem.layout) == repr(draft.problem.layout)
    assert again.problem == draft.problem


@pytest.mark.parametrize("level", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 10))])
def test_hard_trips_have_variants(level: int, tmp_path: Path) -> None:
    written(tmp_path / "ds", drafted(level))
    assert make_variants(tmp_path, per_task=1).variants == 1


@pytest.mark.slow
def test_the_package_holds_and_has_variants(tmp_path: Path) -> None:
    report = validate(PACKAGE_DATA / "trip_planning", backend="process")
    assert report.passed, [task.failure for task in report.tasks]
    summary = variants(
        VariantsConfig(per_task=2), PACKAGE_DATA / "trip_planning", tmp_path / "v", workers=1,
        backend="process",
    )  # fmt: skip
    assert summary.variants == 2

"""What a dataset says of its own proof: evidence, splits and funnel, forged with every hash mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from films import films_corpus

from envgen.core.types import GateResult, GateStatus, TaskSpec
from envgen.pipelines.code.revalidate import PROVEN_BY
from envgen.pipelines.evidence import differing_gates
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.interpreter.config import InterpreterConfig
from envgen.pipelines.interpreter.generate import generate_interpreter
from envgen.pipelines.proof.config import ProofConfig
from envgen.pipelines.proof.generate import generate_proofs
from envgen.pipelines.search.config import SearchConfig
from envgen.pipelines.search.generate import generate_search
from envgen.pipelines.validate import ValidationReport, validate
from envgen.store.dataset import Dataset
from envgen.store.writer import DatasetWriter

SPLITS = ("train", "validation", "test")
Change = Callable[[TaskSpec], TaskSpec]


def make_general(folder: Path) -> None:
    config = GenerateConfig(
        categories=("room_lookup",), environments=1, max_level=1, agreement_episodes=16
    )
    generate(config, folder, workers=1)


MAKE: dict[str, Callable[[Path], object]] = {
    "general": make_general,
    "search": lambda out: generate_search(
        SearchConfig(corpus=films_corpus(out.with_name("films")).path, questions=6, depth="1..2"),
        out,
        workers=1,
    ),
    "interpreter": lambda out: generate_interpreter(
        InterpreterConfig(problems=4, level="1..2"), out, workers=1
    ),
    "proof": lambda out: generate_proofs(ProofConfig(problems=4), out, workers=1),
}
FAMILIES = [
    pytest.param("interpreter", marks=pytest.mark.bwrap) if name == "interpreter" else name
    for name in MAKE
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Dataset]:
    """A dataset of a family, made once."""
    root, found = tmp_path_factory.mktemp("made"), dict[str, Dataset]()

    def make(family: str) -> Dataset:
        if family not in found:
            MAKE[family](root / family)
            found[family] = Dataset.open(root / family)
        return found[family]

    return make


def forged(dataset: Dataset, out: Path, change: Change) -> ValidationReport:
    """The findings about a dataset whose first task somebody changed; its writer makes all hashes fit."""
    manifest, first = dataset.manifest, dataset.own_task_ids[0]
    with DatasetWriter(out, name=manifest.name, seed=manifest.seed) as writer:
        for name in dataset.environments:
            writer.add_environment(dataset.environment_files(name).bundle())
        for task_id in dataset.own_task_ids:
            files = dataset.task_files(task_id)
            spec = change(files.spec) if task_id == first else files.spec
            writer.add_task(files.model_copy(update={"spec": spec}))
        writer.finish(funnel=manifest.funnel, dataset_evidence=manifest.evidence)
    return validate(out, workers=1)


def without(gate: str) -> Change:
    return lambda spec: spec.model_copy(
        update={"evidence": tuple(one for one in spec.evidence if one.gate != gate)}
    )


def counted(gate: str, n: int) -> Change:
    def change(spec: TaskSpec) -> TaskSpec:
        found = [
            one.model_copy(update={"n": n}) if one.gate == gate else one for one in spec.evidence
        ]
        return spec.model_copy(update={"evidence": tuple(found)})

    return change


def moved(spec: TaskSpec) -> TaskSpec:
    return spec.model_copy(update={"split": SPLITS[(SPLITS.index(spec.split) + 1) % 3]})


GATE = {
    "general": "mutants",
    "search": "unique",
    "interpreter": "derived_twice",
    "proof": "near_proofs",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_nobody_changed_holds_and_the_funnel_is_told_as_unchecked(
    family: str, made: Callable[[str], Dataset], tmp_path: Path
) -> None:
    report = forged(made(family), tmp_path / "same", lambda spec: spec)
    assert report.passed, report
    assert "UNCHECKED: how many were drafted, and why others were dropped" in report.how


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("what", ["a gate less", "other counts"])
def test_forged_evidence_fails_its_task(
    family: str, what: str, made: Callable[[str], Dataset], tmp_path: Path
) -> None:
    gate, dataset = GATE[family], made(family)
    change = without(gate) if what == "a gate less" else counted(gate, 99_999)
    report = forged(dataset, tmp_path / "forged", change)
    failed = [one for one in report.tasks if not one.passed]
    assert [one.task_id for one in failed] == [dataset.own_task_ids[0]]
    failure = failed[0].failure
    assert failure is not None
    assert failure.gate in ("evidence", "stored")
    assert f"evidence of {gate}" in failure.reason


@pytest.mark.parametrize(
    "family",
    [  # what was moved has the hash of no dataset that this machine made
        pytest.param(one, marks=pytest.mark.bwrap) if one == "general" else one for one in FAMILIES
    ],
)
def test_a_task_in_another_split_fails_the_dataset(
    family: str, made: Callable[[str], Dataset], tmp_path: Path
) -> None:
    dataset = made(family)
    if family == "general":  # one environment of one schema: its tasks go together
        report = _all_moved(dataset, tmp_path / "forged")
    else:
        report = forged(dataset, tmp_path / "forged", moved)
    assert not report.passed
    card = next(one for one in report.dataset_evidence if one.gate == "card")
    assert card.status is GateStatus.FAILED
    assert "split" in card.reason


def _all_moved(dataset: Dataset, out: Path) -> ValidationReport:
    manifest = dataset.manifest
    with DatasetWriter(out, name=manifest.name, seed=manifest.seed) as writer:
        for name in dataset.environments:
            writer.add_environment(dataset.environment_files(name).bundle())
        for task_id in dataset.own_task_ids:
            files = dataset.task_files(task_id)
            writer.add_task(files.model_copy(update={"spec": moved(files.spec)}))
        writer.finish(funnel=manifest.funnel, dataset_evidence=manifest.evidence)
    return validate(out, workers=1)


def test_evaluation_shows_what_differs_and_fails_nothing_for_it(
    made: Callable[[str], Dataset], tmp_path: Path
) -> None:
    forged(made("search"), tmp_path / "old", without("unstated"))
    report = validate(tmp_path / "old", by_evaluation=True, workers=1)
    assert report.passed
    shown = [one for one in report.tasks[0].evidence if one.gate == "differences"]
    assert [one.reason for one in shown] == ["stored otherwise than derived: evidence of unstated"]


def test_what_is_the_same_is_what_was_asked() -> None:
    one = GateResult(gate="a", status=GateStatus.PASSED, n=3, figure=0.5)
    other = one.model_copy(update={"figure": 0.6})
    assert differing_gates((one,), (other,), "results") == ["a"]
    assert differing_gates((one,), (other,), "numbers") == []
    assert differing_gates((), (one,), "names") == ["a"]
    assert differing_gates((), (one,), "names", ("a",)) == []
    assert len(set(PROVEN_BY)) == 6

"""A dataset that envgen 0.2.0 wrote: it is judged by playing and evaluating it, and its faults are found."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from planted_faults import Fault

from envgen.core.errors import DatasetError
from envgen.pipelines.validate import TaskValidation, validate
from envgen.store.dataset import Dataset
from envgen.store.manifest import SINCE_3
from envgen.store.subset import subset

ARCHIVE = Path(__file__).parents[2] / "data" / "made_by_0.2.0.tar.xz"
"""Made at commit c7681cd: GenerateConfig(environments=6, tasks_per_environment=1, min_level=4, max_level=5,
seed=7, name="made-by-0-2-0")."""
ENVIRONMENTS = {
    "orders": "order-management-31da6364b5ed",
    "meetings": "meeting-scheduling-3e46bad18cc2",
    "trips": "trip-planning-8f55b2557e20",
}
"""Those in which faults are planted."""
FAULTS = (
    Fault("gold refunds one item twice", "orders", "gold.jsonl", '"I-88383"', '"I-15141"', "stored"),
    Fault("a verdict turned", "meetings", "probes.jsonl",
          '"expected":false', '"expected":true', "probes"),
    Fault("a rule of the IR turned", "trips", "constraints.json",
          r'"fn": ?">="', '"fn": ">"', "density"),
    Fault("a day less to return", "orders", "verifier.py", '"window": 46', '"window": 45', "gold"),
    Fault("a tour less", "trips", "database.sqlite",
          "UPDATE attractions SET free_tours = 7 WHERE name = 'Walnut Wisteria Aquarium'", "", "stored"),
)  # fmt: skip


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "made-by-0.2.0"


def validated(path: Path) -> TaskValidation:
    report = validate(path, backend="process", trust=True, by_evaluation=True)
    (task,) = report.tasks
    assert task.method == "judged by evaluation"
    return task


def alone(generated: Path, name: str, folder: Path) -> Path:
    """The dataset's task of one environment, as a dataset that says no more than the old one."""
    dataset = Dataset.open(generated)
    wanted = [i for i in dataset.tasks if dataset.tasks[i].environment_id == ENVIRONMENTS[name]]
    return subset(dataset, wanted, folder / name).path


def test_its_figures_are_read(generated: Path) -> None:
    """Format 2 knew gold's calls, by another name, and nothing else of format 3."""
    dataset = Dataset.open(generated)
    assert dataset.manifest.format_version < 3
    for task_id, spec in dataset.tasks.items():
        gold = dataset.task_files(task_id).gold
        assert gold is not None
        assert spec.difficulty.gold_calls == len(gold.calls) > 0
        assert all(getattr(spec.difficulty, name) is None for name in SINCE_3)


def test_it_cannot_say_what_its_format_has_no_words_for(generated: Path, tmp_path: Path) -> None:
    """The content hash of format 2 covers none of the new fields, so a forger must not add one."""
    folder = shutil.copytree(generated, tmp_path / "forged")
    path = min(folder.rglob("task.json"))
    task = json.loads(path.read_text())
    task["difficulty"]["calls_upper_bound"] = 1
    path.write_text(json.dumps(task))
    manifest = json.loads((folder / "dataset.json").read_text())
    name = str(path.relative_to(folder))
    manifest["members"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "dataset.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match="content hash"):
        Dataset.open(folder)


@pytest.mark.parametrize("name", ["meetings", "trips"])
def test_it_holds(name: str, generated: Path, tmp_path: Path) -> None:
    assert validated(alone(generated, name, tmp_path)).failure is None


@pytest.mark.slow
def test_all_of_it_holds(generated: Path) -> None:
    report = validate(generated, backend="process", trust=True, by_evaluation=True)
    assert report.passed, [task.failure for task in report.tasks]
    assert {task.method for task in report.tasks} == {"judged by evaluation"}
    assert len(report.tasks) == 6


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_its_faults_are_found(fault: Fault, generated: Path, tmp_path: Path) -> None:
    path = alone(generated, fault.dataset, tmp_path)
    fault.plant(path)
    found = validated(path).failure
    assert found is not None
    assert found.gate == fault.gate, found

"""Forty faults that were planted blind: by somebody who had seen datasets, and neither gates nor source.

``tests/data/blind_faults.json`` says of each who is hurt and how it shows; the datasets that it refers to
(four categories at levels 2, 5 and 7) lie packed beside it.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

from planted_faults import Fault, forget

from envgen.pipelines.general.stored import SINCE_0_2
from envgen.pipelines.validate import TaskValidation, validate

DATA = Path(__file__).parents[1] / "data"
ROWS = json.loads((DATA / "blind_faults.json").read_text("utf-8"))
FAULTS = {
    row["name"]: Fault(*(row[name] for name in Fault._fields[:5]))
    for row in sorted(ROWS, key=lambda row: str(row["name"]))
}
DATASETS = sorted({fault.dataset for fault in FAULTS.values()})


def unpack(folder: Path) -> Path:
    """The sound datasets, as if an older version had written them: nothing in them can be compared."""
    with tarfile.open(DATA / "blind_datasets.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    for name in DATASETS:
        forget(folder / name, *SINCE_0_2)
    return folder


def judged(sound: Path, dataset: str, fault: Fault | None, folder: Path) -> TaskValidation:
    """What ``validate`` says of a dataset's only task, a fault planted."""
    shutil.copytree(sound / dataset, folder)
    if fault is not None:
        fault.plant(folder)
    (found,) = validate(folder, backend="process", trust=True, by_evaluation=True).tasks
    assert found.method == "judged by evaluation"
    return found

"""Tasks that stand in one file: read back whole, and refused where the file says two things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_samples import small_dataset

from envgen.core.canonical import sha256
from envgen.core.errors import DatasetError
from envgen.core.types import FileRef, GateResult, GateStatus
from envgen.store.bundles import TaskBundle
from envgen.store.row_file import RowFile, StoredRow, compress, write_rows
from envgen.store.task_pack import _KIND, TaskPack, write_task_pack


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[TaskBundle]:
    """Twenty tasks: one of a dataset, under twenty names and prompts."""
    dataset = small_dataset(tmp_path_factory.mktemp("source") / "ds")
    one = dataset.task_files(dataset.own_task_ids[0])
    solution = FileRef(path="solution.py", sha256=sha256(one.solution))
    verifier = FileRef(path="verifier.py", sha256=sha256(one.verifier))
    bare = one.spec.model_copy(
        update={"constraints": None, "gold": None, "probes": None}
        | {"solution": solution, "verifier": verifier}
    )
    found = []
    for i in range(20):
        changed = {"id": f"task-{i:02d}", "prompt": f"{bare.prompt} ({i}, \u674e\u767d)"}
        spec = bare.model_copy(update=changed)
        found.append(TaskBundle(spec=spec, solution=one.solution, verifier=one.verifier))
    return found


def write(path: Path, tasks: list[TaskBundle]) -> Path:
    texts = {one.spec.id: {"solution": one.solution, "verifier": one.verifier} for one in tasks}
    write_task_pack(path, [one.spec for one in tasks], texts)
    return path


def test_tasks_come_back_as_they_were_and_order_does_not_matter(
    tasks: list[TaskBundle], tmp_path: Path
) -> None:
    pack = TaskPack(write(tmp_path / "a", tasks))
    assert [pack.read(one.spec.id) for one in tasks] == tasks
    write(tmp_path / "b", tasks[::-1])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    pack.check_proofs()


FORGED: dict[str, Any] = {
    "another prompt": lambda row: row["task"].update(prompt="Say 7."),
    "another id": lambda row: row["task"].update(id="task-07"),
    "another text": lambda row: row["texts"].update(solution="print(7)"),
    "a text too many": lambda row: row["texts"].update(gold="{}"),
    "a text that its record lacks": lambda row: row["task"].update(solution=None),
    "evidence in the record": lambda row: row["task"].update(evidence=[]),
    "another level": lambda row: row["task"]["difficulty"].update(level=9),
    "no record": lambda row: row.update(task=[7]),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_row_that_is_not_what_the_index_names_is_refused(
    tasks: list[TaskBundle], tmp_path: Path, what: str
) -> None:
    pack = TaskPack(forged(write(tmp_path / "a", tasks), FORGED[what]))
    with pytest.raises(DatasetError, match=r"'task-03' in .* is corrupt"):
        pack.read("task-03")
    assert pack.read("task-04") == tasks[4]


def test_a_task_whose_evidence_says_that_it_failed_is_not_proven(
    tasks: list[TaskBundle], tmp_path: Path
) -> None:
    failed = GateResult(gate="gold", status=GateStatus.FAILED, n=1).model_dump(mode="json")
    pack = TaskPack(
        forged(write(tmp_path / "a", tasks), lambda row: row["evidence"].append(failed))
    )
    with pytest.raises(DatasetError, match="'task-03' is not proven"):
        pack.check_proofs()
    empty = TaskPack(forged(write(tmp_path / "b", tasks), lambda row: row.update(evidence=[])))
    with pytest.raises(DatasetError, match="'task-03' has no evidence"):
        empty.check_proofs()


def test_cut_files_are_refused(tasks: list[TaskBundle], tmp_path: Path) -> None:
    whole = write(tmp_path / "a", tasks).read_bytes()
    for length in range(0, len(whole), 97):
        path = tmp_path / f"cut-{length}"
        path.write_bytes(whole[:length])
        with pytest.raises(DatasetError, match="corrupt"):
            TaskPack(path)


def forged(path: Path, change: Any) -> Path:
    """The pack with one row changed, all lengths and offsets right again."""
    rows = RowFile(path, _KIND)
    head: Any = rows.head
    shared = head["shared"].encode()
    index: Any = rows.index
    stored = []
    for entry in index:
        row: Any = rows.read(entry["offset"], entry["length"], shared)
        if entry["id"] == "task-03":
            change(row)
        blob = compress(row, shared)
        stored.append(StoredRow({**entry, "length": len(blob)}, blob))
    path.unlink()
    write_rows(path, _KIND, head, stored)
    return path

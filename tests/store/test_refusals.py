from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from store_samples import small_dataset

from envgen.core.canonical import pretty, sha256
from envgen.core.errors import DatasetError
from envgen.store.bundles import parse_gold, parse_probes
from envgen.store.dataset import Dataset
from envgen.store.sqlite_files import inspect

TASK = "environments/trip-1/tasks/trip-1-a"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_dataset(tmp_path / "ds", variants=3).path


def manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "dataset.json").read_text())
    return content


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = manifest(folder)
    change(content)
    (folder / "dataset.json").write_text(pretty(content))


def replace_member(folder: Path, name: str, content: bytes) -> None:
    """Change a file and list its new hash, as an attacker would."""
    (folder / name).write_bytes(content)
    change_manifest(folder, lambda x: x["members"].update({name: sha256(content)}))


def refused(folder: Path, match: str, *, unproven: bool = False) -> None:
    with pytest.raises(DatasetError, match=match):
        Dataset.open(folder, unproven=unproven)


def test_a_changed_byte_of_any_member_is_refused(folder: Path) -> None:
    names = sorted(manifest(folder)["members"])
    assert len(names) == 2 + 2 * 4 + 3 * 8 + 1
    for name in names:
        path = folder / name
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        refused(folder, "does not match its hash")
        path.unlink()
        refused(folder, "is missing")
        path.write_bytes(good)
    Dataset.open(folder)


def test_a_change_with_its_hash_listed_is_refused_by_identity(folder: Path) -> None:
    for name in sorted(manifest(folder)["members"]):
        if name.endswith(("README.md", "evidence.json", ".parquet")):  # envgen reads no tables
            continue
        copy = folder.parent / "copy"
        shutil.copytree(folder, copy)
        content = (copy / name).read_bytes()
        if name.endswith(".sqlite"):
            with closing(sqlite3.connect(copy / name)) as db:
                db.execute("UPDATE hotels SET price = price + 1")
                db.commit()
            content = (copy / name).read_bytes()
        elif name.endswith(".json"):
            text = content.decode()
            content = (
                text.replace("7", "8").replace("Trips", "Traps").replace("300", "301").encode()
            )
            content = content.replace(b'"rows": 2', b'"rows": 3').replace(
                b'"level": ', b'"level": 1'
            )
        elif not name.endswith(".pack"):
            content = (
                content.replace(b"300", b"301").replace(b"Lotus", b"Pine").replace(b"db", b"dc")
            )
        else:
            content = content[:200] + b"xx" + content[202:]
        assert content != (folder / name).read_bytes(), name
        replace_member(copy, name, content)
        refused(copy, "not the file of that hash|content hash|corrupt|match", unproven=True)
        shutil.rmtree(copy)


def test_identity_can_not_be_forged_by_reference(folder: Path) -> None:
    """Swap a solution and everything that names its hash: only the content hash still differs."""
    evil = b"def solve():\n    return None\n"
    old = (folder / TASK / "task.json").read_text()
    new = old.replace(sha256((folder / TASK / "solution.py").read_bytes()), sha256(evil))
    assert new != old
    replace_member(folder, f"{TASK}/solution.py", evil)
    replace_member(folder, f"{TASK}/task.json", new.encode())
    refused(folder, "content hash")


@pytest.mark.parametrize(
    "name",
    [
        "../outside.txt",
        "/etc/passwd",
        "environments/../../x",
        "environments/trip-1/../../../x",
        "environments/trip-1/tasks/../x",
        "environments/TRIP/x.json",
        "environments/trip-1/tasks/a/b/c",
        "environments/trip-1/.hidden",
        "a\\b",
        "",
        "README.md\n",
    ],
)
def test_members_that_leave_the_folder_are_refused(folder: Path, name: str) -> None:
    outside = folder.parent / "outside.txt"
    outside.write_text("secret")
    change_manifest(folder, lambda x: x["members"].update({name: sha256("secret")}))
    refused(folder, "not a path of a dataset folder")


@pytest.mark.parametrize("path", ["../trip-1-b/solution.py", "/etc/passwd", "prompt.md", ""])
def test_references_to_other_files_are_refused(folder: Path, path: str) -> None:
    text = (folder / TASK / "task.json").read_text().replace('"solution.py"', json.dumps(path))
    replace_member(folder, f"{TASK}/task.json", text.encode())
    refused(folder, r"not the file of that hash|solution\.path")


def test_foreign_ids_are_refused(folder: Path) -> None:
    text = (folder / TASK / "task.json").read_text()
    for bad in ("../../x", "trip-1-b", "UPPER"):
        replace_member(
            folder, f"{TASK}/task.json", text.replace('"trip-1-a"', json.dumps(bad)).encode()
        )
        refused(folder, "about task|corrupt")


@pytest.mark.parametrize("name", ["dataset.json", "README.md", f"{TASK}/solution.py"])
def test_links_are_refused(folder: Path, name: str) -> None:
    path = folder / name
    real = folder.parent / "real"
    path.rename(real)
    path.symlink_to(real)
    refused(folder, "links are refused|no dataset")


def test_linked_folders_and_pipes_are_refused(folder: Path) -> None:
    (folder / "environments" / "trip-1" / "more").symlink_to("/etc")
    refused(folder, "links are refused")
    (folder / "environments" / "trip-1" / "more").unlink()
    os.mkfifo(folder / "pipe")
    refused(folder, "links are refused")


def test_files_that_are_not_listed_are_refused(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    Dataset.open(folder)
    (folder / "environments/trip-1/database.sqlite-wal").write_text("x")
    refused(folder, "doesn't list")


def hostile(sql: str, path: Path) -> bytes:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(sql)
    return path.read_bytes()


def test_databases_that_are_none_are_refused(folder: Path, tmp_path: Path) -> None:
    name = "environments/trip-1/database.sqlite"
    good = (folder / name).read_bytes()
    scratch = tmp_path / "scratch.sqlite"
    for content, match in (
        (b"", "not a SQLite database"),
        (b"hello" * 100, "not a SQLite database"),
        (good[:100] + b"\xff" * (len(good) - 100), "sound"),
        (good[:4096], "sound"),
        (hostile("PRAGMA journal_mode = WAL; CREATE TABLE t (x);", scratch), "WAL mode"),
        (hostile("CREATE VIRTUAL TABLE t USING fts5(x);", scratch), "virtual"),
        (hostile("CREATE TABLE t (a, b AS (hex(zeroblob(400000000))));", scratch), "generated"),
    ):
        replace_member(folder, name, content)
        spec = folder / "environments/trip-1/environment.json"
        text = json.loads(spec.read_text())
        text["database"]["sha256"] = sha256(content)
        replace_member(folder, "environments/trip-1/environment.json", pretty(text).encode())
        refused(folder, match)


def test_views_and_triggers_are_never_run(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    content = hostile(f"CREATE TABLE t (a); CREATE VIEW v AS {endless};", tmp_path / "x.sqlite")
    assert inspect(content, "x").content == inspect(content, "x").content


@pytest.mark.parametrize("evil", ["[" * 100_000, "{}", '{"answer": 1}\n{"call": 1}', "\x00", ""])
def test_unreadable_secrets_are_dataset_errors(tmp_path: Path, evil: str) -> None:
    """A log or a probe file that is none, in a dataset whose hashes all match."""
    with pytest.raises(DatasetError):
        parse_gold(evil)
    with pytest.raises(DatasetError):
        parse_probes(evil or "{}")


def test_newer_and_odd_versions_are_refused(folder: Path) -> None:
    for version, match in (
        (4, "reads up to 3"),
        ("2", "missing its format version"),
        (0, "missing its format version"),
        (True, "missing its format version"),
        (None, "missing its format version"),
    ):
        content = {**manifest(folder), "format_version": version, "new_field": 1}
        (folder / "dataset.json").write_text(pretty(content))
        refused(folder, match)


def test_broken_manifests_are_refused(folder: Path) -> None:
    path = folder / "dataset.json"
    for text in ("", "{", "[]", "null", "[" * 100_000, '{"format_version": 1}', "\xff"):
        path.write_bytes(text.encode("latin-1"))
        refused(folder, "corrupt|missing its format version")
    path.unlink()
    refused(folder, "no dataset")
    refused(folder / "nowhere", "no such dataset folder")


@pytest.mark.parametrize(
    ("gates", "match"),
    [
        ([], "no evidence"),
        ([{"gate": "gold", "status": "not_run", "reason": "x"}], "no evidence"),
        ([{"gate": "gold", "status": "failed", "n": 3}], "failed"),
        ([{"gate": "gold", "status": "passed", "n": 0}], "no trials"),
    ],
)
def test_missing_evidence_is_refused_unless_asked_for(
    folder: Path, gates: list[Any], match: str
) -> None:
    content = pretty({"gates": gates, "pass_at": []})
    replace_member(folder, f"{TASK}/evidence.json", content.encode())
    refused(folder, match)
    assert len(Dataset.open(folder, unproven=True).tasks["trip-1-a"].evidence) == len(gates)


def test_a_file_changed_after_opening_is_noticed(folder: Path) -> None:
    dataset = Dataset.open(folder)
    (folder / TASK / "verifier.py").write_text("def verify(answer, initial, final): return []")
    with pytest.raises(DatasetError, match="changed after"):
        dataset.task_files("trip-1-a")


def test_a_wrong_canary_is_refused(folder: Path) -> None:
    change_manifest(folder, lambda x: x.update(canary="none"))
    refused(folder, "canary")


def test_bytecode_of_an_installer_is_no_stranger(folder: Path) -> None:
    cache = next(folder.glob("environments/*")) / "__pycache__"
    cache.mkdir()
    (cache / "tools.cpython-311.pyc").write_bytes(b"compiled")
    Dataset.open(folder)


def test_a_cut_off_manifest_is_told_in_plain_words(tmp_path: Path) -> None:
    folder = small_dataset(tmp_path / "ds").path
    file = folder / "dataset.json"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(
        DatasetError, match=r"dataset\.json is corrupt: it is not a complete JSON text$"
    ):
        Dataset.open(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "many"}, r"seed: Input should be .* \(given 'many'\)"),
        ({"counts": {"tasks": -1}}, r"counts\.tasks: Input should be greater than or equal to 0"),
        ({"counts": 7}, r"counts: .*"),
        ({"members": None}, r"members: Input should be a valid dictionary"),
        ({"author": "me"}, r"author: Extra inputs are not permitted.*"),
    ],
)
def test_a_wrong_field_of_a_manifest_is_named_in_one_line(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    change_manifest(folder, lambda x: x.update(change))
    with pytest.raises(DatasetError) as caught:
        Dataset.open(folder)
    assert re.fullmatch(rf"\S*dataset\.json is corrupt: {message}", str(caught.value))
    assert caught.value.hint

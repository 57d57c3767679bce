"""Packs of variants that were made to read or write what is not theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from seals import seal
from store_samples import database, small_dataset

from envgen.core.canonical import content_hash, sha256
from envgen.core.errors import DatasetError
from envgen.store.dataset import Dataset
from envgen.store.pack import CompressedRow, VariantPack, write_pack
from envgen.store.sqlite_files import inspect

PACK = "environments/trip-1/variants/trip-1-a.pack"


def with_database(folder: Path, name: str) -> Path:
    """A dataset one of whose variants names ``name`` as its database, with all hashes sealed anew."""
    small_dataset(folder, variants=2, register=False)
    pack = VariantPack(folder / PACK)
    content = (folder / PACK).read_bytes()
    rows = [
        CompressedRow(
            entry.model_copy(update={"database": name}),
            content[entry.offset : entry.offset + entry.length],
        )
        for entry in pack.entries.values()
    ]
    (folder / PACK).unlink()
    write_pack(folder / PACK, pack.base, rows)
    base = pack.base
    identity = content_hash(
        {
            "parent": base.parent,
            "environment_id": base.environment_id,
            "task": base.task,
            "rows": [[x.entry.id, x.entry.row, name, x.entry.split] for x in rows],
        }
    )
    return seal(folder, {base.parent: identity})


def test_the_seal_of_these_tests_is_a_good_one(tmp_path: Path) -> None:
    """Without an attack the same steps give a dataset that opens: the refusals below are the type's."""
    honest = small_dataset(tmp_path / "honest", variants=2).database_hash("trip-1-a-v00000")
    assert Dataset.open(with_database(tmp_path / "ds", honest)).database_hash(
        "trip-1-a-v00001"
    ) == (honest)


def test_a_pack_that_names_a_database_of_the_host_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.sqlite").write_bytes(database([("Key", "Hangzhou", 1)]))
    for name in (str(tmp_path / "secret"), "../../secret", "x/../../secret", "a" * 63, "A" * 64):
        folder = with_database(tmp_path / sha256(name)[:8], name)
        with pytest.raises(DatasetError, match="database"):
            Dataset.open(folder).database("trip-1-a-v00000")
    assert not (tmp_path / "cache" / "envgen").exists()


@pytest.mark.parametrize("link", [False, True])
def test_what_lies_in_the_cache_is_believed_by_its_hash_only(tmp_path: Path, link: bool) -> None:
    dataset = small_dataset(tmp_path / "ds", variants=1)
    wanted = dataset.database_hash("trip-1-a-v00000")
    path = tmp_path / "cache" / "envgen" / "variants" / wanted[:2] / f"{wanted}.sqlite"
    path.parent.mkdir(parents=True)
    other = tmp_path / "other.sqlite"
    (other if link else path).write_bytes(database([("Planted", "Hangzhou", 1)]))
    if link:
        path.symlink_to(other)
    assert dataset.database("trip-1-a-v00000") == path
    assert not path.is_symlink()
    assert inspect(path).content == wanted

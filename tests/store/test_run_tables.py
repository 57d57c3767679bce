from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from envgen.core.errors import StoreError
from envgen.store.run_tables import VERSION, prepare


def test_a_database_keeps_its_tables_and_their_version(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'runs.sqlite'}")
    for _ in range(2):
        prepare(engine)
        with engine.connect() as connection:
            (found,) = connection.execute(text("SELECT version_num FROM alembic_version"))
        assert found == (VERSION,)
    engine.dispose()


@pytest.mark.parametrize(
    ("change", "version"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "9999"),
        ("DELETE FROM alembic_version", "None"),
    ],
)
def test_tables_of_another_version_are_refused(tmp_path: Path, change: str, version: str) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'runs.sqlite'}")
    prepare(engine)
    with engine.begin() as connection:
        connection.execute(text(change))
    with pytest.raises(StoreError, match=version):
        prepare(engine)
    engine.dispose()


def test_tables_of_somebody_else_are_refused(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'theirs.sqlite'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE runs (id INTEGER)"))
    with pytest.raises(StoreError, match="did not make"):
        prepare(engine)
    engine.dispose()

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text

from envgen.core.errors import StoreError
from envgen.store import run_tables


def schema(engine: Engine) -> dict[str, object]:
    found = inspect(engine)
    return {
        table: {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)
            ],
            "key": found.get_pk_constraint(table)["constrained_columns"],
            "indexes": sorted((x["name"], x["column_names"]) for x in found.get_indexes(table)),
            "foreign": [
                (x["constrained_columns"], x["referred_table"])
                for x in found.get_foreign_keys(table)
            ],
        }
        for table in found.get_table_names()
    }


def test_made_at_once_equals_migrated(tmp_path: Path) -> None:
    made = create_engine(f"sqlite:///{tmp_path / 'made.sqlite'}")
    migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.sqlite'}")
    run_tables.prepare(made)
    run_tables.migrate(migrated)
    assert schema(made) == schema(migrated)
    for engine in (made, migrated):
        with engine.connect() as connection:
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        assert found == run_tables.HEAD
        run_tables.prepare(engine)
        engine.dispose()


def test_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(run_tables.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == run_tables.HEAD


def test_an_older_database_is_migrated(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'old.sqlite'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
    run_tables.prepare(engine)
    assert "trajectories" in inspect(engine).get_table_names()
    engine.dispose()


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'new.sqlite'}")
    run_tables.prepare(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="9999"):
        run_tables.prepare(engine)
    engine.dispose()


def test_a_new_run_does_not_load_alembic(tmp_path: Path) -> None:
    code = (
        "import sys; from envgen.store.runs import RunStore; "
        f"RunStore.open({str(tmp_path)!r}, config={{}}, dataset_hash='').close(); "
        "sys.exit('alembic' in sys.modules)"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env=env)

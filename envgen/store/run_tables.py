"""The tables of a run store, and how a database gets them: made at once, or migrated."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import (
    Boolean,
    Column,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    text,
)

from envgen.core.errors import StoreError

HEAD = "0001"
"""The newest migration; the tables below are what it leads to."""

_C = String(collation="C").with_variant(String(), "sqlite")

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("config", Text, nullable=False),
    Column("config_hash", String(64), nullable=False),
    Column("dataset_hash", String(64), nullable=False),
)

trajectories = Table(
    "trajectories",
    metadata,
    Column("run_id", String(32), ForeignKey("runs.id"), primary_key=True),
    Column("task_id", _C, primary_key=True),
    Column("sample", Integer, primary_key=True),
    Column("policy", Text, nullable=False),
    Column("stop", String(32), nullable=False),
    Column("passed", Boolean),
    Column("value", Float),
    Column("error", Text),
    Column("num_calls", Integer, nullable=False),
    Column("reached_verifier", Boolean, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("wall_s", Float, nullable=False),
    Column("record", LargeBinary, nullable=False),
    Index("trajectories_by_outcome", "run_id", "task_id", "passed"),
)

stages = Table(
    "stages",
    metadata,
    Column("run_id", String(32), ForeignKey("runs.id"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("value", Text, nullable=False),
)


def prepare(engine: Engine) -> None:
    """Give a database the tables: all at once if it is empty, by migrations if it is older.

    Alembic is only loaded for an older database: it costs half a second.

    Raises:
        StoreError: if a newer envgen made the database.
    """
    found = inspect(engine).get_table_names()
    if "alembic_version" not in found:
        if {"runs", "trajectories", "stages"} & set(found):
            raise StoreError("the database holds tables of that name that envgen did not make")
        with engine.begin() as connection:
            metadata.create_all(connection)
            connection.execute(
                text(
                    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
                    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
                )
            )
            connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})
        return
    with engine.connect() as connection:
        version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if version != HEAD:
        migrate(engine)


def migrate(engine: Engine) -> None:
    """Bring a database to the newest tables with Alembic.

    Raises:
        StoreError: if its version is unknown, so made by a newer envgen.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise StoreError(
                f"can't migrate the run database: {error}",
                "a newer envgen made it; upgrade envgen",
            ) from error

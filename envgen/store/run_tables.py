"""The tables of a run store, and how a database gets them."""

from __future__ import annotations

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

VERSION = "0001"
"""Of the tables below; a database holds it in ``alembic_version``, a name from envgen's first versions."""

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
    """Give an empty database the tables.

    Raises:
        StoreError: if it has tables of another version, or of somebody else.
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
            connection.execute(
                text("INSERT INTO alembic_version VALUES (:version)"), {"version": VERSION}
            )
        return
    with engine.connect() as connection:
        version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if version != VERSION:
        raise StoreError(
            f"the run database has tables of version {version!r}, this envgen reads {VERSION!r}",
            "another envgen made it; read it with that one",
        )

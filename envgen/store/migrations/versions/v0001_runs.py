"""Runs, trajectories and stage results."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_C = sa.String(collation="C").with_variant(sa.String(), "sqlite")


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("config_hash", sa.String(64), nullable=False),
        sa.Column("dataset_hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "trajectories",
        sa.Column("run_id", sa.String(32), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("task_id", _C, primary_key=True),
        sa.Column("sample", sa.Integer, primary_key=True),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("stop", sa.String(32), nullable=False),
        sa.Column("passed", sa.Boolean),
        sa.Column("value", sa.Float),
        sa.Column("error", sa.Text),
        sa.Column("num_calls", sa.Integer, nullable=False),
        sa.Column("reached_verifier", sa.Boolean, nullable=False),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("completion_tokens", sa.Integer, nullable=False),
        sa.Column("cost_usd", sa.Float, nullable=False),
        sa.Column("wall_s", sa.Float, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
    op.create_index("trajectories_by_outcome", "trajectories", ["run_id", "task_id", "passed"])
    op.create_table(
        "stages",
        sa.Column("run_id", sa.String(32), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("stages", "trajectories", "runs"):
        op.drop_table(name)

"""Whoever plays at random can play any task: what an answer may be, the task's own tools list."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import attempted

from envgen.pipelines.general.domains import DOMAINS
from envgen.pipelines.general.draft import (
    Draft,
    Proof,
    environment_bundle,
    task_bundle,
)
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.writer import DatasetWriter


@pytest.mark.parametrize("domain", DOMAINS)
def test_random_valid_plays_the_first_levels(domain: str, tmp_path: Path) -> None:
    """A question of menus was asked over a list that wants a shelf: no task of its level was ever kept."""
    drafts = dict[str, Draft]()
    for level in (1, 2, 3, 4):
        for seed in range(3 if level < 4 else 1):
            draft = attempted(domain, level, seed)
            if isinstance(draft, Draft):
                drafts.setdefault(draft.environment_id, draft)
    with DatasetWriter(tmp_path / "ds", name="drafts") as writer:
        for draft in drafts.values():
            writer.add_environment(environment_bundle(draft))
            writer.add_task(task_bundle(draft, Proof(())))
        writer.finish()
    summary = rollout(
        RolloutConfig(
            dataset=str(tmp_path / "ds"),
            policy=PolicyConfig(spec="random-valid"),
            out=str(tmp_path / "run"),
            backend="process",
            unproven=True,
            trust=True,
        )
    )
    assert summary.samples == len(drafts) >= 7
    assert summary.errors == 0, summary.faults

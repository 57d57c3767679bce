"""What an update sees of a batch: the engine's mismatch counts in eq. 9, and is told."""

from __future__ import annotations

import logging
from random import Random

import numpy as np
import pytest
import torch

from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.config import GRPOConfig, OptimizerConfig, UpdateConfig
from envgen.train.figures import Figures, warn_of_update
from envgen.train.optimize import Optimizer
from envgen.train.rows import Row
from envgen.train.update import RolloutBatch, Updater


def learnt_from(nats: float) -> Figures:
    """One update by four rollouts of a policy, from an engine that called each token so much likelier."""
    torch.manual_seed(0)
    model = DSAForCausalLM(preset("tiny", vocab_size=60, num_hidden_layers=2))
    rows = []
    for i in range(4):
        ids = torch.randint(0, 60, (12,))
        with torch.no_grad():
            logp = model(ids.unsqueeze(0)).logits.float().log_softmax(-1)[0]
        old = logp[torch.arange(3, 11), ids[4:]].numpy() + nats
        rows.append(Row(i, ids.numpy().astype(np.int32), np.arange(4, 12), old.astype(np.float32)))
    batch = RolloutBatch(
        rows=rows,
        group_I=np.zeros(4, np.int64),
        reward_I=np.array([1, 0, 1, 0], np.float32),
        length_I=np.full(4, 8),
    )
    model.requires_grad_(True)
    optimizer = Optimizer(model, OptimizerConfig(lr=1e-4))
    return Updater(model, optimizer, GRPOConfig(), UpdateConfig(), 1.0).update(batch, Random(0))


def test_what_the_engine_alone_is_off_by_counts_in_the_mask(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delta = GRPOConfig().off_policy_delta
    near, far = learnt_from(delta / 2), learnt_from(delta * 2)
    assert (near.masked, near.negatives) == (0, 2)
    assert (far.masked, far.negatives) == (2, 2)
    assert far.named()["policy/mismatch_p95"] == pytest.approx(2 * delta, rel=1e-3)
    with caplog.at_level(logging.WARNING):
        warn_of_update(near, 0, delta)
        assert not caplog.text
        warn_of_update(far, 0, delta)
    assert "engine and trainer differ" in caplog.text
    assert f"objective.off_policy_delta={delta:g}" in caplog.text

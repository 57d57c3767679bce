"""An engine in bf16 with fp8 index keys under a trainer in fp32: what replay repairs.

One process in one precision has no mismatch, so it is injected here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from students import School

from envgen.core.seeding import derive
from envgen.environments.hosts import open_dataset
from envgen.model.modeling import DSAForCausalLM
from envgen.policies.encoding import load_encoding
from envgen.train.batch import row_batch, score_batch
from envgen.train.config import SamplingConfig
from envgen.train.rollouts import Rollouts, Sampler
from envgen.train.rows import NOT_ROUTED

pytestmark = pytest.mark.xdist_group("school")


class Drawn(NamedTuple):
    model: DSAForCausalLM
    rollouts: Rollouts


def draw(taught: School, **settings: object) -> Drawn:
    """Rollouts of a model with random weights, spread so that experts and keys are chosen anew each time."""
    model = DSAForCausalLM.from_pretrained(taught.model).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for gate in model.gates():
            gate.weight.normal_(0, 0.3, generator=generator)
        for weight in model.indexer_parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.2, generator=generator)
    dataset = open_dataset(taught.dataset)
    config = SamplingConfig.model_validate(
        {"groups": 2, "group_size": 4, "max_new_tokens": 24, "top_p": 0.95, **settings}
    )
    sampler = Sampler(model, load_encoding(taught.model), dataset, config)
    try:
        sampler.refresh("0")
        return Drawn(model, sampler.draw(sorted(dataset.tasks)[:2], derive(0, "mismatch")))
    finally:
        sampler.close()


def log_ratios(drawn: Drawn, *, replay: bool) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """|log(pi_trainer / pi_engine)| of every model token."""
    batch = row_batch(drawn.rollouts.rows)
    with torch.no_grad():
        scored = score_batch(drawn.model, batch, 1.0, keep_routing=replay, keep_topk=replay)
    return (scored.scores.logp_N - batch.old_N).abs().numpy()


def rerouted(drawn: Drawn, *, replay: bool) -> float:
    """The share of (token, layer) whose experts the trainer chooses otherwise."""
    batch = row_batch(drawn.rollouts.rows)
    with torch.no_grad():
        scored = score_batch(drawn.model, batch, 1.0, keep_routing=replay, keep_topk=replay)
    assert batch.routing_BTXA is not None
    assert scored.routing_BTXA is not None
    known = (batch.routing_BTXA[..., 0] != NOT_ROUTED) & batch.valid_BT.unsqueeze(-1)
    same = (batch.routing_BTXA.sort(-1).values == scored.routing_BTXA.sort(-1).values).all(-1)
    return float((~same[known]).float().mean())


def test_replay_repairs_what_precision_breaks(taught: School) -> None:
    drawn = draw(taught, dtype="bfloat16", index_fp8=True)
    assert rerouted(drawn, replay=False) >= 0.01
    assert rerouted(drawn, replay=True) == 0
    live, repeated = (np.quantile(log_ratios(drawn, replay=on), 0.99) for on in (False, True))
    assert live >= 5 * repeated, (live, repeated)


def test_equal_precision_has_no_mismatch(taught: School) -> None:
    drawn = draw(taught)
    assert log_ratios(drawn, replay=True).max() <= 1e-5


def test_the_engines_copy_follows_the_trainer(taught: School) -> None:
    model = DSAForCausalLM.from_pretrained(taught.model).eval()
    dataset = open_dataset(taught.dataset)
    config = SamplingConfig(groups=1, group_size=2, max_new_tokens=8, dtype="bfloat16")
    sampler = Sampler(model, load_encoding(taught.model), dataset, config)
    try:
        sampler.refresh("0")
        tasks = sorted(dataset.tasks)[:1]
        before = sampler.draw(tasks, 1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        sampler.refresh("1")
        after = sampler.draw(tasks, 1)
    finally:
        sampler.close()
    for rollouts, version in ((before, "0"), (after, "1")):
        assert {one.policy_version for one in rollouts.trajectories} == {version}
    drawn = Drawn(model, after)
    assert np.median(log_ratios(drawn, replay=True)) < 0.05
    assert np.median(log_ratios(Drawn(model, before), replay=True)) > 0.1


def test_the_engines_copy_has_the_routers_biases(taught: School) -> None:
    model = DSAForCausalLM.from_pretrained(taught.model).eval()
    for gate in model.gates():
        gate.e_score_correction_bias[:2] += 2  # above any score: these two are chosen
    dataset = open_dataset(taught.dataset)
    config = SamplingConfig(groups=1, group_size=2, max_new_tokens=8, dtype="bfloat16")
    sampler = Sampler(model, load_encoding(taught.model), dataset, config)
    try:
        sampler.refresh("0")
        drawn = Drawn(model, sampler.draw(sorted(dataset.tasks)[:1], 1))
    finally:
        sampler.close()
    for row in drawn.rollouts.rows:
        assert row.routing is not None
        assert set(row.routing[:-1].flatten().tolist()) == {0, 1}
    assert rerouted(drawn, replay=False) == 0

"""A model in shards is smaller in each process, and its gradients are those of the whole one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import torch
from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.train.parallel import ParallelConfig, Together
from envgen.train.sharding import shard, stand_in, whole, whole_model

rank, meeting = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
ranks = Together(rank, 2, meeting, ParallelConfig(processes=2, sharding="fsdp"))
config = preset("tiny", vocab_size=64)
model, plain = (DSAForCausalLM(config).requires_grad_(True).train() for _ in range(2))
shard(model)
parts = [(w.to_local().numel(), w.numel()) for w in model.parameters()]
held, all_of_it = (sum(sizes) for sizes in zip(*parts))
assert held < 0.6 * all_of_it, (held, all_of_it)

ids = torch.randint(0, 64, (4, 24), generator=torch.Generator().manual_seed(0))
def loss(of, ids):
    output = of(ids, index_loss="sparse")
    return output.logits.float().logsumexp(-1).sum() + output.index_loss * len(ids)

# Rank 0 has three passes, rank 1 one and two that stand in.
mine = [ids[:1], ids[1:2], ids[2:3]] if rank == 0 else [ids[3:]]
for some in mine:
    torch.autograd.backward(loss(model, some))
before = [gate.load.clone() for gate in model.gates()]
for _ in range(3 - len(mine)):
    stand_in(model, "sparse")
assert all(torch.equal(a, gate.load) for a, gate in zip(before, model.gates()))
ranks.add_gradients(list(model.parameters()))
for row in ids:
    torch.autograd.backward(loss(plain, row[None]))
for (name, weight), want in zip(model.named_parameters(), plain.parameters()):
    assert torch.allclose(whole(weight.grad), want.grad, rtol=1e-4, atol=1e-5), name
with torch.no_grad():
    model(ids)  # leaves gathered weights behind
copy = whole_model(model)
for (name, weight), want in zip(copy.state_dict().items(), plain.state_dict().values()):
    assert torch.equal(weight, want), name
print("the same")
"""


@pytest.mark.slow
def test_gradients_of_shards_add_up_to_those_of_the_whole_model(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", SCRIPT, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert out == "the same\n", errors

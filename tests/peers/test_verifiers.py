"""verifiers 0.4: its own ``vf-eval`` loads the export and plays it against a scripted OpenAI server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from peer_play import ROOT, SEED, TASKS, Peer, own_rewards, some_tasks
from policy_server import policy_server

from envgen.integrations.exports import write_package
from envgen.policies.registry import PolicyConfig
from envgen.rollout.export import export_run
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.store.subset import subset


@pytest.mark.parametrize("family", ["general", "search", "interpreter", "proof", "code"])
@pytest.mark.parametrize("spec", ["noisy-gold:0.3"])
def test_it_gives_our_rewards(
    peer: Peer, datasets: dict[str, Dataset], family: str, spec: str, tmp_path: Path
) -> None:
    python = peer("verifiers", "verifiers==0.4.0", "uv", "-e", f"{ROOT}[env-server,interpreter]")
    whole = datasets[family]
    tasks = some_tasks(whole, TASKS)
    dataset = subset(whole, tasks, tmp_path / "ds")
    write_package(dataset, tmp_path / "pkg", "verifiers")
    (module,) = (one.parent.name for one in (tmp_path / "pkg").glob("*/__init__.py"))
    with policy_server(dataset, spec, SEED) as server:
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path / "pkg"),
            "OPENAI_API_KEY": "none",
            "PATH": f"{python.parent}:{os.environ['PATH']}",
        }
        words = [
            str(python.parent / "vf-eval"), module, "-m", "scripted", "--client.base-url", server.url,
            "--client.api-key-var", "OPENAI_API_KEY", "--no-push", "-n", str(len(tasks)),
            "-r", "1", "-c", "4",
        ]  # fmt: skip
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    found = {}
    for file in (tmp_path / "outputs").glob("*/traces.jsonl"):
        for line in file.read_text().splitlines():
            episode = json.loads(line)
            (trace,) = episode["traces"]
            assert trace["ok"], trace["errors"]
            found[episode["task"]["data"]["task_id"]] = trace["rewards"]["score"]["score"]
    assert found == own_rewards(dataset, spec, tasks)
    print(family, spec, len(found), "tasks,", sum(found.values()), "passed")


READ = """
import sys
from pathlib import Path
from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import read_episodes
episodes = read_episodes(Path(sys.argv[1]), WireTrace)
traces = [one.traces[0] for one in episodes]
assert all(len(trace.branches) == 1 and trace.branches[0].messages for trace in traces)
print(sum(trace.reward for trace in traces))
"""


def test_its_loader_reads_our_traces(
    peer: Peer, datasets: dict[str, Dataset], tmp_path: Path
) -> None:
    python = peer("verifiers", "verifiers==0.4.0", "uv", "-e", f"{ROOT}[env-server,interpreter]")
    dataset, run = datasets["general"], tmp_path / "run"
    policy = PolicyConfig(spec="noisy-gold:0.3")
    rollout(RolloutConfig(dataset=str(dataset.path), policy=policy, out=str(run), n=2))
    written = export_run(run, tmp_path / "traces.jsonl", "verifiers", dataset=dataset).written
    assert written == 2 * len(dataset.tasks)
    words = [str(python), "-P", "-c", READ, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3_000:]
    with RunStore.read(run) as store:
        ours = sum(one.score.value for one in store.trajectories() if one.score is not None)
    assert float(done.stdout.splitlines()[-1]) == ours

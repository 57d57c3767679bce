"""Inspect: its own ``inspect eval`` runs the export against a scripted OpenAI server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from peer_play import ROOT, SEED, TASKS, Peer, own_rewards, some_tasks
from policy_server import policy_server

from envgen.integrations.exports import write_package
from envgen.store.dataset import Dataset
from envgen.store.subset import subset

SPEC = "noisy-gold:0.3"
READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
(found,) = list_eval_logs(sys.argv[1])
log = read_eval_log(found)
assert log.status == "success", log.error
print(json.dumps({s.metadata["task_id"]: s.scores["verdict"].value for s in log.samples}))
"""


@pytest.mark.parametrize("family", ["general", "search", "interpreter", "proof", "code"])
def test_it_gives_our_rewards(
    peer: Peer, datasets: dict[str, Dataset], family: str, tmp_path: Path
) -> None:
    python = peer("inspect", "inspect_ai==0.3.285", "openai", "-e", f"{ROOT}[interpreter]")
    tasks = some_tasks(datasets[family], TASKS)
    dataset = subset(datasets[family], tasks, tmp_path / "ds")
    write_package(dataset, tmp_path / "pkg", "inspect")
    (file,) = (tmp_path / "pkg").glob("*/tasks.py")
    with policy_server(dataset, SPEC, SEED) as server:
        environment = {**os.environ, "SCRIPTED_API_KEY": "none", "SCRIPTED_BASE_URL": server.url}
        words = [
            str(python.parent / "inspect"), "eval", str(file.relative_to(tmp_path)),
            "--model", "openai-api/scripted/m", "--log-dir", str(tmp_path / "logs"), "--display", "none",
        ]  # fmt: skip
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-3_000:]
    words = [str(python), "-c", READ, str(tmp_path / "logs")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == own_rewards(dataset, SPEC, tasks)
    print(family, SPEC, len(found), "tasks,", sum(found.values()), "passed")

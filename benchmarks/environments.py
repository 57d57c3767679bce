"""Steps per second of ``GeneralEnv``, beside OpenEnv's WebSocket step on the same tool.

``python -m benchmarks.environments``. The peer needs a Python with ``openenv`` installed, named
by ``ENVGEN_OPENENV_PYTHON``; without one its published figure is shown, marked as such.

A step is one action with one call of a tool that reads three rows: parse the message, check the
arguments, run the tool, log the call, render the observation, extend the conversation.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from tiny_dataset import write_tiny_dataset

from envgen.core.errors import SandboxUnavailableError
from envgen.environments.general import GeneralEnv
from envgen.environments.hosts import close_hosts
from envgen.store.dataset import Dataset

SECONDS = 2.0
ROUNDS = 3
STEPS = 7
PUBLISHED = 1_300.0
"""OpenEnv 0.10, WebSocket, one client, on two cores; measured 2026-11 (MCP: 300)."""
STEP = json.dumps({"tool_calls": [{"name": "list_hotels", "arguments": {"city": "Hangzhou"}}]})


def steps_per_s(dataset: Dataset, backend: Literal["inline", "process", "bubblewrap"]) -> float:
    """Median over rounds; the resets between the steps are not counted."""
    env = GeneralEnv(dataset, backend=backend, task_ids=["tiny-pair"])
    env.reset(seed=0)
    env.step(STEP)
    rates = []
    for _ in range(ROUNDS):
        spent, n = 0.0, 0
        while spent < SECONDS / ROUNDS:
            env.reset()
            env.step(STEP)  # starts the episode's tools
            start = time.perf_counter()
            for _ in range(STEPS - 1):
                env.step(STEP)
            spent += time.perf_counter() - start
            n += STEPS - 1
        rates.append(n / spent)
    env.close()
    return statistics.median(rates)


def reset_and_first_call_ms(dataset: Dataset, backend: Any) -> float:
    """Median time of a reset with the first call of the episode."""
    env = GeneralEnv(dataset, backend=backend, task_ids=["tiny-pair"])
    times = []
    for _ in range(101):
        start = time.perf_counter()
        env.reset()
        env.step(STEP)
        times.append(time.perf_counter() - start)
    env.close()
    return 1000 * statistics.median(times[1:])


def peer_steps_per_s(database: Path) -> tuple[float, str]:
    """OpenEnv's steps per second, and how the figure came about."""
    python = os.environ.get("ENVGEN_OPENENV_PYTHON")
    if not python:
        return PUBLISHED, "reference figure; set ENVGEN_OPENENV_PYTHON to measure it here"
    script = Path(__file__).with_name("openenv_peer.py")
    done = subprocess.run(
        [python, str(script), str(database), str(SECONDS)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return PUBLISHED, f"reference figure; the peer failed: {done.stderr.strip()[-200:]}"
    return float(done.stdout), "measured in this run"


def main() -> None:
    """Print a line per backend, each beside the peer."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = folder
        dataset = write_tiny_dataset(Path(folder) / "tiny")
        database = dataset.database("tiny-pair")
        assert database is not None
        peer, how = peer_steps_per_s(database)
        print(f"OpenEnv WebSocket step      {peer:10,.0f} /s   ({how})")
        for backend in ("inline", "process", "bubblewrap"):
            try:
                rate = steps_per_s(dataset, backend)  # type: ignore[arg-type]  # the three names
                first = reset_and_first_call_ms(dataset, backend)
            except SandboxUnavailableError as error:
                print(f"env.step {backend:12}        not measured: {error}")
                continue
            print(
                f"env.step {backend:12}       {rate:10,.0f} /s   {rate / peer:5.1f} x the peer; "
                f"reset and first call {first:.2f} ms"
            )
        close_hosts()


if __name__ == "__main__":
    main()

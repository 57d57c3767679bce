"""The environment server beside OpenEnv's own, with one bare WebSocket client; what open sessions cost.

``python -P benchmarks/env_server.py``. The peer needs a Python with ``openenv``, named by
``ENVGEN_OPENENV_PYTHON`` (default: the one that ``make peers`` made). Both serve the same tool, three rows of
SQLite, each in a process of its own; ours checks arguments and logs, too, and runs it in a sandbox unless the
line says inline.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from tiny_dataset import write_tiny_dataset
from websockets.sync.client import ClientConnection, connect

ROOT = Path(__file__).parents[1]
SECONDS = 3.0
STEPS = 40
"""Between two resets: a task allows so many calls."""
SESSIONS = 1_000


class Serving:
    """``envgen serve env`` as a process."""

    def __init__(self, dataset: str, *words: str) -> None:
        self._card = Path(tempfile.mkdtemp()) / "card.json"
        command = [
            sys.executable,
            "-P",
            "-m",
            "envgen",
            "serve",
            "env",
            dataset,
            "--port",
            "0",
            "--trust",
        ]
        command += ["--json", str(self._card), *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not self._card.is_file() or not self._card.read_text():
            time.sleep(0.05)
        self.url = f"ws://127.0.0.1:{json.loads(self._card.read_text())['port']}/ws"
        time.sleep(0.5)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)

    def megabytes(self) -> float:
        """Proportional memory of the server and all that it started."""
        total, todo = 0, [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                for task in Path(f"/proc/{pid}/task").iterdir():
                    todo += map(int, (task / "children").read_text().split())
            except OSError:
                continue
            total += int(
                next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1]
            )
        return total / 1024


def ask(client: ClientConnection, kind: str, **data: Any) -> Any:
    """One message and its answer."""
    client.send(json.dumps({"type": kind, "data": data}))
    return json.loads(client.recv(120))


def steps_per_s(url: str) -> float:
    """Of one client; resets are not counted."""
    call = json.dumps(
        {
            "type": "step",
            "data": {
                "type": "call_tool",
                "tool_name": "list_hotels",
                "arguments": {"city": "Hangzhou"},
            },
        }
    )
    with connect(url) as client:
        spent, n = 0.0, 0
        while spent < SECONDS:
            ask(client, "reset", task_id="tiny-pair")
            client.send(call)
            assert "Lotus Inn" in client.recv(30)  # it starts the episode's tools
            start = time.perf_counter()
            for _ in range(STEPS):
                client.send(call)
                client.recv(30)
            spent += time.perf_counter() - start
            n += STEPS
        return n / spent


def peer_steps_per_s(folder: Path) -> float | None:
    """OpenEnv's server and the same kind of client."""
    python = os.environ.get("ENVGEN_OPENENV_PYTHON", str(ROOT / ".peers/openenv/bin/python"))
    if not Path(python).is_file():
        return None
    (database,) = folder.glob("environments/*hotels*/database.sqlite")
    script = str(Path(__file__).with_name("openenv_peer.py"))
    done = subprocess.run(
        [python, script, str(database), str(SECONDS)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def session_cost(dataset: str, call: dict[str, Any], *words: str) -> tuple[float, float]:
    """Megabytes and milliseconds a session, of a thousand that are open at once and have made a call."""
    with (
        Serving(dataset, "--max-sessions", str(SESSIONS + 8), *words) as server,
        ExitStack() as stack,
    ):

        def opened(_: int) -> ClientConnection:
            client = connect(server.url, open_timeout=60).__enter__()
            assert ask(client, "reset")["type"] == "observation"
            found = ask(client, "step", type="call_tool", **call)
            assert found["type"] == "observation", found
            return client

        stack.callback(opened(0).close)  # what all share is there now
        before, start = server.megabytes(), time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            for client in pool.map(opened, range(SESSIONS)):
                stack.callback(client.close)
        seconds = time.perf_counter() - start
        return (server.megabytes() - before) / SESSIONS, 1_000 * seconds / SESSIONS


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny_dataset(Path(folder) / "ds").path
        peer = peer_steps_per_s(tiny)
        for backend in ("inline", "bubblewrap"):
            with Serving(str(tiny), "--backend", backend) as server:
                ours = steps_per_s(server.url)
            beside = (
                "the peer is not installed"
                if peer is None
                else f"{ours / peer:.2f}x OpenEnv's {peer:,.0f}"
            )
            print(f"one client, {backend}: {ours:,.0f} steps/s, {beside}")
        city = {"tool_name": "list_hotels", "arguments": {"city": "Hangzhou"}}
        query = {"tool_name": "search", "arguments": {"query": "capital"}}
        for name, dataset, call, words in (
            ("general", str(tiny), city, ["--task", "tiny-pair"]),
            ("search", "package:search_questions", query, []),
        ):
            mb, ms = session_cost(dataset, call, *words)
            print(f"{SESSIONS} open sessions of {name}: {mb:.2f} MB and {ms:.1f} ms each")


if __name__ == "__main__":
    main()

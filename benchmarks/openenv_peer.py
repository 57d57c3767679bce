"""OpenEnv's WebSocket step on the tool that ``benchmarks.environments`` steps.

Runs under a Python that has ``openenv`` (not envgen's): ``python openenv_peer.py DATABASE SECONDS``
serves the environment in a process of its own and prints the steps per second of one client
(a bare WebSocket client, which is faster than OpenEnv's own).
"""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import time
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class CallAction(Action):
    """A tool call."""

    name: str
    arguments: dict[str, Any]


class CallObservation(Observation):
    """Its result, as JSON text."""

    result: str = ""


class Hotels(Environment[CallAction, CallObservation, State]):
    """The tool ``list_hotels`` on the same database."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    database = ""

    def __init__(self) -> None:
        super().__init__()
        self._db = sqlite3.connect(
            f"file:{self.database}?mode=ro", uri=True, check_same_thread=False
        )

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kw: Any
    ) -> CallObservation:
        """Nothing to prepare."""
        return CallObservation(done=False, reward=0.0)

    def step(
        self, action: CallAction, timeout_s: float | None = None, **kw: Any
    ) -> CallObservation:
        """Run the tool."""
        rows = self._db.execute(
            "SELECT name, price FROM hotels WHERE city = ? ORDER BY name",
            (action.arguments["city"],),
        )
        result = [{"name": name, "price": price} for name, price in rows]
        return CallObservation(done=False, reward=0.0, result=json.dumps(result))

    @property
    def state(self) -> State:
        """No state."""
        return State()


def serve(database: str, port: int) -> None:
    import uvicorn

    Hotels.database = database
    app = create_fastapi_app(Hotels, CallAction, CallObservation)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


def measure(port: int, seconds: float) -> float:
    from websockets.sync.client import connect

    message = {"name": "list_hotels", "arguments": {"city": "Hangzhou"}}
    step = json.dumps({"type": "step", "data": message})
    with connect(f"ws://127.0.0.1:{port}/ws") as client:
        client.send(json.dumps({"type": "reset", "data": {}}))
        client.recv()
        client.send(step)
        first = json.loads(client.recv())
        assert first["type"] == "observation", first
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            client.send(step)
            client.recv()
            n += 1
        return n / (time.perf_counter() - start)


def main() -> None:
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, __file__, "serve", sys.argv[1], str(port)])
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                time.sleep(0.1)
        print(measure(port, float(sys.argv[2])))
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()

"""Clients of an environment server, bare."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

from websockets.sync.client import ClientConnection, connect

from envgen.integrations.server import EnvServer
from envgen.integrations.settings import EnvServerConfig
from envgen.store.dataset import Dataset


def serving(dataset: Dataset, key: str | None = None, **settings: Any) -> EnvServer:
    config = EnvServerConfig(port=0, backend="inline", trust=True, **settings)
    return EnvServer(dataset.path, config, key=key)


def http(
    server: EnvServer, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request(method, path, raw, headers)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, json.loads(text) if text[:1] in (b"{", b"[") else None


class OpenEnv:
    """A bare client of OpenEnv's WebSocket."""

    def __init__(self, server: EnvServer) -> None:
        self._connect = connect(f"ws://127.0.0.1:{server.port}/ws")

    def __enter__(self) -> OpenEnv:
        self.socket: ClientConnection = self._connect.__enter__()
        return self

    def __exit__(self, *found: Any) -> None:
        self._connect.__exit__(*found)

    def say(self, kind: str, **data: Any) -> Any:
        self.socket.send(json.dumps({"type": kind, "data": data}))
        reply = json.loads(self.socket.recv(30))
        return {**reply["data"], "type": reply["type"]}

"""A real local HTTP server with the answers that a test gives it, path by path."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Page(NamedTuple):
    """An answer."""

    body: Any = b""
    """Bytes as they are; anything else as JSON."""
    status: int = 200
    headers: dict[str, str] = {}


class WebServer:
    """Serves ``pages[path]``, the last of a list for ever; ``seen`` holds (target, headers, body)."""

    def __init__(self, **pages: Page | list[Page]) -> None:
        self.pages = {f"/{path}": found for path, found in pages.items()}
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                """Stay quiet."""

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                owner.seen.append((self.path, headers, body))
                found = owner.pages.get(self.path.partition("?")[0], Page(status=404))
                if isinstance(found, list):
                    found = found.pop(0) if len(found) > 1 else found[0]
                content = found.body
                if not isinstance(content, bytes):
                    content = json.dumps(content).encode()
                self.send_response(found.status)
                for name, value in {"Content-Length": str(len(content)), **found.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(content)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client had read enough

            do_POST = do_GET

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> WebServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

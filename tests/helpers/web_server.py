"""A real local HTTP server with the answers that a test gives it, path by path."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs


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
        self.search: Callable[[str], Page] | None = None
        """What ``/search?q=`` answers, if it is set."""
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
                path, _, fields = self.path.partition("?")
                found = owner.pages.get(path, Page(status=404))
                if path == "/search" and owner.search is not None:
                    found = owner.search(parse_qs(fields)["q"][0])
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

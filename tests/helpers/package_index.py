"""A package index over HTTP that tells when each file was uploaded (PEPs 503, 691, 700)."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Wheel(NamedTuple):
    """One wheel of the index."""

    name: str
    version: str
    day: str
    """When it was uploaded."""
    files: dict[str, str] = {}
    needs: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        """As PEP 427 wants it."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"

    def content(self) -> bytes:
        """The wheel itself."""
        info = f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        requires = "".join(f"Requires-Dist: {need}\n" for need in self.needs)
        metadata = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n{requires}"
        wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files = {**self.files, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
            record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
            archive.writestr(f"{info}/RECORD", record)
        return buffer.getvalue()


@contextmanager
def serve(wheels: list[Wheel]) -> Iterator[str]:
    """Serve the wheels; the URL of the index."""
    files = {wheel.filename: wheel.content() for wheel in wheels}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = [part for part in self.path.split("/") if part]
            if len(parts) == 2 and parts[0] == "files" and parts[1] in files:
                self.answer(files[parts[1]], "application/octet-stream")
            elif len(parts) == 2 and parts[0] == "simple":
                mine = [wheel for wheel in wheels if wheel.name == parts[1]]
                kind = "application/vnd.pypi.simple.v1+json"
                self.answer(json.dumps(_page(parts[1], mine, files)).encode(), kind, bool(mine))
            else:
                self.answer(b"", "text/plain", False)

        def answer(self, body: bytes, kind: str, found: bool = True) -> None:
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _page(name: str, wheels: list[Wheel], files: Mapping[str, bytes]) -> dict[str, object]:
    return {
        "meta": {"api-version": "1.1"},
        "name": name,
        "versions": [wheel.version for wheel in wheels],
        "files": [
            {
                "filename": wheel.filename,
                "url": f"../../files/{wheel.filename}",
                "hashes": {"sha256": hashlib.sha256(files[wheel.filename]).hexdigest()},
                "upload-time": f"{wheel.day}T00:00:00Z",
                "size": len(files[wheel.filename]),
            }
            for wheel in wheels
        ],
    }

"""A local imitation of the Hugging Face Hub's endpoints, as far as its own client uses them for a dataset.

Commits of plain and LFS files, trees, resolves. It keeps what is uploaded, and checks it by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LFS = (".sqlite", ".parquet", ".pack")


class HubServer:
    """Use as a context manager; ``files`` holds repository -> path -> bytes, ``token`` who may write."""

    def __init__(self, token: str = "hf_test") -> None:
        self.token = token
        self.files: dict[str, dict[str, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self._objects: dict[str, bytes] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                """Stay quiet."""

            def _any(self) -> None:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                owner._answer(self, body)

            do_GET = do_HEAD = do_POST = do_PUT = _any

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def sha(self, repo: str) -> str:
        """The commit: a hash of what the repository holds."""
        held = sorted(
            (name, hashlib.sha256(data).hexdigest()) for name, data in self.files[repo].items()
        )
        return hashlib.sha1(json.dumps(held).encode()).hexdigest()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        path = unquote(urlsplit(handler.path).path)
        self.requests.append((handler.command, path))
        for pattern, call in self._routes.items():
            found = re.fullmatch(pattern, f"{handler.command} {path}")
            if found:
                allowed = handler.headers.get("Authorization") == f"Bearer {self.token}"
                if handler.command in ("POST", "PUT") and not allowed and "/lfs/" not in path:
                    return self._send(handler, 401, {"error": "Invalid username or password."})
                call(self, handler, body, **found.groupdict())
                return None
        return self._send(handler, 404, {"error": f"no {path}"})

    def _send(
        self, handler: Any, status: int, value: Any = None, raw: bytes | None = None, **headers: str
    ) -> None:
        data = raw if raw is not None else json.dumps(value).encode()
        handler.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)

    def _create(self, handler: Any, body: bytes) -> None:
        asked = json.loads(body)
        repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if repo in self.files:
            return self._send(
                handler, 409, {"error": "exists", "url": f"{self.url}/datasets/{repo}"}
            )
        self.files[repo] = {".gitattributes": b"*.sqlite filter=lfs\n"}
        return self._send(
            handler, 200, {"url": f"{self.url}/datasets/{repo}", "name": repo, "id": repo}
        )

    def _missing(self, handler: Any, repo: str) -> bool:
        if repo in self.files:
            return False
        self._send(handler, 404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return True

    def _preupload(self, handler: Any, body: bytes, repo: str) -> None:
        files = [
            {
                "path": f["path"],
                "uploadMode": "lfs" if f["path"].endswith(LFS) else "regular",
                "shouldIgnore": False,
            }
            for f in json.loads(body)["files"]
        ]
        self._send(handler, 200, {"files": files})

    def _batch(self, handler: Any, body: bytes, repo: str) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.url}/lfs/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        self._send(handler, 200, {"transfer": "basic", "objects": objects})

    def _put(self, handler: Any, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            return self._send(handler, 400, {"error": "another hash"})
        self._objects[oid] = body
        return self._send(handler, 200, {})

    def _commit(self, handler: Any, body: bytes, repo: str) -> None:
        files = self.files[repo]
        for line in body.decode().splitlines():
            one = json.loads(line)
            kind, value = one["key"], one["value"]
            if kind == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif kind == "lfsFile":
                files[value["path"]] = self._objects[value["oid"]]
            elif kind == "deletedFile":
                files.pop(value["path"], None)
        sha = self.sha(repo)
        url = f"{self.url}/datasets/{repo}/commit/{sha}"
        self._send(handler, 200, {"commitUrl": url, "commitOid": sha, "success": True})

    def _info(self, handler: Any, body: bytes, repo: str, revision: str = "main") -> None:
        if self._missing(handler, repo):
            return None
        if revision not in ("main", self.sha(repo)):
            return self._send(
                handler, 404, {"error": "Invalid rev"}, X_Error_Code="RevisionNotFound"
            )
        siblings = [{"rfilename": name} for name in sorted(self.files[repo])]
        return self._send(
            handler, 200, {"id": repo, "sha": self.sha(repo), "siblings": siblings, "tags": []}
        )

    def _tree(self, handler: Any, body: bytes, repo: str) -> None:
        if self._missing(handler, repo):
            return
        files = self.files[repo]
        listed = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in sorted(files.items())
        ]
        self._send(handler, 200, listed)

    def _resolve(self, handler: Any, body: bytes, repo: str, path: str) -> None:
        data = self.files[repo].get(path)
        if data is None:
            return self._send(
                handler, 404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound"
            )
        tag = f'"{hashlib.sha256(data).hexdigest()}"'
        return self._send(handler, 200, raw=data, ETag=tag, X_Repo_Commit=self.sha(repo))

    def _fine(self, handler: Any, body: bytes) -> None:
        self._send(handler, 200, {"errors": [], "warnings": []})

    _repo = r"(?P<repo>[^/]+/[^/]+)"
    _routes: dict[str, Any] = {
        r"POST /api/repos/create": _create,
        r"POST /api/validate-yaml": _fine,
        rf"POST /api/datasets/{_repo}/preupload/[^/]+": _preupload,
        rf"POST /datasets/{_repo}\.git/info/lfs/objects/batch": _batch,
        r"PUT /lfs/(?P<oid>\w+)": _put,
        rf"POST /api/datasets/{_repo}/commit/[^/]+": _commit,
        rf"GET /api/datasets/{_repo}/revision/(?P<revision>[^/]+)": _info,
        rf"GET /api/datasets/{_repo}": _info,
        rf"GET /api/datasets/{_repo}/tree/[^/]+(?:/.*)?": _tree,
        rf"(?:GET|HEAD) /datasets/{_repo}/resolve/[^/]+/(?P<path>.+)": _resolve,
    }

"""A real local HTTP server that behaves like GitHub's API, and misbehaves on order.

``GitHubServer(issues, comments)`` lists them as GitHub does: by time of change, since a time, in pages
with Link headers, with ETags and a rate limit. ``script`` holds answers that come first, one per request:
``Reply`` is sent as it is, ``Cut`` sends half a body and drops the line, a callable decides by itself.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit


class Reply(NamedTuple):
    status: int
    body: str = "{}"
    headers: dict[str, str] = {}


class Cut(NamedTuple):
    """Promise a body, send half of it, and drop the line."""


class Seen(NamedTuple):
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    status: int


class GitHubServer:
    def __init__(
        self,
        issues: list[dict[str, Any]] | None = None,
        comments: list[dict[str, Any]] | None = None,
        *,
        repo: str = "ada/calc",
        token: str | None = None,
        limit: int = 5_000,
        window_s: float = 3_600.0,
    ) -> None:
        self.issues, self.comments, self.repo = issues or [], comments or [], repo
        self.token, self.limit, self.window_s = token, limit, window_s
        self.used, self.reset = 0, time.time() + window_s
        self.clone_url = ""
        self.script: list[Reply | Cut | Callable[[GitHubServer], None]] = []
        self.seen: list[Seen] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> GitHubServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply | Cut:
        while self.script:
            scripted = self.script.pop(0)
            if isinstance(scripted, Reply | Cut):
                return scripted
            scripted(self)
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return Reply(401, '{"message": "Bad credentials"}')
        if time.time() >= self.reset:
            self.used, self.reset = 0, time.time() + self.window_s
        if self.used >= self.limit:
            return Reply(403, '{"message": "API rate limit exceeded"}', self._limits())
        return self._listed(path, query, headers)

    def _listed(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        rows: Any
        if path == f"/repos/{self.repo}":
            facts = {"full_name": self.repo, "stargazers_count": 3, "license": None}
            rows, more = {**facts, "clone_url": self.clone_url}, False
        elif path in (f"/repos/{self.repo}/issues", f"/repos/{self.repo}/issues/comments"):
            every = self.comments if path.endswith("comments") else self.issues
            fresh = [r for r in every if r["updated_at"] >= query.get("since", "")]
            fresh.sort(key=lambda r: r["updated_at"])
            size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
            rows, more = fresh[(page - 1) * size : page * size], len(fresh) > page * size
        else:
            return Reply(404, '{"message": "Not Found"}')
        body = json.dumps(rows)
        etag = f'"{hashlib.sha256(body.encode()).hexdigest()[:16]}"'
        sent = {"ETag": etag}
        if more:
            following = urlencode({**query, "page": str(int(query.get("page", 1)) + 1)})
            sent["Link"] = f'<{self.url}{path}?{following}>; rel="next", <{self.url}>; rel="last"'
        if headers.get("if-none-match") == etag:
            return Reply(304, "", {**sent, **self._limits()})
        self.used += 1
        return Reply(200, body, {**sent, **self._limits()})

    def _limits(self) -> dict[str, str]:
        return {
            "X-RateLimit-Remaining": str(max(0, self.limit - self.used)),
            "X-RateLimit-Reset": str(int(self.reset)),
        }

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {k: v[0] for k, v in parse_qs(parts.query).items()}
                headers = {k.lower(): v for k, v in self.headers.items()}
                reply = server.answer(parts.path, query, headers)
                status = reply.status if isinstance(reply, Reply) else 0
                server.seen.append(Seen(parts.path, query, headers, status))
                if isinstance(reply, Cut):
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b'[{"half": ')
                    self.close_connection = True
                    return
                body = reply.body.encode()
                self.send_response_only(reply.status)
                for name, value in {"Date": formatdate(usegmt=True), **reply.headers}.items():
                    self.send_header(name, value)
                if reply.status != 304:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if reply.status != 304:
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def issue(number: int, second: int, *, pull: bool = False, body: str = "") -> dict[str, Any]:
    """An issue as the API gives it, last changed at a second of a day."""
    when = f"2023-05-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    return {
        **{"number": number, "title": f"Issue {number}", "body": body or None, "state": "closed"},
        **{"created_at": when, "updated_at": when, "labels": [{"name": "bug"}], "user": None},
        **({"pull_request": {"merged_at": when}} if pull else {}),
    }


def comment(key: int, number: int, second: int, body: str) -> dict[str, Any]:
    row = issue(number, second)
    return {
        **{"id": key, "issue_url": f"https://example.org/repos/ada/calc/issues/{number}"},
        **{"body": body, "created_at": row["created_at"], "updated_at": row["updated_at"]},
        "user": {"login": "ada"},
    }

"""What GitHub's API answers: limits and flaws in it, and a folder of answers for conditional requests."""

from __future__ import annotations

import email.utils
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envgen.core.limits import Line, Text
from envgen.core.types import Record


@dataclass(frozen=True)
class Answer:
    """One answer as it came."""

    status: int
    headers: Mapping[str, str]
    text: bytes

    def number(self, name: str) -> float | None:
        """A header as a number; None when it is missing or none."""
        try:
            return float(self.headers[name])
        except (KeyError, ValueError):
            return None

    @property
    def message(self) -> str:
        """What the server says, in a line."""
        try:
            return str(json.loads(self.text)["message"])[:300]
        except (ValueError, KeyError, TypeError):
            return " ".join(self.text[:200].decode("utf-8", "replace").split())

    @property
    def flaw(self) -> str:
        """What is wrong with a 200: a proxy's page, or a body that was cut off; empty for nothing."""
        if self.status == 304:
            return ""
        try:
            self.text.decode()
            json.loads(self.text)
        except ValueError:
            return f"the answer is not valid JSON: {self.text[:80]!r}"
        return ""

    @property
    def until_reset_s(self) -> float:
        """Seconds until the rate limit is new, by the server's own clock where it tells it."""
        reset = self.number("x-ratelimit-reset")
        if reset is None:
            return 60.0
        try:
            now = email.utils.parsedate_to_datetime(self.headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            now = time.time()
        return max(0.0, reset - now) + 0.5


class CachedAnswer(Record):
    """An answer in the cache."""

    url: Line
    etag: Line
    body: Text
    next: Line
    """Address of the page that follows; empty for none."""


class AnswerCache:
    """Answers by address, with their ETags, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, url: str) -> CachedAnswer | None:
        """What is kept of an address; a broken file counts as nothing."""
        try:
            row = CachedAnswer.model_validate_json(self._file(url).read_bytes())
            json.loads(row.body)
        except (OSError, ValueError):
            return None
        return row if row.url == url else None

    def put(self, url: str, answer: Answer, following: str | None) -> None:
        """Keep an answer that has an ETag, in one step."""
        etag = answer.headers.get("etag", "")
        if not etag:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        row = CachedAnswer(url=url, etag=etag, body=answer.text.decode(), next=following or "")
        target = self._file(url)
        part = target.with_suffix(f".{os.getpid()}.part")
        part.write_text(row.model_dump_json())
        part.replace(target)

    def _file(self, url: str) -> Path:
        return self.folder / f"{hashlib.sha256(url.encode()).hexdigest()}.json"

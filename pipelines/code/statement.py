"""Problem statements and hints: from issues where they were fetched, else from the change itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from envgen.core.code_types import StatementKind
from envgen.core.errors import ConfigError
from envgen.core.limits import Count, Instant, Label, Text

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TRAILER = re.compile(
    r"^(co-authored-by|signed-off-by|reviewed-by|acked-by|tested-by|change-id|pr-url|reviewed-on"
    r"|git-svn-id|cc|closes|fixes|refs|pull-request)\s*:.*$|^\(cherry picked from commit .*\)$"
    r"|^---------$",
    re.IGNORECASE | re.MULTILINE,
)


class Comment(BaseModel):
    """What somebody said under an issue."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    body: Text | None = ""
    created_at: Instant | Literal[""] = ""
    author: Label = ""


class Discussion(BaseModel):
    """An issue or pull request: one line of ``issues.jsonl`` or ``pulls.jsonl``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: Count
    title: Label = ""
    body: Text | None = ""
    created_at: Instant | Literal[""] = ""
    comments: tuple[Comment, ...] = ()
    pull_request: bool = False
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True)
class Pull:
    """The texts of a pull request."""

    title: str
    body: str


@dataclass(frozen=True)
class Texts:
    """What git does not hold: issues and pull requests by number."""

    issues: Mapping[int, Discussion] = field(default_factory=dict)
    pulls: Mapping[int, Pull] = field(default_factory=dict)

    @classmethod
    def load(cls, *paths: Path) -> Texts:
        """From JSON lines, one ``Discussion`` a line; issues and pull requests may be mixed.

        Raises:
            ConfigError: with file and line, if a line is none.
        """
        issues: dict[int, Discussion] = {}
        pulls: dict[int, Pull] = {}
        for path in paths:
            for i, line in enumerate(_text(path).split("\n"), 1):
                item = _discussion(line, f"{path}:{i}") if line.strip() else None
                if item and item.pull_request:
                    pulls[item.number] = Pull(item.title, item.body or "")
                elif item:
                    issues[item.number] = item
        return cls(issues, pulls)


class Change(Protocol):
    """What a statement is written from when there is no issue."""

    @property
    def pull(self) -> int | None:
        """The pull request's number."""
        ...

    @property
    def title(self) -> str:
        """The change's title."""
        ...

    @property
    def body(self) -> str:
        """What the landing commit says below its title."""
        ...


@dataclass(frozen=True)
class SourcedStatement:
    """A problem statement and where it comes from."""

    kind: StatementKind
    text: str


def statement_of(change: Change, issues: tuple[int, ...], texts: Texts) -> SourcedStatement:
    """The text of the issues that a change closes; without one, of the pull request or commit."""
    known = [texts.issues[n] for n in issues if n in texts.issues]
    if known:
        return SourcedStatement("issue", "\n\n".join(_joined(i.title, i.body or "") for i in known))
    if change.pull is None:
        return SourcedStatement("commit", _joined(change.title, change.body))
    pull = texts.pulls.get(change.pull)
    title, body = (pull.title, pull.body) if pull else (change.title, change.body)
    return SourcedStatement("pull_request", _joined(title, body))


def hints_of(issues: tuple[int, ...], texts: Texts, before: int) -> str:
    """Comments under the issues that are older than ``before`` (Unix seconds), as SWE-bench keeps."""
    bodies = [
        comment.body or ""
        for number in issues
        if number in texts.issues
        for comment in texts.issues[number].comments
        if (when := _unix(comment.created_at)) is not None and when < before
    ]
    return "\n".join(text.strip() for text in bodies if text.strip())


def _joined(title: str, body: str) -> str:
    """Title and body without comments, trailers and superfluous empty lines."""
    body = _TRAILER.sub("", _COMMENT.sub("", body.replace("\r\n", "\n")))
    return re.sub(r"\n{3,}", "\n\n", f"{title.strip()}\n\n{body.strip()}").strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}", "check the path") from None


def _unix(date: str) -> float | None:
    try:
        when = datetime.fromisoformat(date)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _discussion(line: str, where: str) -> Discussion:
    try:
        row = json.loads(line)
        if isinstance(row, dict):
            row["pull_request"] = bool(row.get("pull_request"))
        return Discussion.model_validate(row)
    except (ValueError, ValidationError) as error:
        hint = 'a line is like {"number": 12, "title": "...", "body": "..."}'
        raise ConfigError(f"{where} is not an issue: {error}", hint) from None

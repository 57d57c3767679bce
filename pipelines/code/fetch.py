"""Fetch a repository's issues, pull requests and comments into files that ``Texts.load`` reads.

GitHub lists them by time of change, so the newest change seen is all that a later run must know: every
request asks for what changed since then. Items that change meanwhile move to the end and come
again; pages by number would lose their neighbours.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.core.errors import ResumeError
from envgen.core.types import Record
from envgen.pipelines.code.github import GitHub, GitHubError, Page

Row = dict[str, Any]


class RepositoryFacts(Record):
    """What the API says of a repository."""

    repo: str
    """``owner/name`` as it is called now."""
    default_branch: str
    clone_url: str
    licence: str = ""
    """SPDX id."""
    language: str = ""
    stars: int = 0
    forks: int = 0
    open_issues: int = 0
    archived: bool = False
    fork: bool = False


class RepositoryFilter(Record):
    """Which repositories are worth mining. The thresholds that SWE-bench-Live publishes are in ``LIVE``."""

    min_stars: int = Field(default=0, ge=0)
    max_stars: int | None = None
    min_forks: int = Field(default=0, ge=0)
    archived: bool = True
    """Whether archived repositories count."""
    forks: bool = False
    """Whether forks of others count."""
    licences: tuple[str, ...] = ()
    """SPDX ids that are allowed; empty allows all."""

    def reasons(self, facts: RepositoryFacts) -> Iterator[str]:
        """Why a repository is left out: every reason that holds."""
        if facts.stars < self.min_stars:
            yield f"under {self.min_stars} stars"
        if self.max_stars is not None and facts.stars > self.max_stars:
            yield f"over {self.max_stars} stars"
        if facts.forks < self.min_forks:
            yield f"under {self.min_forks} forks"
        if facts.archived and not self.archived:
            yield "archived"
        if facts.fork and not self.forks:
            yield "a fork"
        if self.licences and facts.licence not in self.licences:
            yield f"licence {facts.licence or 'unknown'}"


LIVE = RepositoryFilter(min_stars=2_000, max_stars=100_000, min_forks=200)
"""SWE-bench-Live's bounds on stars and forks."""


def repository_facts(client: GitHub, repo: str) -> RepositoryFacts:
    """What the API says of ``owner/name``; a renamed repository is found under its new name."""
    body = client.get(f"/repos/{repo}").body
    if not isinstance(body, dict) or "full_name" not in body:
        raise GitHubError(f"no repository in the answer for {repo!r}", "check the api setting")
    if not is_name(str(body["full_name"])):
        raise GitHubError(f"{body['full_name']!r} is no name of a repository")
    return RepositoryFacts(
        repo=str(body["full_name"]),
        default_branch=str(body.get("default_branch") or "main"),
        clone_url=str(body.get("clone_url") or ""),
        licence=str((body.get("license") or {}).get("spdx_id") or "").replace("NOASSERTION", ""),
        language=str(body.get("language") or ""),
        stars=int(body.get("stargazers_count") or 0),
        forks=int(body.get("forks_count") or 0),
        open_issues=int(body.get("open_issues_count") or 0),
        archived=bool(body.get("archived")),
        fork=bool(body.get("fork")),
    )


def is_name(repo: str) -> bool:
    """Whether a text is ``owner/name`` and nothing that could lead out of a folder."""
    parts = repo.split("/")
    return len(parts) == 2 and all(
        re.fullmatch(r"[\w.-]+", part) and part not in (".", "..") for part in parts
    )


def fetch_texts(
    client: GitHub,
    repo: str,
    folder: Path,
    *,
    since: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Path:
    """Bring ``folder/issues.jsonl`` up to date and return its path.

    Args:
        client: the API.
        repo: ``owner/name``.
        folder: this repository's own; a later call, also after a crash, goes on from what it holds.
        since: ISO date; what did not change since then is left out. An earlier date than the last
            call's starts again.
        progress: called with the number of rows after each page.

    Raises:
        ResumeError: if the folder holds another repository's.
        GitHubError: what the API said; the folder keeps what came before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = _instant(since)
    state = _state(folder, repo, start)
    items, comments = _Log(folder, "items", state), _Log(folder, "comments", state)
    for log, path, slim, query in (
        (items, f"/repos/{repo}/issues", _item, {"state": "all", "direction": "asc"}),
        (comments, f"/repos/{repo}/issues/comments", _comment, {"direction": "asc"}),
    ):
        for page in _changed(client, path, log.cursor or start, query):
            log.append(_slimmed(page, slim))
            progress(len(page.body))
    return _compile(items.rows(), comments.rows(), folder / "issues.jsonl")


def _changed(client: GitHub, path: str, since: str, query: Mapping[str, str]) -> Iterator[Page]:
    """Pages of what changed since an instant, each asked for from the last change of the one before."""
    page = client.get(path, per_page=100, sort="updated", since=since, **query)
    while True:
        if not isinstance(page.body, list):
            raise GitHubError(f"{page.url}: a list was expected", "check the api setting")
        yield page  # whoever takes it has looked at its rows
        last = str(page.body[-1]["updated_at"]) if page.body else since
        following = page.following
        if following is None:
            return
        if last > since:
            since = last
            page = client.get(path, per_page=100, sort="updated", since=since, **query)
        else:  # a whole page changed in one second: only its successor has news
            page = client.get(following)


def _slimmed(page: Page, slim: Callable[[Row], Row]) -> list[Row]:
    """The fields that are kept of each row."""
    try:
        return [slim(row) for row in page.body]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GitHubError(
            f"{page.url}: a row is no issue or comment: {error!r}", "check the api setting"
        ) from None


class _Log:
    """Rows in order of arrival, and the time of the last change among them."""

    def __init__(self, folder: Path, name: str, state: Row) -> None:
        self.path, self.name, self.state = folder / f"{name}.jsonl", name, state
        self._mend()

    @property
    def cursor(self) -> str:
        """ISO 8601 instant; empty before the first row."""
        return str(self.state.get(self.name, ""))

    def append(self, rows: list[Row]) -> None:
        """Store rows for good, then move the cursor."""
        with self.path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        latest = max((row["updated_at"] for row in rows), default="")
        self.state[self.name] = max(self.cursor, latest)
        _write(self.path.parent / "state.json", json.dumps(self.state))

    def rows(self) -> Iterator[Row]:
        """All rows, oldest arrival first."""
        with self.path.open() as file:
            yield from map(json.loads, file)

    def _mend(self) -> None:
        """Cut off a last line that a crash left half written; start anew without a cursor."""
        if not self.cursor or not self.path.exists():
            self.path.write_bytes(b"")
            self.state.pop(self.name, None)
            return
        with self.path.open("rb+") as file:
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)


def _state(folder: Path, repo: str, start: str) -> Row:
    """The state of an earlier call, or a new one if this call asks for older changes."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
    except (OSError, ValueError):
        state = {}
    if state and str(state.get("repo")).lower() != repo.lower():
        raise ResumeError(
            f"{str(folder)!r} holds the issues of {state.get('repo')!r}", "use a folder of its own"
        )
    if not state or start < str(state.get("since", "")):
        return {"repo": repo, "since": start}
    return dict(state)


def _item(row: Row) -> Row:
    pull = row.get("pull_request")
    return {
        "number": int(row["number"]),
        "title": str(row.get("title") or ""),
        "body": str(row.get("body") or ""),
        "created_at": str(row.get("created_at") or ""),
        "updated_at": str(row["updated_at"]),
        "labels": [str(label.get("name", "")) for label in row.get("labels") or ()],
        "pull_request": isinstance(pull, dict),
        "merged": bool(isinstance(pull, dict) and pull.get("merged_at")),
        "author": str((row.get("user") or {}).get("login", "")),
    }


def _comment(row: Row) -> Row:
    return {
        "id": int(row["id"]),
        "number": int(str(row["issue_url"]).rsplit("/", 1)[-1]),
        "body": str(row.get("body") or ""),
        "created_at": str(row.get("created_at") or ""),
        "updated_at": str(row["updated_at"]),
        "author": str((row.get("user") or {}).get("login", "")),
    }


def _compile(items: Iterator[Row], comments: Iterator[Row], path: Path) -> Path:
    """One row per issue or pull request, comments inside, by number; of two versions the later."""
    found = {row["number"]: {**row, "comments": []} for row in items}
    for row in sorted({row["id"]: row for row in comments}.values(), key=lambda r: r["id"]):
        if row["number"] in found:
            kept = {name: row[name] for name in ("author", "created_at", "body")}
            found[row["number"]]["comments"].append(kept)
    _write(path, "".join(json.dumps(found[n]) + "\n" for n in sorted(found)))
    return path


def _write(path: Path, text: str) -> None:
    """Replace a file in one step."""
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)


def _instant(date: str | None) -> str:
    """A date as the API wants it."""
    if date is None:
        return "1970-01-01T00:00:00Z"
    return date if "T" in date else f"{date}T00:00:00Z"

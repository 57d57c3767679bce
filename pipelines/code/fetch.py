"""Fetch a repository's issues, pull requests and comments into files that ``Texts.load`` reads.

GitHub lists them by time of change, so the newest change seen is all that a later run must know: every
request asks for what changed since then. Items that change meanwhile move to the end and come
again; pages by number would lose their neighbours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from envgen.core.errors import ResumeError
from envgen.core.limits import Count, Instant, Label, Line, Repository, Revision, Text, fault
from envgen.core.types import Record
from envgen.pipelines.code.github import GitHub, GitHubError, Page

Row = dict[str, Any]
_NAME: TypeAdapter[str] = TypeAdapter(Repository)


class _Answered(BaseModel):
    """A row of an answer: what is read of it; the rest is let be."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Licence(_Answered):
    spdx_id: Line | None = None


class RepositoryFacts(_Answered):
    """What the API says of a repository, under the API's names."""

    full_name: Repository
    """``owner/name`` as it is called now."""
    default_branch: Revision = "main"
    clone_url: Line = ""
    license: _Licence | None = None
    language: Line | None = None
    stargazers_count: Count = 0
    forks_count: Count = 0
    open_issues_count: Count = 0
    archived: bool = False
    fork: bool = False

    @property
    def licence(self) -> str:
        """SPDX id; empty for none that is known."""
        known = self.license.spdx_id if self.license else None
        return "" if known in (None, "NOASSERTION") else str(known)


class _Label(_Answered):
    name: Label = ""


class _User(_Answered):
    login: Label = ""


class _Pull(_Answered):
    merged_at: Instant | None = None


class _Item(_Answered):
    """An issue or a pull request."""

    number: Count
    title: Label | None = None
    body: Text | None = None
    created_at: Instant | None = None
    updated_at: Instant
    labels: tuple[_Label, ...] | None = ()
    pull_request: _Pull | None = None
    user: _User | None = None

    def slim(self) -> Row:
        """What is kept of it."""
        return {
            "number": self.number,
            "title": self.title or "",
            "body": self.body or "",
            "created_at": self.created_at or "",
            "updated_at": self.updated_at,
            "labels": [label.name for label in self.labels or ()],
            "pull_request": self.pull_request is not None,
            "merged": bool(self.pull_request and self.pull_request.merged_at),
            "author": self.user.login if self.user else "",
        }


class _Comment(_Answered):
    id: Count
    issue_url: Annotated[Line, StringConstraints(pattern=r"/\d{1,18}$")]
    body: Text | None = None
    created_at: Instant | None = None
    updated_at: Instant
    user: _User | None = None

    def slim(self) -> Row:
        """What is kept of it."""
        return {
            "id": self.id,
            "number": int(self.issue_url.rsplit("/", 1)[-1]),
            "body": self.body or "",
            "created_at": self.created_at or "",
            "updated_at": self.updated_at,
            "author": self.user.login if self.user else "",
        }


class _State(_Answered):
    """How far a folder's files have come: ``state.json``."""

    repo: Repository
    since: Instant
    items: Instant | Literal[""] = ""
    comments: Instant | Literal[""] = ""


A = TypeVar("A", bound=_Answered)


class RepositoryFilter(Record):
    """Which repositories are worth mining. SWE-bench-Live asks for 2,000 to 100,000 stars and 200 forks."""

    min_stars: int = Field(default=0, ge=0)
    max_stars: Count | None = None
    min_forks: int = Field(default=0, ge=0)
    archived: bool = True
    """Whether archived repositories count."""
    forks: bool = False
    """Whether forks of others count."""
    licences: tuple[Line, ...] = ()
    """SPDX ids that are allowed; empty allows all."""

    def reasons(self, facts: RepositoryFacts) -> Iterator[str]:
        """Why a repository is left out: every reason that holds."""
        if facts.stargazers_count < self.min_stars:
            yield f"under {self.min_stars} stars"
        if self.max_stars is not None and facts.stargazers_count > self.max_stars:
            yield f"over {self.max_stars} stars"
        if facts.forks_count < self.min_forks:
            yield f"under {self.min_forks} forks"
        if facts.archived and not self.archived:
            yield "archived"
        if facts.fork and not self.forks:
            yield "a fork"
        if self.licences and facts.licence not in self.licences:
            yield f"licence {facts.licence or 'unknown'}"


def repository_facts(client: GitHub, repo: str) -> RepositoryFacts:
    """What the API says of ``owner/name``; a renamed repository is found under its new name."""
    page = client.get(f"/repos/{repo}")
    return _checked(RepositoryFacts, page.body, page.url, "repository")


def is_name(repo: str) -> bool:
    """Whether a text is ``owner/name`` and nothing that could lead out of a folder."""
    try:
        return bool(_NAME.validate_python(repo))
    except ValidationError:
        return False


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
    asked = f"/repos/{repo}/issues"
    query = {"direction": "asc"}
    _follow(client, items, _Item, asked, {"state": "all", **query}, start, progress)
    _follow(client, comments, _Comment, f"{asked}/comments", query, start, progress)
    return _compile(items.rows(), comments.rows(), folder / "issues.jsonl")


def _follow(
    client: GitHub,
    log: _Log,
    kind: type[_Item | _Comment],
    path: str,
    query: Mapping[str, str],
    start: str,
    progress: Callable[[int], None],
) -> None:
    """Bring one log up to date."""
    for page in _changed(client, path, log.cursor or start, query):
        log.append([_checked(kind, row, page.url, "issue or comment").slim() for row in page.body])
        progress(len(page.body))


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


def _checked(kind: type[A], row: object, url: str, what: str) -> A:
    """A row of an answer, once its types have looked at it."""
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        raise GitHubError(
            f"{url}: not a valid {what}: {fault(error)}", "check the api setting"
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
        state = _State.model_validate_json((folder / "state.json").read_bytes())
    except (OSError, ValidationError):
        return {"repo": repo, "since": start}
    if state.repo.lower() != repo.lower():
        raise ResumeError(
            f"{str(folder)!r} holds the issues of {state.repo!r}", "use a folder of its own"
        )
    if start < state.since:
        return {"repo": repo, "since": start}
    return state.model_dump(exclude_defaults=True)


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

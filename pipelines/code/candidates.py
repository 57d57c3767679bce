"""Find the changes of a clone that could become instances.

A pull request shows in a clone as a merge commit (named by its message or by ``refs/pull/N/head``),
as one squashed commit (``Title (#12)``), or not at all (then its commits stand for themselves).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from envgen.core.errors import ConfigError
from envgen.pipelines.code.clone import Clone, Commit

_MERGES = (
    r"^Merge pull request #(\d+)\b",
    r"^Merge PR #(\d+)\b",
    r"^(?:Auto merge of|Merge) #(\d+)\b",
    r"\(#(\d+)\)\s*$",
)
_PULL_URL = re.compile(r"^PR-URL:\s*\S+/pull/(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Candidate:
    """One change as it landed on the branch."""

    base: str
    landed: Commit
    pull: int | None
    commits: tuple[Commit, ...] = field(default=())
    """What the change is made of, oldest first."""

    @property
    def messages(self) -> tuple[str, ...]:
        """Every commit message, the landing one first."""
        return tuple(dict.fromkeys((self.landed.message, *(c.message for c in self.commits))))

    @property
    def started(self) -> int:
        """Unix seconds of the first commit's authoring."""
        return min((c.authored for c in self.commits), default=self.landed.authored)

    @property
    def title(self) -> str:
        """The change's title without its number."""
        return re.sub(r"\s*\(#\d+\)\s*$", "", self._message[0]).strip()

    @property
    def body(self) -> str:
        """What is said below the title: by the landing commit, or by the only one that it merges."""
        return self._message[1]

    @property
    def _message(self) -> tuple[str, str]:
        landed = self.landed
        if len(landed.parents) < 2 or not re.match(r"(Auto m|M)erge\b", landed.subject):
            return landed.subject, landed.body
        title, _, body = landed.body.partition("\n")
        only = self.commits[0] if len(self.commits) == 1 else None
        if only and not body.strip():
            body = only.body
        last = self.commits[-1].subject if self.commits else landed.subject
        return title or last, body.strip()


def candidates(
    clone: Clone, *, branch: str = "HEAD", since: str | None = None, until: str | None = None
) -> Iterator[Candidate]:
    """The changes that landed on a branch, newest first.

    Args:
        clone: where they landed.
        branch: whose history is read.
        since: ISO date or time; what landed before it is left out.
        until: the same; what landed on or after it is left out.

    Raises:
        ConfigError: if a date is none.
    """
    first, last = _seconds(since, float("-inf")), _seconds(until, float("inf"))
    commits = {c.id: c for c in clone.log(clone.tip(branch))}
    for commit, pull in _landings(clone, commits):
        if not commit.parents or not first <= commit.committed < last:
            continue
        if len(commit.parents) > 1 and pull is None:
            continue  # a branch merged as such: its commits are looked at one by one
        inner = _inner(commits, commit)
        yield Candidate(commit.parents[0], commit, pull, inner or (commit,))


def pull_of(clone: Clone, commit: Commit) -> int | None:
    """The pull request that a commit landed, by its message or by the pull heads of the clone."""
    known = clone.pulls
    for parent in commit.parents[1:]:
        if parent in clone.pull_heads:
            return clone.pull_heads[parent]
    for rule in _MERGES:
        match = re.search(rule, commit.subject)
        if match and (not known or int(match.group(1)) in known):
            return int(match.group(1))
    match = _PULL_URL.search(commit.message)
    return int(match.group(1)) if match else clone.pull_heads.get(commit.id)


def _landings(clone: Clone, commits: Mapping[str, Commit]) -> Iterator[tuple[Commit, int | None]]:
    """(commit, pull request) of what landed, newest first; of a pull request that landed twice the first.

    Beside the main line these are the pull requests that were merged into a branch which later became
    part of it. A commit there that only says ``(#12)`` counts if the clone knows pull request 12.
    """
    main = _mainline(clone, commits)
    landed: dict[str, tuple[Commit, int | None]] = {}
    for commit in commits.values():
        pull = pull_of(clone, commit)
        merged = len(commit.parents) > 1 or bool(clone.pulls)
        if commit.id in main or (
            pull is not None and merged and clone.pull_heads.get(commit.id) != pull
        ):
            landed[commit.id] = commit, pull
    oldest = sorted(landed.values(), key=lambda item: item[0].committed)
    firsts = {pull: commit.id for commit, pull in reversed(oldest) if pull is not None}
    for commit, pull in reversed(oldest):
        if pull is None or firsts[pull] == commit.id:
            yield commit, pull


def _mainline(clone: Clone, commits: Mapping[str, Commit]) -> frozenset[str]:
    """The tip's first parents, and those of branches that were merged without a pull request."""
    queue, line = [next(iter(commits))], set[str]()
    while queue:
        at: str | None = queue.pop()
        while at is not None and at in commits and at not in line:
            line.add(at)
            commit = commits[at]
            if len(commit.parents) > 1 and pull_of(clone, commit) is None:
                queue += commit.parents[1:]
            at = commit.parents[0] if commit.parents else None
    return frozenset(line)


def _inner(commits: Mapping[str, Commit], merge: Commit, most: int = 200) -> tuple[Commit, ...]:
    """The commits that a merge brings, oldest first; merges among them left out."""
    if len(merge.parents) < 2:
        return ()
    before = _ancestors(commits, merge.parents[0], 5_000)
    inner = _ancestors(commits, merge.parents[1], most, stop=before)
    kept = [commits[c] for c in inner if len(commits[c].parents) < 2]
    return tuple(sorted(kept, key=lambda c: c.authored))


def _ancestors(
    commits: Mapping[str, Commit], start: str, most: int, stop: Mapping[str, None] | None = None
) -> dict[str, None]:
    """Up to ``most`` ancestors of a commit, itself included, nearest first."""
    queue, seen = [start], dict[str, None]()
    for at in queue:
        if len(seen) >= most:
            break
        if at in seen or at not in commits or (stop is not None and at in stop):
            continue
        seen[at] = None
        queue += commits[at].parents
    return seen


def _seconds(date: str | None, default: float) -> float:
    """Unix seconds of an ISO date or time; without a zone it is UTC."""
    if date is None:
        return default
    try:
        when = datetime.fromisoformat(date)
    except ValueError:
        raise ConfigError(f"{date!r} is not a date", "write it like 2023-01-31") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()

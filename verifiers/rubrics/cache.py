"""Votes that were paid for, kept in a file by what was asked."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from envgen.core.errors import StoreError
from envgen.core.limits import Id, Label, Sha256
from envgen.core.surrogates import from_json, to_json
from envgen.core.types import Record, Usage

logger = logging.getLogger(__name__)


class ItemVote(Record):
    """What one vote said about one item."""

    id: Id
    met: bool
    quote: Label = ""
    reason: Label = ""


class StoredVote(Record):
    """One vote; without verdicts if no reply had the form that was asked for."""

    key: Sha256
    """Hash of everything that the vote follows from."""
    verdicts: tuple[ItemVote, ...] | None
    fault: Label = ""
    """What was wrong with the last reply."""
    usage: Usage = Usage()


class VoteCache:
    """Votes by their keys, in a file of JSON lines or (no path) in memory. Thread-safe.

    A line that was cut off, by a machine that stopped, is left out and asked for again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lock = Lock()
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._votes: dict[str, StoredVote] = {}
        self._ends = b"\n"
        if path is not None:
            self._load(path)

    def __call__(self, key: str, ask: Callable[[], StoredVote]) -> tuple[StoredVote, bool]:
        """The vote of this key, and whether it was there already; else it is asked for and kept.

        Two threads that want the same vote pay for one.
        """
        with self._lock:
            own = self._locks[key]
        with own:
            with self._lock:
                found = self._votes.get(key)
            if found is not None:
                return found, True
            vote = ask()
            with self._lock:
                self._store(vote)
            return vote, False

    def _store(self, vote: StoredVote) -> None:
        if self.path is not None:
            line = (to_json(vote) + "\n").encode()
            try:
                with self.path.open("ab") as file:
                    file.write(line if self._ends == b"\n" else b"\n" + line)
            except OSError as error:
                raise _unusable(self.path, error) from error
            self._ends = b"\n"
        self._votes[vote.key] = vote

    def _load(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            raw = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise _unusable(path, error) from error
        self._ends = raw[-1:] or b"\n"
        unread = 0
        for line in filter(None, raw.split(b"\n")):
            try:
                vote = from_json(StoredVote, line.decode())
            except (ValueError, RecursionError):
                unread += 1
                continue
            self._votes[vote.key] = vote
        if unread:
            logger.warning("%s: %d lines can't be read, they are asked for again", path, unread)


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the votes in {str(path)!r} can't be kept: {error.strerror}", "free or move it"
    )

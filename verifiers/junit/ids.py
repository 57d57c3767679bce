"""Names of test cases -> ids that are the same in every run: ``file?::classname::name``.

What a name holds of the machine, the moment or the process is replaced; parameters are kept. Two
different names that would get one id keep their own, so normalising never merges tests.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from envgen.core.code_types import TestId
from envgen.verifiers.junit.cases import RawCase

SEPARATOR = "::"
PLACEHOLDER = re.compile("<(?:address|hash|tmp|time)>")
NEAR = timedelta(hours=36)
"""A time in a name that is this close to the run's is taken for the run's own."""
REPLACEMENTS = (
    (
        re.compile(r"(?<!\s)\s*(?:[\[(]\d+(?:\.\d+)? ?(?:m?s|m?sec|seconds)[\])]| in \d+ m?sec)$"),
        "",
    ),
    (re.compile(r"(?<= at )0x[0-9a-fA-F]{6,16}\b|\b0x(?:5[56]|7[ef])[0-9a-f]{10}\b"), "<address>"),
    (re.compile(r"(?<=[A-Za-z])@[0-9a-f]{6,8}\b(?!\.)"), "@<hash>"),
    (
        re.compile(
            r"(?:/private)?(?:/var/folders/[\w+-]+/[\w+-]+/T|/var/tmp|/tmp)/[^\s/\])'\",]+(?:/pytest-\d+)?"
        ),
        "<tmp>",
    ),
    (re.compile(r"^([\w$]+)\(\)(?=\[|$)"), r"\1"),
    (re.compile(r"^([\w$]+)\{([\w\s.,$\[\]<>]*)\}"), r"\1(\2)"),
)
"""Durations, addresses, Java's hashes, temporary folders; JUnit's and surefire's ways to write methods."""
SUSPECT = re.compile(
    r"0x|@[0-9a-f]|/tmp/|/var/|\(\)(?:\[|$)|\{|[\[(][\d.]+ ?m?s| in \d+ m?s|\d{4}-\d\d-\d\d"
)
"""Found in every name that a replacement changes: most names are looked at once."""
MOMENT = re.compile(
    r"\b(\d{4}-\d\d-\d\d)(?:[T_ ](\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
)


def normalised_ids(
    cases: Sequence[RawCase], root: str, moment: datetime | None
) -> list[tuple[TestId, TestId]]:
    """One id per case, in order, and the printed one where the id has placeholders for parts of it.

    Args:
        cases: of one run.
        root: the repository's folder; paths below it become relative.
        moment: when the run was (naive, any time zone); None: times in names are kept.
    """
    found = [_Names(case, root, moment) for case in cases]
    owners: dict[TestId, set[TestId]] = defaultdict(set)
    for names in found:
        owners[names.normal].add(names.raw)
    return [names.told if len(owners[names.normal]) == 1 else (names.raw, "") for names in found]


def steady_id(test: str) -> str:
    """Return a published id with the placeholders that ``normalised_ids`` uses."""
    return _replaced(test, None)


def join_id(file: str, classname: str, name: str) -> TestId:
    """``file?::classname::name``: the file is left out where a runner does not tell it."""
    return SEPARATOR.join([file, classname, name] if file else [classname, name])


class _Names:
    """A case's id before and after what changes between runs is replaced."""

    __slots__ = ("normal", "raw")

    def __init__(self, case: RawCase, root: str, moment: datetime | None) -> None:
        parts = [_relative(part, root) for part in (case.file, case.classname, case.name)]
        if root and parts[0].startswith("/"):
            parts[0] = ""  # a file of the machine's, not the repository's
        self.raw = join_id(*parts)
        self.normal = join_id(parts[0], *(_replaced(part, moment) for part in parts[1:]))

    @property
    def told(self) -> tuple[TestId, TestId]:
        """The id, and the printed one if placeholders hide a part of it."""
        hidden = self.normal != self.raw and PLACEHOLDER.search(self.normal)
        return self.normal, self.raw if hidden else ""


@lru_cache(maxsize=4096)
def _relative(text: str, root: str) -> str:
    return (text.replace(root.rstrip("/") + "/", "") if root else text).strip()


@lru_cache(maxsize=4096)  # file and class names repeat
def _replaced(text: str, moment: datetime | None) -> str:
    if not SUSPECT.search(text):
        return text
    for pattern, replacement in REPLACEMENTS:
        text = pattern.sub(replacement, text)
    if moment is None:
        return text
    return MOMENT.sub(lambda match: _moment(match, moment), text)


def _moment(match: re.Match[str], moment: datetime) -> str:
    """``<time>`` for a time close to the run's, else what was there."""
    clock = match[2] or "12:00"
    try:
        found = datetime.fromisoformat(f"{match[1]}T{clock}")
    except ValueError:
        return match[0]
    return "<time>" if abs(found - moment) <= NEAR else match[0]

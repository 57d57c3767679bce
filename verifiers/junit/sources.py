"""The sources of a report: a file, a folder, bytes or named bytes -> its files, in order."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from envgen.core.errors import ReportError

MAX_BYTES = 64 << 20
"""Bytes of all files of a report together."""
MAX_FILES = 5_000

Source = Path | str | bytes | Mapping[str, bytes]


class ReportFile(NamedTuple):
    """One file; ``moment`` is when it was written, where that is known."""

    name: str
    content: bytes
    moment: datetime | None


def files_of(source: Source) -> list[ReportFile]:
    """The files of a report, in order of their names.

    Raises:
        ReportError: if a file is missing, no regular file, or they are too many or too large.
    """
    if isinstance(source, bytes):
        files = [ReportFile("report", source, None)]
    elif isinstance(source, Mapping):
        files = [ReportFile(name, source[name], None) for name in sorted(source)]
    else:
        files = list(_read(Path(source)))
    if (total := sum(len(file.content) for file in files)) > MAX_BYTES:
        raise ReportError(f"a report of {total} bytes; at most {MAX_BYTES} are read")
    return files


def naive_utc(moment: datetime) -> datetime:
    """The same moment without a time zone, in UTC; without one it is taken for UTC."""
    try:
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:  # at an end of the calendar
        return moment.replace(tzinfo=None)


def _read(path: Path) -> Iterator[ReportFile]:
    paths = sorted(_xml_files(path)) if path.is_dir() else [path]
    if len(paths) > MAX_FILES:
        raise ReportError(f"{len(paths)} report files in {str(path)!r}; at most {MAX_FILES}")
    left = MAX_BYTES
    for file in paths:
        name = file.relative_to(path).as_posix() if file != path else file.name
        content, moment = _read_file(file, left)
        left -= len(content)
        yield ReportFile(name, content, moment)


def _xml_files(folder: Path) -> Iterator[Path]:
    """Every ``*.xml`` below a folder; linked folders are not entered."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names if name.endswith(".xml"))


def _read_file(path: Path, limit: int) -> tuple[bytes, datetime]:
    """A regular file's bytes and when it was written; links and pipes are refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ReportError(f"no such report: {str(path)!r}; the test run did not write it") from None
    except OSError as error:
        raise ReportError(f"the report {str(path)!r} can't be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ReportError(f"the report {str(path)!r} is not a regular file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ReportError(f"the report {str(path)!r} is too large; at most {MAX_BYTES} are read")
    return content, datetime.fromtimestamp(status.st_mtime, UTC)

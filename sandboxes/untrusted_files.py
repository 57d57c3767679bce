"""Read files that untrusted code may have written: no link is followed, and the size is limited."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: str | Path, max_bytes: int, folder: int | None = None) -> bytes:
    """Read a regular file that untrusted code may have written; no link is followed.

    Args:
        path: the file.
        max_bytes: how large it may be.
        folder: an open folder that ``path`` is relative to.

    Raises:
        OSError: if it is missing, a link, a pipe, or larger.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", str(path))
    return content


def read_owned(folder: Path, name: str, max_bytes: int) -> bytes:
    """Read a regular file that only this user or root can have written; neither it nor its folder is a link.

    Raises OSError.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for path, info in (
            (folder, os.fstat(handle)),
            (folder / name, os.stat(name, dir_fd=handle, follow_symlinks=False)),
        ):
            if info.st_uid not in (0, os.geteuid()) or info.st_mode & stat.S_IWOTH:
                raise PermissionError(errno.EPERM, "another user can write it", str(path))
        return read_regular(name, max_bytes, handle)
    finally:
        os.close(handle)

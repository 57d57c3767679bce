"""Drop what sandboxes have read and looked up from the caches of the kernel.

Sandboxes of one machine share its caches. A patch that reads a page of a large file of ``/usr``, or looks
up a name that does not exist there, and asks in a later run whether that is cached, keeps a bit there, over
runs and judgements, and the clock alone is enough to ask. After ``pages`` every file that a sandbox sees is
as if nobody had read it, but for pages that a program has mapped at that moment. Which names were looked up
nobody can list: ``everything`` drops them and all pages, which only root of the machine may do.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from envgen.sandboxes import runtime
from envgen.sandboxes.workspace import store

_DROP = Path("/proc/sys/vm/drop_caches")
_ALL = "3\n"


def everything() -> bool:
    """Drop the pages and names, there or not, that the kernel has cached and that are not in use.

    It takes less time than a walk over ``/usr``. Returns False where this process may not.
    """
    try:
        for _ in range(2):  # what was looked up more than once may survive the first
            _DROP.write_text(_ALL)
    except OSError:
        return False
    return True


def may_drop() -> bool:
    """Whether ``everything`` will be allowed to."""
    return os.access(_DROP, os.W_OK)


def pages(places: Iterable[Path]) -> None:
    """Drop the cached pages of files, and of all files below folders; links are not followed."""
    if sys.platform != "linux":
        return  # sandboxes run in a virtual machine there, whose cache is out of reach
    for place in map(os.fspath, places):
        if os.path.islink(place):
            continue
        for path in (place, *store.below(Path(place))):
            # what nobody here can open, no sandbox could read; folders have no pages
            with contextlib.suppress(OSError):
                file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)


def of_host() -> Iterator[Path]:
    """The folders of this machine that a sandbox on its ``/usr`` sees."""
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix/store"):
        yield Path("/", name)
    yield from of_programs()


def of_programs() -> Iterator[Path]:
    """Paths that every sandbox sees: this interpreter and the programs that wait for commands."""
    yield Path(runtime.python()).parent.parent
    yield runtime.PROGRAMS

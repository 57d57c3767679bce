"""A file that appears whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from envgen.core.errors import StoreError


@contextmanager
def one_file(path: Path) -> Iterator[Path]:
    """Give a temporary path, which becomes ``path`` if all goes well.

    Raises:
        StoreError: if ``path`` exists or can't be written.
    """
    if path.exists():
        raise StoreError(f"{str(path)!r} exists", "choose another file or remove it")
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.rename(path)
    except OSError as error:
        raise StoreError(f"can't write {str(path)!r}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def text_lines(path: Path | None) -> Iterator[TextIO]:
    """Open a new text file that appears as ``one_file`` says; None: standard output."""
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with one_file(path) as partial, partial.open("w", encoding="utf-8") as file:
        yield file

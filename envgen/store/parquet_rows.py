"""The rows of a Parquet file that nobody vouches for.

A few kilobytes of Parquet may decode into more than a machine's memory: Arrow makes each page as large as
the page says, and takes no limit. So a child process decodes, whose address space has one.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from envgen.core.errors import ConfigError

MEMORY_BYTES = 1 << 30
"""Of the process that reads: Arrow's libraries, a batch of rows and their JSON."""
ROW_BYTES = 1 << 27
"""Of a row as JSON."""
_BATCH = 16
_WHY_CHARS = 500
_HINT = "get the file anew"
_ARROW = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}


def parquet_rows(path: Path) -> Generator[dict[str, Any]]:
    """Read rows as JSON values; what JSON lacks (a date) comes as text, and bytes as null.

    Raises:
        ConfigError: if the file can't be read, or decodes into more than ``MEMORY_BYTES``.
    """
    command = [sys.executable, "-P", __file__, str(path.resolve())]
    piped = subprocess.PIPE
    with subprocess.Popen(command, stdout=piped, stderr=piped, env=os.environ | _ARROW) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            while line := child.stdout.readline(ROW_BYTES):
                if not line.endswith(b"\n"):
                    raise ConfigError(f"{str(path)!r} has a row above {ROW_BYTES >> 20} MiB", _HINT)
                yield json.loads(line)
            why = child.stderr.read(1 << 16).decode(errors="replace").strip()
            code = child.wait()
        finally:
            child.kill()
    if code in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS) or "MemoryError" in why:
        why = f"it decodes into more than {MEMORY_BYTES >> 30} GiB"
    if code or why:
        raise ConfigError(f"{str(path)!r} can't be read: {why[-_WHY_CHARS:]}", _HINT)


def _plain(value: object) -> str | None:
    return None if isinstance(value, bytes) else str(value)


def _decode(path: str) -> None:
    """What the child does."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(_BATCH, use_threads=False):
                for row in batch.to_pylist():
                    sys.stdout.write(json.dumps(row, default=_plain) + "\n")
    except (pa.ArrowException, OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _decode(sys.argv[1])

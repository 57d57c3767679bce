"""What takes seconds to make and several files of tests need: the processes of a run make it once."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

FOLDER = "ENVGEN_TESTS_SHARED"
"""Names a folder of this run alone (``conftest.py`` sets it); without it nothing is shared."""


def recalled(name: str) -> Any:
    """What was remembered under a name in this run; None if nothing was."""
    folder = os.environ.get(FOLDER)
    path = Path(folder, name) if folder else None
    return pickle.loads(path.read_bytes()) if path is not None and path.exists() else None


def remember(name: str, found: Any) -> None:
    """Keep something for the other processes of this run."""
    folder = os.environ.get(FOLDER)
    if folder:
        draft = Path(folder, f"{name}.{os.getpid()}")
        draft.write_bytes(pickle.dumps(found))
        draft.replace(Path(folder, name))  # at once: another may be reading

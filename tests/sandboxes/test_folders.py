from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envgen.sandboxes import folders
from envgen.sandboxes.folders import PrivateFolder

MAKE = """
import os, sys, tempfile
tempfile.tempdir = sys.argv[1]
from envgen.sandboxes.folders import PrivateFolder
folder = PrivateFolder()
(folder.shown("scratch") / "file").write_text("x")
print(folder.path, flush=True)
sys.stdin.read() if sys.argv[2] == "live" else os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_leaves_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-c", MAKE, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, "live"], env=env, **pipes) as live:  # type: ignore[call-overload]  # plain options
        living = Path(live.stdout.readline().decode().strip())
        done = subprocess.run([*command, "die"], env=env, capture_output=True, check=False)
        dead = Path(done.stdout.decode().strip())
        assert dead.exists()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        folders.sweep_once.cache_clear()
        mine = PrivateFolder()
        assert not dead.exists()
        assert living.exists()
        assert mine.path.stat().st_mode & 0o777 == 0o700
        mine.remove()
        mine.remove()
        assert not mine.path.exists()
        live.kill()

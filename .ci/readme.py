"""Run the README's ``sh`` and ``python`` blocks in order, unedited, in an empty directory.

Commands that need a network, a key or the reader's own paths stand in blocks fenced ``text``; they are
listed and not run. Usage: ``python .ci/readme.py [README]`` with the extras installed that the README names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 1200
"""Of one block."""


def main() -> int:
    """Run all blocks; the first that fails ends it."""
    readme = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md")
    blocks = BLOCK.findall(readme.read_text(encoding="utf-8"))
    programs = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(prefix="readme-") as folder:
        for language, text in blocks:
            if language == "text":
                print(f"\n-- listed, not run:\n{text}", end="", flush=True)
            elif not run(language, text, folder, environ):
                return 1
    return 0


def run(language: str, text: str, folder: str, environ: dict[str, str]) -> bool:
    """Run one block as a reader would paste it, and return whether it succeeded."""
    print(f"\n-- {language}:\n{text}", end="", flush=True)
    command = ["bash", "-euo", "pipefail", "-c", text]
    if language == "python":
        command = [sys.executable, "-P", "-W", "error", "-c", text]
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environ, timeout=TIMEOUT_S, check=False)
    print(f"-- exit code {done.returncode} after {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

"""Run a page's ``sh`` and ``python`` blocks in order, unedited, in an empty directory.

Commands that need a network, a key or the reader's own paths stand in blocks fenced ``text``; they are
listed and not run. So are blocks fenced ``sh slow``, unless --slow is given. A block whose first line is a
comment that begins with a file's name is saved under that name. Usage: ``python .ci/readme.py [--slow]
[PAGE ...]``, README.md if none, with the extras installed that it names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK = re.compile(r"^```(sh|python|text|toml|sh slow)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.(?:toml|py)): ")
"""How a block begins that is a file."""
TIMEOUT_S = 1200
"""Of one block."""


def main() -> int:
    """Run all blocks of all pages; the first that fails ends it."""
    words = [word for word in sys.argv[1:] if word != "--slow"]
    pages = [Path(name) for name in words or ["README.md"]]
    return 0 if all(run_page(page, "--slow" in sys.argv) for page in pages) else 1


def run_page(page: Path, slow: bool) -> bool:
    """Run one page's blocks in a directory of its own, and return whether all succeeded."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    programs = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(prefix="readme-") as folder:
        for language, text in blocks:
            named = FILE.match(text)
            if named is not None:
                (Path(folder) / named[1]).write_text(text, encoding="utf-8")
            elif language in ("text", "toml") or (language == "sh slow" and not slow):
                print(f"\n-- listed, not run:\n{text}", end="", flush=True)
            elif not run(language.removesuffix(" slow"), text, folder, environ):
                return False
    return True


def run(language: str, text: str, folder: str, environ: dict[str, str]) -> bool:
    """Run one block as a reader would paste it, and return whether it succeeded."""
    print(f"\n-- {language}:\n{text}", end="", flush=True)
    command = ["bash", "-euo", "pipefail", "-c", text]
    if language == "python":
        # Without -P: a page may import a file that it made.
        command = [sys.executable, "-W", "error", "-c", text]
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environ, timeout=TIMEOUT_S, check=False)
    print(f"-- exit code {done.returncode} after {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

"""A small git repository with a past and a future, for tests of workspaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

SECRET = "the fix that nobody may see"
_WHO = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "PATH": os.environ["PATH"],
}
FILES: dict[str, bytes] = {
    "adder.py": b"def add(a, b):\n    return a - b\n",
    "tests/test_adder.py": (
        b"import unittest\nfrom adder import add\n\n"
        b"class Adding(unittest.TestCase):\n"
        b"    def test_zero(self):\n        self.assertEqual(add(3, 0), 3)\n"
        b"    def test_sum(self):\n        self.assertEqual(add(1, 2), 3)\n"
    ),
    "tests/__init__.py": b"",
    "data/picture.bin": bytes(range(256)),
    "windows.txt": b"one\r\ntwo\r\n",
    "run.sh": b"#!/bin/sh\necho hello\n",
    ".gitattributes": b"tests/ export-ignore\n*.id export-subst\n",
    ".gitignore": b"*.log\nbuilt/\n",
    "commit.id": b"$Format:%H$\n",
}


def git(repo: Path, *words: str, day: str = "2023-05-01") -> str:
    """Run git in ``repo``; what it prints."""
    dates = {"GIT_AUTHOR_DATE": f"{day}T12:00:00Z", "GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
    command = ["git", "-C", str(repo), *words]
    done = subprocess.run(command, env=_WHO | dates, capture_output=True, check=True)
    return done.stdout.decode(errors="replace").strip()


def make(repo: Path, files: Mapping[str, bytes] = FILES) -> str:
    """A repository whose base commit (returned) is followed by what must not be seen."""
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    (repo / "past.txt").write_text("long gone\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first", day="2023-01-01")
    git(repo, "tag", "v1.2.0")
    (repo / "past.txt").unlink()
    for name, content in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if "run.sh" in files:
        (repo / "run.sh").chmod(0o755)
        (repo / "link").symlink_to("adder.py")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "base")
    base = git(repo, "rev-parse", "HEAD")
    _future(repo)
    return base


def _future(repo: Path) -> None:
    """Everything by which later work could be found."""
    (repo / "future.txt").write_text(SECRET)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", f"fix: {SECRET}", day="2024-01-01")
    git(repo, "tag", "v2.0.0")
    git(repo, "notes", "add", "-m", SECRET)
    git(repo, "branch", "later")
    git(repo, "update-ref", "refs/pull/7/head", "HEAD")
    (repo / "future.txt").write_text(SECRET * 2)
    git(repo, "stash")
    git(repo, "pack-refs", "--all")
    (repo / ".git" / "FETCH_HEAD").write_text(f"{git(repo, 'rev-parse', 'HEAD')}\t\tbranch\n")

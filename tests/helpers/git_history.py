"""Write real git repositories, commit by commit, with fixed names and dates."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class History:
    """A repository that a test writes; ``git_dir`` is what mining reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, 1_600_000_000
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    @property
    def git_dir(self) -> Path:
        return self.folder / ".git"

    def git(self, *args: str, stdin: bytes | None = None) -> str:
        date = f"{self.clock} +0000"
        env = {
            **{"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"},
            **{"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"},
            **{"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org"},
            **{"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date},
        }
        command = ["git", "-c", "protocol.file.allow=always", *args]
        done = subprocess.run(
            command, cwd=self.folder, env=env, input=stdin, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def write(self, files: Mapping[str, str | bytes | None]) -> None:
        """Write files into the work tree; None deletes one."""
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, message: str, files: Mapping[str, str | bytes | None] | None = None) -> str:
        """Commit everything; the new commit's id. Each commit is an hour later than the last."""
        self.clock += 3600
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def pull(
        self,
        number: int,
        message: str,
        files: Mapping[str, str | bytes | None],
        *,
        merge: str,
        into: str = "main",
    ) -> str:
        """A pull request of one commit, merged with the message ``merge``; the merge's id."""
        self.git("checkout", "-q", "-b", f"topic-{number}")
        head = self.commit(message, files)
        self.git("checkout", "-q", into)
        self.clock += 3600
        self.git("merge", "-q", "--no-ff", "-m", merge, f"topic-{number}")
        self.git("update-ref", f"refs/pull/{number}/head", head)
        self.git("branch", "-q", "-D", f"topic-{number}")
        return self.git("rev-parse", "HEAD")

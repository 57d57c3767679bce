"""Read a local clone: commits, pull heads, diffs and files. Nothing in it is run or changed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Timer

from envgen.core.errors import PipelineError
from envgen.core.patches import FilePatch, split_patch

_SAFE = (
    *("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotePath=true", "-c", "diff.renameLimit=400", "-c", "protocol.allow=never"),
    *("-c", "log.showSignature=false", "-c", "gpg.program=false", "-c", "diff.relative=false"),
    *("-c", "diff.suppressBlankEmpty=false", "-c", "log.mailmap=false"),
)
_DIFF = (
    *("diff", "--binary", "--full-index", "--find-renames", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--diff-algorithm=myers"),
    *("--submodule=short", "--ignore-submodules=none", "--unified=3", "--inter-hunk-context=0"),
    *("--indent-heuristic", "-O/dev/null"),
)


MAX_LISTING = 64 << 20
"""Bytes of the list of a commit's files: half a million files or so. A few trees can name any number."""
MAX_FILE = 16 << 20
"""Bytes of a file that is read: zeros compress to nearly nothing."""


class PatchTooLargeError(PipelineError):
    """Raised when a change is larger than the caller reads."""


@dataclass(frozen=True)
class Commit:
    """One commit as the log shows it."""

    id: str
    parents: tuple[str, ...]
    author: str
    authored: int
    """Unix seconds."""
    committed: int
    """Unix seconds."""
    message: str

    @property
    def subject(self) -> str:
        """The message's first line."""
        return self.message.lstrip("\n").split("\n", 1)[0].strip()

    @property
    def body(self) -> str:
        """The message without its first line."""
        return self.message.lstrip("\n").partition("\n")[2].strip()


class Clone:
    """A git directory (bare, or the ``.git`` of a checkout)."""

    def __init__(self, path: Path, *, timeout_s: float = 300.0) -> None:
        """Open ``path``, a bare clone or a checkout.

        Raises:
            PipelineError: if git finds no repository there.
        """
        inner = path / ".git"
        self.path = (inner if inner.is_dir() else path).resolve()
        self.timeout_s = timeout_s
        if not (self.path / "HEAD").is_file():
            raise PipelineError(
                f"{str(path)!r} is not a git clone", "give a folder that holds HEAD or .git"
            )
        if pipes := [one.name for one in self.path.iterdir() if one.is_fifo()]:
            raise PipelineError(
                f"{str(path)!r}: {pipes[0]!r} is a pipe", "git would wait for it: remove it"
            )

    def run(self, *args: str, limit_bytes: int | None = None) -> bytes:
        """What git prints.

        Raises:
            PipelineError: if git fails or takes longer than ``timeout_s``.
            PatchTooLargeError: if it prints more than ``limit_bytes``.
        """
        command = ["git", "--bare", f"--git-dir={self.path}", *_SAFE, *args]
        with subprocess.Popen(
            command,
            cwd=self.path,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            watch = Timer(self.timeout_s, _kill, (process,))
            watch.start()
            try:
                out, err = _read(process, limit_bytes)
            finally:
                late = not watch.is_alive()
                watch.cancel()
        if limit_bytes is not None and len(out) > limit_bytes:
            raise PatchTooLargeError(f"git {_verb(args)} printed over {limit_bytes:,} bytes")
        if late:
            raise PipelineError(f"git {_verb(args)} took over {self.timeout_s:g} s in {self.path}")
        if process.returncode:
            message = err.decode("utf-8", "replace").strip()[-400:]
            raise PipelineError(f"git {_verb(args)} failed in {self.path}: {message}")
        return out

    def text(self, *args: str) -> str:
        """What git prints, as text, without the last newline; broken UTF-8 is replaced."""
        return self.run(*args).decode("utf-8", "replace").rstrip("\n")

    def tip(self, branch: str = "HEAD") -> str:
        """The commit of a branch (or any name) as 40 or 64 hex digits. Raises PipelineError."""
        try:
            return self.text("rev-parse", "--verify", "--end-of-options", f"{branch}^{{commit}}")
        except PipelineError as error:
            raise PipelineError(
                f"{branch!r} is not a commit of {str(self.path)!r}",
                "the clone is empty, or has no such branch: `git branch --all` lists them",
            ) from error

    @cached_property
    def pull_heads(self) -> dict[str, int]:
        """Head commit -> number, for every ``refs/pull/N/head``; of two with one head the later."""
        lines = self.text("for-each-ref", "--format=%(objectname) %(refname)", "refs/pull").split(
            "\n"
        )
        pulls: dict[str, int] = {}
        for line in lines:
            commit, _, ref = line.partition(" ")
            parts = ref.split("/")
            if len(parts) == 4 and parts[3] == "head" and parts[2].isdigit():
                pulls[commit] = max(int(parts[2]), pulls.get(commit, 0))
        return pulls

    @cached_property
    def pulls(self) -> frozenset[int]:
        """The numbers of the pull requests whose heads are here."""
        return frozenset(self.pull_heads.values())

    def log(self, *revisions: str, limit: int | None = None) -> list[Commit]:
        """Commits reachable from the revisions (``^x`` excludes), newest first."""
        count = () if limit is None else (f"--max-count={limit}",)
        fields = "%x1e%H%x1f%P%x1f%an%x1f%at%x1f%ct%x1f%B"
        args = ("log", "--topo-order", "--encoding=UTF-8", f"--format={fields}", *count)
        out = self.run(*args, "--end-of-options", *revisions, "--")
        records = out.decode("utf-8", "replace").split("\x1e")[1:]
        return [_commit(record) for record in records]

    def changed(self, base: str, head: str) -> tuple[str, ...]:
        """The paths that differ, by their trees alone: much faster than ``diff``."""
        out = self.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, head, "--")
        return tuple(out.decode("utf-8", "surrogateescape").split("\0")[:-1])

    def diff(self, base: str, head: str, *, limit_bytes: int = 4_000_000) -> tuple[FilePatch, ...]:
        """The change from ``base`` to ``head``, binary files included, UTF-8 throughout.

        A file whose text is not UTF-8 comes as a binary patch, so that records can hold it.

        Raises:
            PatchTooLargeError: over ``limit_bytes``.
        """
        parts = split_patch(self.run(*_DIFF, base, head, "--", limit_bytes=limit_bytes))
        return tuple(q for p in parts for q in self._as_utf8(base, head, p))

    def separate(self, base: str, head: str, part: FilePatch) -> tuple[FilePatch, ...]:
        """A rename as a deletion and an addition."""
        args = ("--literal-pathspecs", *_DIFF, "--no-renames", base, head, "--", *part.paths)
        parts = split_patch(self.run(*args))
        return tuple(q for p in parts for q in self._as_utf8(base, head, p))

    def _as_utf8(self, base: str, head: str, part: FilePatch) -> tuple[FilePatch, ...]:
        """The part itself if it is UTF-8, and else the same change as a binary patch."""
        try:
            part.text.decode()
        except UnicodeDecodeError:
            with NamedTemporaryFile("w", prefix="envgen-attributes-") as attributes:
                attributes.write("* -diff\n")
                attributes.flush()
                named = ("-c", f"core.attributesFile={attributes.name}")
                args = (*named, "--literal-pathspecs", *_DIFF, "--no-renames", base, head)
                return split_patch(self.run(*args, "--", *part.paths))
        return (part,)

    def files(self, commit: str) -> dict[str, int]:
        """Path -> bytes, of every file of a commit (links and submodules left out).

        Raises:
            PatchTooLargeError: if the list is over ``MAX_LISTING``.
        """
        args = ("ls-tree", "-r", "-l", "-z", "--end-of-options", commit)
        out = self.run(*args, limit_bytes=MAX_LISTING)
        sizes: dict[str, int] = {}
        for row in out.decode("utf-8", "surrogateescape").split("\0"):
            head, _, path = row.partition("\t")
            words = head.split()
            if len(words) == 4 and words[0].startswith("100"):
                sizes[path] = int(words[3]) if words[3].isdigit() else 0  # BAD: not in the clone
        return sizes

    def read(self, commit: str, path: str) -> bytes:
        """A file's bytes at a commit.

        Raises:
            PipelineError: if there is none.
            PatchTooLargeError: over ``MAX_FILE``.
        """
        return self.run("cat-file", "blob", f"{commit}:{path}", limit_bytes=MAX_FILE)

    def describe(self, commit: str) -> str:
        """The nearest tag at or before a commit; empty when there is none."""
        try:
            return self.text("describe", "--tags", "--abbrev=0", commit)
        except PipelineError:
            return ""


def _verb(args: Sequence[str]) -> str:
    """The git command among its arguments, for messages."""
    plain = (a for i, a in enumerate(args) if a[:1] != "-" and args[i - 1 : i] != ("-c",))
    return next(plain, "")


def _read(process: subprocess.Popen[bytes], limit_bytes: int | None) -> tuple[bytes, bytes]:
    """(stdout, stderr); a process that prints over the limit is killed."""
    if limit_bytes is None:
        return process.communicate()
    assert process.stdout is not None
    out = process.stdout.read(limit_bytes + 1)
    if len(out) > limit_bytes:
        _kill(process)
    return out, process.communicate()[1]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End git and what it started: a helper that lives on would hold the pipes open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _commit(record: str) -> Commit:
    fields = record.split("\x1f", 5)
    return Commit(
        id=fields[0],
        parents=tuple(fields[1].split()),
        author=fields[2],
        authored=int(fields[3]),
        committed=int(fields[4]),
        message=fields[5].strip("\n"),
    )


def _environment() -> dict[str, str]:
    """Only what git needs: the user's own settings would change how diffs look."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # where git is too old for it: a remote may name a program
        "LC_ALL": "C.UTF-8",
    }

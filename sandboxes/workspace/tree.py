"""The base tree: a repository at one commit as a tar, and nothing of what came later.

A new repository is made with one commit that has the very tree of the base commit. Only the objects
of that tree are copied, so nothing of the future can be in it: no objects, references, packed
references, reflogs, notes, stashes, alternates, remotes or FETCH_HEAD. The newest tag before the
commit is made again, because version tools (setuptools_scm, versioneer, ...) read it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from envgen.core.errors import MissingToolError, WorkspaceError

logger = logging.getLogger(__name__)
NAME = "repo"
"""The top folder in the tar."""
MAX_DEPTH = 100
"""Folders inside one another."""
MAX_LISTING = 64 << 20
"""Bytes of the list of all files: half a million files or so. A few trees can name any number."""
MAX_BYTES = 16 << 30
"""Of all files together: zeros compress to nearly nothing."""
MAX_PATCHED = 1 << 30
"""Bytes of memory for applying a patch: five megabytes of one can hold a gigabyte of zeros."""
_LACKS = re.compile(
    r"missing (?:blob|tree|commit|object)|[Uu]nable to read|[Cc]ould not read|could not fetch|bad object"
)
_MESSAGE = "The repository at the base commit"
_ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # where git is too old for it: a remote may name a program
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_CONFIG_COUNT": "2",  # a foreign clone's settings could name programs to run
    "GIT_CONFIG_KEY_0": "log.showSignature",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.fsmonitor",
    "GIT_CONFIG_VALUE_1": "false",
    "GIT_AUTHOR_NAME": "base",
    "GIT_AUTHOR_EMAIL": "base@localhost",
    "GIT_COMMITTER_NAME": "base",
    "GIT_COMMITTER_EMAIL": "base@localhost",
    "LANG": "C.UTF-8",
}
_TIMEOUT_S = 600.0


def base_tree(
    git_dir: Path, commit: str, out: Path, *, patch: str = "", allow_missing: bool = False
) -> Path:
    """Write the repository at ``commit`` to the tar ``out``, below ``repo/``; returns ``out``.

    The same commit gives the same bytes. Submodules are left as empty folders, Git LFS files as
    their pointers, ``export-ignore`` and ``export-subst`` are not obeyed.

    Args:
        git_dir: a bare repository or a ``.git`` folder; it is only read.
        commit: anything git understands as a commit.
        out: replaced if it is there.
        patch: a git diff that the only commit has in it, as if the commit had been so.
        allow_missing: leave out files whose content the clone lacks, with a warning. Meant for
            partial clones without the largest files; the tree is not the commit's then.

    Raises:
        WorkspaceError: no such commit, or the patch does not apply.
        MissingToolError: objects of it are missing (a partial clone), or git is.
    """
    with tempfile.TemporaryDirectory(prefix="envgen-tree-", dir=out.parent) as scratch:
        repo = Path(scratch) / NAME
        _checkout(_source(git_dir), commit, repo, patch, allow_missing)
        packed = Path(scratch) / "tree.tar"
        write_tar(repo, packed)
        packed.replace(out)
    return out


def _source(git_dir: Path) -> Path:
    inner = git_dir / ".git"
    return (inner if inner.is_dir() else git_dir).absolute()


def _checkout(source: Path, commit: str, repo: Path, patch: str, allow_missing: bool) -> None:
    found = _git(source, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", check=False)
    if not found:
        raise WorkspaceError(
            f"{source}: no commit {commit!r}", "fetch it into the clone, or check its name"
        )
    tree = _git(source, "rev-parse", f"{found}^{{tree}}")
    date = _git(source, "log", "-1", "--format=%cI", found)
    _make(repo)
    lent = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(source / "objects")}
    if allow_missing:
        tree = _without_missing(source, tree, repo / ".git", lent)
    _require_modest(repo / ".git", tree, lent)
    if patch:
        tree = _patched(tree, patch, repo / ".git", lent)
    _copy_objects(tree, repo, lent)
    _require_modest(repo / ".git", tree, {})
    dated = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    here = repo / ".git"
    only = _git(here, "commit-tree", tree, "-m", _MESSAGE, env=dated)
    _git(here, "update-ref", "refs/heads/main", only)
    if tag := base_tag(source, found):
        _git(here, "tag", "-a", tag, "-m", tag, only, env=dated)
    _git(here, f"--work-tree={repo}", "-c", "core.logAllRefUpdates=false", "reset", "--hard", "-q")
    (here / "index").unlink()  # it holds inode numbers and times
    _git(here, "read-tree", "HEAD")
    for name in ("ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "description"):
        (here / name).unlink(missing_ok=True)


def _require_modest(here: Path, tree: str, lent: Mapping[str, str]) -> None:
    """Refuse a tree that ordinary programs could neither walk nor remove, or that fills the disk."""
    words = ["ls-tree", "-r", "-l", "-z", "--full-tree", tree]
    with subprocess.Popen(
        ["git", f"--git-dir={here}", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_variables(lent),
    ) as listing:
        assert listing.stdout is not None
        listed = listing.stdout.read(MAX_LISTING + 1)
        listing.kill()
    lines = listed.split(b"\0")[:-1]
    sizes = (line.partition(b"\t")[0].split()[-1] for line in lines)
    total = sum(int(size) for size in sizes if size.isdigit())
    depth = max((line.partition(b"\t")[2].count(b"/") for line in lines), default=0)
    for found, most, what in (
        (len(listed), MAX_LISTING, "names its files in {} bytes"),
        (total, MAX_BYTES, "holds {} bytes"),
        (depth, MAX_DEPTH, "nests {} folders deep"),
    ):
        if found > most:
            raise WorkspaceError(
                f"the tree {what.format(found)}; at most {most} are read", "leave this commit out"
            )


def base_tag(git_dir: Path, commit: str) -> str:
    """The newest tag with a digit that the commit descends from; empty when there is none."""
    words = ("describe", "--tags", "--abbrev=0", "--match", "*[0-9]*", commit)
    return _git(_source(git_dir), *words, check=False)


def commit_date(git_dir: Path, commit: str) -> str:
    """The day a commit was made (committer's date, UTC, ISO). Raises WorkspaceError."""
    words = ("log", "-1", "--date=format-local:%Y-%m-%d", "--format=%cd", commit, "--")
    return _git(_source(git_dir), *words, env={"TZ": "UTC"})


def _make(repo: Path) -> None:
    repo.mkdir()
    here = repo / ".git"
    words = ("init", "-q", "--template=", "--initial-branch=main", str(repo))
    _git(None, *words)
    (here / "info").mkdir()
    for key, value in (
        ("core.logAllRefUpdates", "false"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("user.name", "dev"),
        ("user.email", "dev@localhost"),
        ("advice.detachedHead", "false"),
    ):
        _git(here, "config", key, value)


def _without_missing(source: Path, tree: str, here: Path, lent: Mapping[str, str]) -> str:
    """The tree without the files that the clone lacks; the same tree where it lacks none."""
    words = ("rev-list", "--objects", "--no-object-names", "--missing=print", tree)
    missing = {line[1:] for line in _git(source, *words).splitlines() if line.startswith("?")}
    if not missing:
        return tree
    listed = _git(source, "ls-tree", "-r", "-z", "--full-tree", tree).split("\0")
    kept = [line for line in listed if line and line.split("\t")[0].split()[2] not in missing]
    names = [line.partition("\t")[2] for line in listed if line and line not in kept]
    logger.warning("%s lacks %d files, left out: %s", source, len(names), ", ".join(names[:5]))
    index = {**lent, "GIT_INDEX_FILE": str(here / "partial")}
    given = "".join(f"{line}\0" for line in kept)
    _git(here, "update-index", "-z", "--index-info", env=index, given=given)
    found = _git(here, "write-tree", "--missing-ok", env=index)
    (here / "partial").unlink()
    return found


def _patched(tree: str, patch: str, here: Path, lent: Mapping[str, str]) -> str:
    """The tree after a patch."""
    index = {**lent, "GIT_INDEX_FILE": str(here / "patched")}
    _git(here, "read-tree", tree, env=index)
    words = ("--cached", "--binary", "--whitespace=nowarn", "-")
    _git(here, "apply", *words, env=index, given=patch, memory=MAX_PATCHED)
    found = _git(here, "write-tree", env=index)
    (here / "patched").unlink()
    return found


def _copy_objects(tree: str, repo: Path, lent: Mapping[str, str]) -> None:
    """Pack the objects of one tree, which has no commits, into ``repo``."""
    here = repo / ".git"
    names = _git(here, "rev-list", "--objects", "--no-object-names", tree, env=lent)
    folder = here / "objects" / "pack"
    folder.mkdir(parents=True, exist_ok=True)
    words = ("-q", "--threads=1", "--no-reuse-delta", "--no-reuse-object", str(folder / "pack"))
    _git(here, "pack-objects", *words, env=lent, given=names + "\n")
    for loose in [path for path in (here / "objects").glob("??/*") if path.is_file()]:
        loose.unlink()
        with contextlib.suppress(OSError):
            loose.parent.rmdir()


def write_tar(folder: Path, out: Path) -> None:
    """Pack ``folder`` under its own name: sorted, owned by root, without times to tell apart."""
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in [folder, *_walk(folder)]:
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(folder.parent)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = 1_000_000_000
            if entry.isfile():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)


def _walk(folder: Path) -> list[Path]:
    found: list[Path] = []
    for base, names, files in os.walk(folder):
        found += [Path(base) / name for name in (*names, *files)]
    return sorted(found)


def _git(
    git_dir: Path | None,
    *words: str,
    env: Mapping[str, str] | None = None,
    given: str = "",
    check: bool = True,
    memory: int = 0,
) -> str:
    """Return git's output, stripped; it takes ``memory`` bytes, if it is told.

    Raises:
        WorkspaceError: it fails, unless ``check`` is off.
    """
    place = [f"--git-dir={git_dir}"] if git_dir is not None else []
    command = ["git", *place, *words]
    if memory:
        env = {**(env or {}), "GIT_ALLOC_LIMIT": str(memory // 2)}  # at once; all together below
        if prlimit := shutil.which("prlimit", path=os.defpath):  # of Linux
            command = [prlimit, f"--data={memory}", *command]
    try:
        done = subprocess.run(
            command,
            input=given.encode(errors="surrogateescape"),
            capture_output=True,
            env=_variables(env or {}),
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingToolError(f"git does not run: {error}", "install git") from error
    if done.returncode and check:
        tail = done.stderr.decode(errors="replace").strip()[-500:]
        what = next(word for word in words if not word.startswith("-"))
        hint = "the clone may be partial or broken: git fsck tells"
        if memory:
            hint = (
                f"the patch may be another commit's, or make more than {memory >> 20} MiB of files"
            )
        if _LACKS.search(tail):
            raise MissingToolError(f"git {what} in {git_dir}: objects are missing: {tail}", hint)
        raise WorkspaceError(f"git {what} in {git_dir}: {tail}", hint)
    with contextlib.suppress(UnicodeDecodeError):
        return done.stdout.decode().strip() if not done.returncode else ""
    return done.stdout.decode(errors="surrogateescape").strip()


def _variables(more: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a git command."""
    return {"PATH": os.defpath, "HOME": os.devnull, **_ALONE, **more}

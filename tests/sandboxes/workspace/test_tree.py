from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
import toy_repository

from envgen.core.errors import MissingToolError, WorkspaceError
from envgen.sandboxes.workspace import tree as tree_module
from envgen.sandboxes.workspace.tree import base_tag, base_tree, commit_date


@pytest.fixture
def clone(tmp_path: Path) -> tuple[Path, str]:
    return tmp_path / "clone", toy_repository.make(tmp_path / "clone")


def _unpacked(tree: Path, folder: Path) -> Path:
    with tarfile.open(tree) as archive:
        archive.extractall(folder, filter="tar")
    return folder / "repo"


def test_the_files_are_those_of_the_commit(clone: tuple[Path, str], tmp_path: Path) -> None:
    tree = base_tree(clone[0], clone[1], tmp_path / "tree.tar")
    repo = _unpacked(tree, tmp_path / "out")
    for name, content in toy_repository.FILES.items():
        assert (repo / name).read_bytes() == content
    assert (repo / "run.sh").stat().st_mode & 0o111
    assert (repo / "link").is_symlink()
    assert not (repo / "past.txt").exists()
    assert toy_repository.git(repo, "status", "--short", "--ignored") == ""


def test_nothing_of_the_future_is_in_it(clone: tuple[Path, str], tmp_path: Path) -> None:
    repo = _unpacked(base_tree(clone[0], clone[1], tmp_path / "tree.tar"), tmp_path / "out")
    assert toy_repository.git(repo, "rev-list", "--all", "--count") == "1"
    assert toy_repository.git(repo, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        "refs/tags/v1.2.0",
    ]
    lines = toy_repository.git(
        repo, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"
    )
    objects = [line.split() for line in lines.splitlines()]
    kinds = [kind for kind, _ in objects]
    assert kinds.count("commit") == 1
    assert kinds.count("tag") == 1
    for _, name in objects:
        assert toy_repository.SECRET not in toy_repository.git(repo, "cat-file", "-p", name)
    inside = {str(path.relative_to(repo / ".git")) for path in (repo / ".git").rglob("*")}
    for left in (
        "logs",
        "FETCH_HEAD",
        "ORIG_HEAD",
        "packed-refs",
        "objects/info/alternates",
        "hooks",
    ):
        assert left not in inside
    assert toy_repository.git(repo, "remote") == ""
    assert toy_repository.git(repo, "tag", "--points-at", "HEAD") == "v1.2.0"
    head = toy_repository.git(repo, "rev-parse", "HEAD^{tree}")
    assert head == toy_repository.git(clone[0], "rev-parse", f"{clone[1]}^{{tree}}")


def test_objects_lent_by_another_clone_are_copied(clone: tuple[Path, str], tmp_path: Path) -> None:
    words = ["git", "clone", "-q", "--bare", "--shared", str(clone[0]), str(tmp_path / "lent.git")]
    subprocess.run(words, check=True, capture_output=True)
    repo = _unpacked(base_tree(tmp_path / "lent.git", clone[1], tmp_path / "t.tar"), tmp_path / "o")
    assert toy_repository.git(repo, "fsck", "--full") == ""


def test_the_same_commit_gives_the_same_bytes(clone: tuple[Path, str], tmp_path: Path) -> None:
    one = base_tree(clone[0], clone[1], tmp_path / "one.tar").read_bytes()
    assert one == base_tree(clone[0], clone[1], tmp_path / "two.tar").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"clone", "one.tar", "two.tar"}


def test_what_is_missing_is_said(clone: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="no commit 'nothing'"):
        base_tree(clone[0], "nothing", tmp_path / "tree.tar")
    with pytest.raises(WorkspaceError, match="no commit"):
        base_tree(tmp_path, "HEAD", tmp_path / "tree.tar")
    blob = toy_repository.git(clone[0], "rev-parse", f"{clone[1]}:adder.py")
    (clone[0] / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(MissingToolError, match=r"git (rev-list|pack-objects).*missing") as error:
        base_tree(clone[0], clone[1], tmp_path / "tree.tar")
    assert "partial" in error.value.hint
    assert not (tmp_path / "tree.tar").exists()


def test_files_that_a_partial_clone_lacks_can_be_left_out(
    clone: tuple[Path, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blob = toy_repository.git(clone[0], "rev-parse", f"{clone[1]}:data/picture.bin")
    (clone[0] / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(WorkspaceError):
        base_tree(*clone, tmp_path / "tree.tar")
    repo = _unpacked(base_tree(*clone, tmp_path / "t.tar", allow_missing=True), tmp_path / "out")
    assert "lacks 1 files, left out: data/picture.bin" in caplog.text
    assert not (repo / "data").exists()
    assert (repo / "adder.py").read_bytes() == toy_repository.FILES["adder.py"]
    assert toy_repository.git(repo, "status", "--short") == ""
    assert toy_repository.git(repo, "fsck", "--full") == ""
    whole = base_tree(clone[0], "main", tmp_path / "w.tar", allow_missing=True)
    assert whole.exists()


def test_tag_and_day_of_a_commit(clone: tuple[Path, str]) -> None:
    assert base_tag(*clone) == "v1.2.0"
    assert commit_date(*clone) == "2023-05-01"
    assert base_tag(clone[0], "v1.2.0^{}") == "v1.2.0"


def test_a_submodule_is_an_empty_folder(clone: tuple[Path, str], tmp_path: Path) -> None:
    where = f"160000,{clone[1]},vendor/lib"
    toy_repository.git(clone[0], "checkout", "-qf", clone[1])
    toy_repository.git(clone[0], "update-index", "--add", "--cacheinfo", where)
    toy_repository.git(clone[0], "commit", "-qm", "vendored")
    repo = _unpacked(base_tree(clone[0], "HEAD", tmp_path / "tree.tar"), tmp_path / "out")
    assert list((repo / "vendor" / "lib").iterdir()) == []
    assert toy_repository.git(repo, "status", "--short") == ""


def test_a_patch_is_part_of_the_only_commit(clone: tuple[Path, str], tmp_path: Path) -> None:
    patch = (
        "diff --git a/adder.py b/adder.py\n--- a/adder.py\n+++ b/adder.py\n@@ -1,2 +1,2 @@\n"
        " def add(a, b):\n-    return a - b\n+    return a * b\n"
    )
    tree = base_tree(clone[0], clone[1], tmp_path / "tree.tar", patch=patch)
    repo = _unpacked(tree, tmp_path / "out")
    assert (repo / "adder.py").read_text() == "def add(a, b):\n    return a * b\n"
    assert toy_repository.git(repo, "status", "--short", "--ignored") == ""
    assert toy_repository.git(repo, "rev-list", "--all", "--count") == "1"
    blobs = toy_repository.git(repo, "cat-file", "--batch-all-objects", "--batch")
    assert "return a - b" not in blobs  # the file without the patch is nowhere
    with pytest.raises(WorkspaceError, match="git apply"):
        base_tree(clone[0], clone[1], tree, patch=patch.replace("a - b", "a + b"))
    assert toy_repository.git(clone[0], "status", "--short") == ""


@pytest.mark.parametrize(("files", "mebibytes"), [(1, 40), (4, 20)])
def test_a_patch_that_unpacks_without_end_is_refused(
    clone: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    files: int, mebibytes: int,
) -> None:  # fmt: skip
    """Five megabytes of a binary patch made a gigabyte of zeros, all of it in git's memory."""
    for i in range(files):
        (clone[0] / f"zeros{i}").write_bytes(bytes(mebibytes << 20))
    toy_repository.git(clone[0], "add", ".")
    patch = toy_repository.git(clone[0], "diff", "--cached", "--binary") + "\n\n"
    assert len(patch) < 1 << 20
    base_tree(clone[0], clone[1], tmp_path / "tree.tar", patch=patch)
    monkeypatch.setattr(tree_module, "MAX_PATCHED", 64 << 20)
    with pytest.raises(WorkspaceError, match=r"(?i)limit|memory"):
        base_tree(clone[0], clone[1], tmp_path / "tree.tar", patch=patch)


def test_no_program_of_the_clones_settings_runs(clone: tuple[Path, str], tmp_path: Path) -> None:
    program, marker = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    signed = toy_repository.git(clone[0], "cat-file", "commit", clone[1]).replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    (tmp_path / "commit").write_text(signed + "\n")
    commit = toy_repository.git(
        clone[0], "hash-object", "-t", "commit", "-w", str(tmp_path / "commit")
    )
    for name, value in (
        *(("log.showSignature", "true"), ("gpg.program", str(program))),
        *(("core.fsmonitor", str(program)), ("core.sshCommand", str(program))),
    ):
        toy_repository.git(clone[0], "config", name, value)
    base_tree(clone[0], commit, tmp_path / "tree.tar")
    assert commit_date(clone[0], commit) == "2023-05-01"
    assert base_tag(clone[0], commit) == "v1.2.0"
    assert not marker.exists()


def test_a_tree_that_nests_too_deep_is_refused(tmp_path: Path) -> None:
    """1,100 folders inside one another would end Python's own walks with a RecursionError."""
    repo = tmp_path / "clone"
    toy_repository.make(repo)
    blob = toy_repository.git(repo, "rev-parse", "main:adder.py")
    deep = "/".join(["d"] * 1100)
    toy_repository.git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{deep}")
    toy_repository.git(repo, "commit", "-qm", "deep")
    with pytest.raises(WorkspaceError, match="nests 1099 folders deep; at most 100"):
        base_tree(repo, "HEAD", tmp_path / "tree.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["clone"]


@pytest.mark.parametrize("limit", ["MAX_LISTING", "MAX_BYTES"])
def test_a_tree_that_names_files_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Seven small trees name ten million files; a walk over them ended with no memory left."""
    repo = tmp_path / "clone"
    toy_repository.make(repo)
    tree = toy_repository.git(repo, "rev-parse", "main^{tree}")
    for _ in range(7 if limit == "MAX_LISTING" else 1):
        rows = "".join(f"040000 tree {tree}\td{i}\n" for i in range(10))
        words = ["git", "-C", str(repo), "mktree"]
        completed = subprocess.run(words, input=rows, capture_output=True, text=True, check=True)
        tree = completed.stdout.strip()
    commit = toy_repository.git(repo, "commit-tree", "-m", "many", tree)
    monkeypatch.setattr(tree_module, limit, 1000, raising=False)
    with pytest.raises(WorkspaceError, match="at most 1000 are read"):
        base_tree(repo, commit, tmp_path / "tree.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["clone"]

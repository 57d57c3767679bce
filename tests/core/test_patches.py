from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from git_history import History
from hypothesis import example, given
from hypothesis import strategies as st

from envgen.core.errors import ConfigError
from envgen.core.patches import join_patches, split_patch


def diff(history: History, base: str, head: str, *flags: str) -> bytes:
    args = ["git", "diff", "--binary", "--full-index", "-M", *flags, base, head]
    return subprocess.run(args, cwd=history.folder, capture_output=True, check=True).stdout


@pytest.fixture
def odd(tmp_path: Path) -> tuple[History, str, str]:
    """One commit with every kind of part that git writes."""
    history = History(tmp_path / "odd")
    long = "".join(f"line {i}\n" for i in range(40))
    base = history.commit(
        "base",
        {
            **{"moved.txt": long, "same.txt": long + "x\n", "gone.txt": "bye\n", "mode.sh": "x\n"},
            **{"blob.bin": b"\0\1\2", "crlf.txt": b"a\r\nb\r\n", "a b/c d.txt": "sp ace\n"},
            **{"sql.txt": "-- drop\n++ add\nkeep\n", "empty.txt": "", "no_newline.txt": "end"},
        },
    )
    (history.folder / "mode.sh").chmod(0o755)
    (history.folder / "moved.txt").rename(history.folder / "new place.txt")
    (history.folder / "same.txt").rename(history.folder / "changed.txt")
    head = history.commit(
        "head",
        {
            **{"changed.txt": long + "y\n", "gone.txt": None, "blob.bin": b"\0\1\3"},
            **{"crlf.txt": b"a\r\nc\r\n", "a b/c d.txt": "space\n", "new.bin": b"\0" * 64},
            **{"sql.txt": "keep\n", "empty.txt": None, "also empty.txt": "", "h\u00e9.txt": "e\n"},
            **{"no_newline.txt": "the end", 'q"uo\te.txt': "q\n"},
        },
    )
    return history, base, head


def test_every_part_says_what_git_says(odd: tuple[History, str, str]) -> None:
    history, base, head = odd
    parts = split_patch(diff(history, base, head))
    raw = subprocess.run(
        ["git", "diff", "-M", "--numstat", "-z", base, head],
        cwd=history.folder,
        capture_output=True,
        check=True,
    ).stdout.decode()
    fields = iter(raw.split("\0")[:-1])
    expected = {}
    for field in fields:
        added, removed, path = field.split("\t", 2)
        old, new = (path, path) if path else (next(fields), next(fields))
        counts = (0, 0, True) if added == "-" else (int(added), int(removed), False)
        expected[new] = (old, *counts)
    found = {p.path: (p.old or p.path, p.added, p.removed, p.binary) for p in parts}
    assert found == expected
    by_path = {p.path: p for p in parts}
    assert by_path["new place.txt"].old == "moved.txt"
    assert by_path["gone.txt"].new is None
    assert by_path["new.bin"].old is None
    assert by_path["mode.sh"].modes == {"100644", "100755"}


def test_joined_parts_are_the_patch_and_apply(odd: tuple[History, str, str]) -> None:
    history, base, head = odd
    patch = diff(history, base, head)
    parts = split_patch(patch)
    assert join_patches(parts) == patch
    history.git("checkout", "-q", base)
    for part in parts:  # each stands alone
        subprocess.run(
            ["git", "apply", "--index", "-"], cwd=history.folder, input=part.text, check=True
        )
    assert history.git("write-tree") == history.git("rev-parse", f"{head}^{{tree}}")


def test_text_that_looks_like_a_header_stays_inside_its_hunk(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    inner = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"
    base = history.commit("base", {"a.patch": "top\n"})
    head = history.commit("head", {"a.patch": "top\n" + inner})
    parts = split_patch(diff(history, base, head))
    assert [(p.path, p.added, p.removed, p.hunks) for p in parts] == [("a.patch", 6, 0, 1)]


def test_lfs_pointers_and_submodules_are_seen(tmp_path: Path) -> None:
    sub = History(tmp_path / "sub")
    first = sub.commit("one", {"x": "1\n"})
    history = History(tmp_path / "r")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 3\n"
    history.commit("base", {"big.bin": pointer.format("0" * 64), "plain.txt": "x\n"})
    history.git("update-index", "--add", "--cacheinfo", f"160000,{first},vendored")
    history.git("commit", "-q", "-m", "sub")
    base = history.git("rev-parse", "HEAD")
    second = sub.commit("two", {"x": "2\n"})
    history.write({"big.bin": pointer.format("1" * 64), "plain.txt": "y\n"})
    history.git("add", "big.bin", "plain.txt")
    history.git("update-index", "--cacheinfo", f"160000,{second},vendored")
    history.git("commit", "-q", "-m", "head")
    parts = {p.path: p for p in split_patch(diff(history, base, "HEAD"))}
    assert {p for p in parts if parts[p].submodule} == {"vendored"}
    assert {p for p in parts if parts[p].lfs} == {"big.bin"}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "no 'diff --git' line"),
        (b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n", "lines early"),
        (b"diff --git a/x b/y\nindex 1..2 100644\n", "is missing a file name"),
        (b'diff --git "a/\\9" "b/\\9"\n', "badly quoted"),
    ],
)
def test_a_broken_patch_is_refused(patch: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_patch(patch)


def test_an_empty_patch_has_no_parts() -> None:
    assert split_patch(b"") == ()
    assert split_patch(b"\n") == ()


@given(st.binary(max_size=200), st.integers(0, 300))
@example(b"copy from ", 45)
@example(b"rename from x\n", 45)
def test_no_bytes_crash_the_reader(noise: bytes, at: int) -> None:
    whole = b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n" * 3
    for patch in (noise, whole[:at] + noise + whole[at:], whole[:at]):
        try:
            parts = split_patch(patch)
        except ConfigError:
            continue
        assert all(part.paths for part in parts)

from __future__ import annotations

from typing import Any

import pytest

from envgen.core.patches import FilePatch, split_patch
from envgen.pipelines.code.filters import (
    LITE,
    ChangeFilter,
    patch_reasons,
    path_reasons,
    statement_reasons,
    title_reason,
)
from envgen.pipelines.code.split import Split, SplitConfig


def modified(path: str, lines: int = 1, hunks: int = 1) -> FilePatch:
    """A file of which each hunk replaces ``lines`` lines."""
    body = "".join(
        f"@@ -{i * 100 + 1},{lines} +{i * 100 + 1},{lines} @@\n" + "-a\n" * lines + "+b\n" * lines
        for i in range(hunks)
    )
    return split_patch(
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n{body}".encode()
    )[0]


def raw(text: str) -> FilePatch:
    return split_patch(text.encode())[0]


TEST = modified("tests/test_a.py")
BINARY = raw("diff --git a/x.png b/x.png\nindex 1..2\nBinary files a/x.png and b/x.png differ\n")
NEW = raw(
    "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+x\n"
)
REMOVED = raw(
    "diff --git a/tests/t.py b/tests/t.py\n--- a/tests/t.py\n+++ b/tests/t.py\n@@ -1,2 +1 @@\n a\n-b\n"
)
SUBMODULE = raw(
    "diff --git a/s b/s\nindex 1..2 160000\n--- a/s\n+++ b/s\n@@ -1 +1 @@\n-Subproject commit 1\n"
    "+Subproject commit 2\n"
)
LFS = raw(
    "diff --git a/d b/d\n--- a/d\n+++ b/d\n@@ -1,2 +1,2 @@\n"
    " version https://git-lfs.github.com/spec/v1\n-oid sha256:1\n+oid sha256:2\n"
)
EXACT = raw(
    "diff --git a/tests/t.py b/tests/t.py\n--- a/tests/t.py\n+++ b/tests/t.py\n@@ -1 +1,2 @@\n a\n"
    '+    with pytest.raises(ValueError, match="no"):\n'
)


@pytest.mark.parametrize(
    ("gold", "test", "config", "reason"),
    [
        ([modified("a.py", 250)], [TEST], {}, None),
        ([modified("a.py", 251)], [TEST], {}, "over 500 gold lines"),
        ([modified(f"{i}.py") for i in range(20)], [TEST], {}, None),
        ([modified(f"{i}.py") for i in range(21)], [TEST], {}, "over 20 gold files"),
        ([modified("a.py", 1, 4)], [TEST], {"max_hunks": 4}, None),
        ([modified("a.py", 1, 5)], [TEST], {"max_hunks": 4}, "over 4 hunks"),
        ([modified("a.py")], [modified("tests/t.py", 1001)], {}, "over 2000 test lines"),
        ([modified("a.py", 9)], [TEST], {"max_patch_bytes": 100}, "over 100 bytes of patches"),
        ([modified("a.py"), BINARY], [TEST], {}, "binary files in the gold patch"),
        ([modified("a.py"), BINARY], [TEST], {"binary_gold": True}, None),
        ([modified("a.py")], [BINARY], {}, None),
        ([modified("a.py"), NEW], [TEST], {}, None),
        ([NEW], [TEST], {"same_files": True}, "source files added, deleted or renamed"),
        ([modified("a.py")], [REMOVED], {}, "tests are only removed"),
        ([modified("a.py")], [REMOVED, TEST], {}, None),
        ([modified("a.py"), SUBMODULE], [TEST], {}, "a submodule changed"),
        ([modified("a.py")], [TEST, LFS], {}, "a git LFS pointer changed"),
        ([modified("a.py")], [EXACT], {"exact_messages": False}, "tests match error messages"),
    ],
)
def test_each_threshold_rules_out_what_is_beyond_it(
    gold: list[FilePatch], test: list[FilePatch], config: dict[str, Any], reason: str | None
) -> None:
    split = Split(tuple(gold), tuple(test), ())
    found = list(patch_reasons(split, ChangeFilter(**config)))
    assert found == ([] if reason is None else [reason])


def test_paths_alone_tell_most() -> None:
    config = ChangeFilter(max_files=3)
    assert list(path_reasons(["a.py", "tests/t.py"], "python", config)) == []
    assert list(path_reasons(["a.txt", "tests/t.py"], "python", config)) == [
        "no python source file in the gold patch"
    ]
    assert list(path_reasons(["a.py"], "python", config)) == ["no tests in the change"]
    assert list(path_reasons(["a.py"] * 4, "python", config)) == ["over 3 files"]
    checks = SplitConfig(test=("^checks/",))
    assert list(path_reasons(["a.py", "checks/c.py"], "python", config, checks)) == []


@pytest.mark.parametrize(
    ("title", "author", "reason"),
    [
        ("Fix the parser", "Ada", None),
        ("fix: parse dates", "Ada", None),
        ("Formatter: keep comments", "Ada", "a chore by its title"),
        ("Bump x from 1 to 2", "Ada", "a chore by its title"),
        ("chore(deps)!: new lock", "Ada", "a chore by its title"),
        ("v1.2.3", "Ada", "a chore by its title"),
        ("Revert the parser", "Ada", "a chore by its title"),
        ("Fix the parser", "dependabot[bot]", "made by a bot"),
        ("Fix the parser", "pre-commit-ci", "made by a bot"),
        ("Fix the bot", "Abbot", None),
    ],
)
def test_titles_and_authors(title: str, author: str, reason: str | None) -> None:
    assert title_reason(title, author, ChangeFilter()) == reason
    assert title_reason(title, author, ChangeFilter(bots=True, chores=())) is None


def test_lites_statements_are_long_and_stand_alone() -> None:
    words = "word " * 41
    assert list(statement_reasons(words, LITE)) == []
    assert list(statement_reasons(words[5:], LITE)) == ["statement under 41 words"]
    for more, reason in (
        ("![x](y)", "images in the statement"),
        ("https://example.org", "web addresses in the statement"),
        ("see #12", "commits or issues named in the statement"),
        ("0" * 40, "commits or issues named in the statement"),
    ):
        assert reason in list(statement_reasons(words + more, LITE))
        assert list(statement_reasons(words + more, ChangeFilter())) == []
    long = ChangeFilter(max_statement_chars=100)
    assert list(statement_reasons(words, long)) == ["statement over 100 characters"]

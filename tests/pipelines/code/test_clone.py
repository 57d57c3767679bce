from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from git_history import History

from envgen.core.errors import PipelineError, WorkspaceError
from envgen.pipelines.code import clone as clone_module
from envgen.pipelines.code.clone import Clone, PatchTooLargeError
from envgen.pipelines.code.licences import licence_of, licence_text
from envgen.sandboxes.workspace import base_tree
from envgen.sandboxes.workspace import tree as tree_module


@pytest.fixture
def history(tmp_path: Path) -> History:
    repository = History(tmp_path / "r")
    repository.commit("First\n\nSaid more.", {"a.txt": "a\n" * 5, "LICENSE.md": "MIT"})
    return repository


def test_a_checkout_and_a_bare_clone_read_alike(history: History, tmp_path: Path) -> None:
    history.commit("Second \u00e9", {"b/c d.txt": "c\n"})
    history.git("tag", "v1")
    history.git("clone", "-q", "--bare", str(history.folder), str(tmp_path / "bare"))
    for path in (history.folder, history.git_dir, tmp_path / "bare"):
        clone = Clone(path)
        second, first = clone.log("HEAD")
        assert (first.subject, first.body, first.author) == ("First", "Said more.", "Ada")
        assert (second.subject, second.parents) == ("Second \u00e9", (first.id,))
        assert clone.files("HEAD") == {"LICENSE.md": 3, "a.txt": 10, "b/c d.txt": 2}
        assert clone.read("HEAD", "b/c d.txt") == b"c\n"
        assert clone.changed(first.id, second.id) == ("b/c d.txt",)
        assert (clone.describe("HEAD"), clone.describe(first.id)) == ("v1", "")
        assert clone.log(second.id, f"^{first.id}") == [second]


def test_what_git_can_not_do_is_told(history: History) -> None:
    clone = Clone(history.folder)
    with pytest.raises(PipelineError, match="git cat-file failed"):
        clone.read("HEAD", "missing")
    with pytest.raises(PipelineError, match="'--output=/tmp/x' is not a commit") as caught:
        clone.tip("--output=/tmp/x")
    assert "no such branch" in caught.value.hint
    start = time.monotonic()
    with pytest.raises(PipelineError, match=r"git wait took over 0\.3 s"):
        Clone(history.folder, timeout_s=0.3).run("-c", "alias.wait=!sleep 30; true", "wait")
    assert time.monotonic() - start < 10


def test_a_pipe_that_git_would_wait_for_is_refused(history: History) -> None:
    os.mkfifo(Clone(history.folder).path / "packed-refs")
    with pytest.raises(PipelineError, match="'packed-refs' is a pipe"):
        Clone(history.folder)


def test_a_change_that_is_too_large_is_not_read(history: History) -> None:
    base = history.git("rev-parse", "HEAD")
    head = history.commit("Large", {"a.txt": "line of text\n" * 100_000})
    clone = Clone(history.folder)
    with pytest.raises(PatchTooLargeError, match="over 1,000 bytes"):
        clone.diff(base, head, limit_bytes=1_000)
    assert clone.diff(base, head)[0].added == 100_000


def test_a_clone_without_all_its_objects_says_so(history: History) -> None:
    base = history.git("rev-parse", "HEAD")
    head = history.commit("Second", {"a.txt": "b\n"})
    blob = history.git("rev-parse", "HEAD:a.txt")
    (history.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    clone = Clone(history.folder)
    assert clone.files(head)["a.txt"] == 0
    with pytest.raises(PipelineError, match="git diff failed"):
        clone.diff(base, head)


def test_a_remote_that_names_a_program_runs_none_whatever_git_knows(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git before 2.39.4 fetches missing objects on its own, from wherever the clone's settings say."""
    blob = history.git("rev-parse", "HEAD:a.txt")
    (history.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    mark = tmp_path / "ran"
    for words in (
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"ext::touch {mark}"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
        ("core.repositoryFormatVersion", "1"),
    ):
        history.git("config", *words)
    ours = clone_module._environment()
    older = {name: value for name, value in ours.items() if name != "GIT_NO_LAZY_FETCH"}
    monkeypatch.setattr(clone_module, "_environment", lambda: older)
    monkeypatch.delitem(tree_module._ALONE, "GIT_NO_LAZY_FETCH")
    with pytest.raises(PipelineError):
        Clone(history.folder).read("HEAD", "a.txt")
    with pytest.raises(WorkspaceError):
        base_tree(history.folder, "HEAD", tmp_path / "base.tar")
    assert not mark.exists()
    # the same without the protection: the settings above do run a program
    bare = {name: value for name, value in older.items() if name != "GIT_ALLOW_PROTOCOL"}
    monkeypatch.setattr(clone_module, "_environment", lambda: bare)
    with pytest.raises(PipelineError):
        Clone(history.folder).read("HEAD", "a.txt")
    assert mark.exists()


def test_text_that_is_no_utf8_comes_as_binary(history: History) -> None:
    base = history.git("rev-parse", "HEAD")
    head = history.commit("Latin", {"latin.py": b"# caf\xe9\n", "ascii.py": "x = 1\n"})
    parts = {part.path: part for part in Clone(history.folder).diff(base, head)}
    assert (parts["latin.py"].binary, parts["ascii.py"].binary) == (True, False)
    history.git("checkout", "-q", base)
    history.git("apply", "--index", "-", stdin=parts["latin.py"].text + parts["ascii.py"].text)
    assert history.git("write-tree") == history.git("rev-parse", f"{head}^{{tree}}")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Permission is hereby granted, free of charge,\n to any person obtaining a copy", "MIT"),
        ("Apache License\n   Version 2.0, January 2004", "Apache-2.0"),
        ("GNU LESSER GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007", "LGPL-3.0"),
        ("Redistribution and use in source and binary forms. Neither the name", "BSD-3-Clause"),
        ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
        ("All rights reserved", ""),
    ],
)
def test_licences_are_known_by_their_sentences(history: History, text: str, name: str) -> None:
    assert licence_text(text) == name
    history.commit("Licence", {"LICENSE.md": text, "COPYING.txt": "?"})
    clone = Clone(history.folder)
    assert licence_of(clone, clone.tip()) == name


def test_what_grows_without_end_is_not_read(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A licence of zeros compresses to nearly nothing, and a few trees name any number of files."""
    history.commit("Zeros", {"LICENSE.md": "0" * (17 << 20)})
    clone = Clone(history.folder)
    with pytest.raises(PatchTooLargeError, match="git cat-file printed over"):
        clone.read("HEAD", "LICENSE.md")
    monkeypatch.setattr(clone_module, "MAX_LISTING", 100, raising=False)
    with pytest.raises(PatchTooLargeError, match="git ls-tree printed over 100 bytes"):
        clone.files("HEAD")

"""A Makefile that lets its own test pass is put back before a submission is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy_repository
from code_runs import need

from envgen.core.code_types import CodeTests, Recipe
from envgen.sandboxes.workspace import base_tree, build_workspace
from envgen.verifiers.code import CodeVerifier

SOURCE = b"int twice(int n) { return n + n + 1; }\n"
FILES = {
    "Makefile": b"check: t\n\t./t\nt: twice.c tests/t.c\n\tcc -o t twice.c tests/t.c\n",
    "twice.c": SOURCE,
    "tests/t.c": b"int twice(int);\nint main(void) { return twice(2) != 4; }\n",
}
LIES = {
    "the rule is true": {"Makefile": b"check:\n\ttrue\n"},
    "another Makefile goes first": {"GNUmakefile": b"check:\n\ttrue\n"},
    "the test is not built": {"Makefile": b"check:\n\t:\nt:\n\t:\n"},
}


@pytest.mark.bwrap
@pytest.mark.toolchain
def test_makefiles_are_put_back(tmp_path: Path) -> None:
    need("cc", "make", apt="gcc make")
    clone = tmp_path / "clone"
    (clone / "tests").mkdir(parents=True)
    for path, content in FILES.items():
        (clone / path).write_bytes(content)
    toy_repository.git(clone, "init", "-q", "-b", "main")
    toy_repository.git(clone, "add", "-A")
    toy_repository.git(clone, "commit", "-q", "-m", "base")
    tree = base_tree(clone, "HEAD", tmp_path / "tree.tar")
    recipe = Recipe(language="c", runner="make")
    workspace = build_workspace(recipe, tree, backend="bubblewrap", cache_root=tmp_path / "cache")
    tests = CodeTests(
        runner="make", test_patch="", test_files=("tests/t.c",), fail_to_pass=("make::check",)
    )
    verifier = CodeVerifier(workspace, tests)

    def score(files: dict[str, bytes]) -> float:
        with workspace.open() as opened:
            for path, content in files.items():
                opened.write(path, content)
            patch = opened.diff()
        return verifier.verify_patch(patch).value

    assert score({"twice.c": SOURCE.replace(b" + 1", b"")}) == 1
    assert {lie: score(files) for lie, files in LIES.items()} == dict.fromkeys(LIES, 0)

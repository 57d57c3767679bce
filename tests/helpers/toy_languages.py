"""The toy projects of ``tests/data/code`` as workspaces and verifiers, with more files in them if wanted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import toy_repository
from code_runs import CODE, folder_files, toy

from envgen.core.code_types import CodeLanguage, CodeTests
from envgen.pipelines.code.split import TEST_RULES, classify
from envgen.sandboxes.base import Mount
from envgen.sandboxes.workspace import base_tree, build_workspace
from envgen.verifiers.code import CodeVerifier
from envgen.verifiers.code_run import touched_paths


def verifier(
    language: str,
    folder: Path,
    *,
    more: Mapping[str, bytes] | None = None,
    packages: Path | None = None,
    backend: str = "bubblewrap",
) -> CodeVerifier:
    """The verifier of a toy project whose base commit has ``more`` files, built in ``folder``.

    ``packages`` is a folder whose ``node_modules`` the project needs.
    """
    project = toy(language)
    clone = folder / "clone"
    shutil.copytree(CODE / language / "base", clone)
    for path, content in (more or {}).items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_bytes(content)
    toy_repository.git(clone, "init", "-q", "-b", "main")
    toy_repository.git(clone, "add", "-A")
    toy_repository.git(clone, "commit", "-q", "-m", "base")
    recipe, mounts = project.recipe, tuple[Mount, ...]()
    if packages is not None:
        mounts = (Mount(source=packages, target="/packages"),)
        recipe = recipe.model_copy(update={"install": ("cp -r /packages/node_modules /env/",)})
    tree = base_tree(clone, "HEAD", folder / "tree.tar")
    built = build_workspace(
        recipe, tree, backend=backend, mounts=mounts, cache_root=folder / "cache"
    )
    return CodeVerifier(built, tests(language, tuple(folder_files(clone))))


def tests(language: str, files: tuple[str, ...]) -> CodeTests:
    """What a toy project's submission is judged by, before its verdicts are proven."""
    project = toy(language)
    name = next(one for one in get_args(CodeLanguage) if one == language)
    patch = (CODE / language / "test.patch").read_text()
    touched = touched_paths(patch.encode())
    before, after = project.states["tests"], project.states["gold"]
    good = [test for test, status in after.items() if status == "pass"]
    own = [
        path for path in files if not path.startswith(".git/") and classify(path, name) == "test"
    ]
    return CodeTests(
        runner=project.recipe.runner,
        test_patch=patch,
        test_files=tuple(dict.fromkeys((*own, *touched))),
        test_paths=TEST_RULES[name],
        canary_files=touched if language in ("c", "cpp") else (),
        fail_to_pass=tuple(test for test in good if before.get(test) != "pass"),
        pass_to_pass=tuple(test for test in good if before.get(test) == "pass"),
    )


def gold(language: str) -> bytes:
    """A toy project's fix."""
    return (CODE / language / "gold.patch").read_bytes()

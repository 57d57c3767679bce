"""``envgen try-tests``: detect how a clone is built, build it, run its tests once, show the result."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from envgen.core.canonical import sha256
from envgen.core.code_types import CodeLanguage, Recipe, TestId
from envgen.core.errors import ConfigError
from envgen.core.types import Record
from envgen.pipelines.code.clone import Clone
from envgen.pipelines.code.prove import BuildConfig
from envgen.pipelines.code.recipes import detect_recipe
from envgen.pipelines.code.split import main_language
from envgen.sandboxes.workspace import base_tree, build_workspace, commit_date
from envgen.sandboxes.workspace.store import Claim, discard
from envgen.verifiers.code_run import Exam, RunStatus, run_tests


class TriedTests(Record):
    """What one run of a clone's tests showed."""

    __test__ = False

    commit: str
    language: CodeLanguage
    recipe: Recipe
    """As it was detected, with the pins that its install resolved to."""
    status: RunStatus
    reason: str = ""
    """What went wrong, with the last lines of the output."""
    counts: dict[str, int] = {}
    """Tests by how they ended."""
    failing: tuple[TestId, ...] = ()
    """Those that failed or could not run."""
    build_s: float
    tests_s: float


CLONES = "@clones"
"""Beside the owners of repositories, none of whom is called so."""


def try_tests(
    clone: Path,
    build: BuildConfig,
    *,
    commit: str = "HEAD",
    language: CodeLanguage | None = None,
    log: Callable[[str], None] | None = None,
) -> TriedTests:
    """Build a clone at a commit as ``generate code`` would, and run its tests once.

    Args:
        clone: a bare repository or a checkout; it is only read.
        build: where and with what.
        commit: anything git understands as a commit.
        language: of the tests; None: what most files are written in.
        log: called with each step as it starts.

    Raises:
        ConfigError: the language is none of the eight.
        MissingToolError: this machine lacks a program, an interpreter or the layer.
        WorkspaceError: no recipe is found, or it can't be built.
    """
    found = language or main_language(Clone(clone).files(commit))
    if found is None:
        raise ConfigError(f"{str(clone)!r} holds no source of a known language", "add --language")
    with tempfile.TemporaryDirectory(prefix="envgen-try-") as folder:
        tree = base_tree(
            clone, commit, Path(folder) / "base.tar", allow_missing=build.allow_missing
        )
        recipe = detect_recipe(tree, found, commit_date(clone, commit), layer=build.layer)
        claims: list[Claim] = []
        workspace = build_workspace(
            recipe,
            tree,
            backend=build.backend,
            certificates=build.certificates,
            variables=build.variables,
            mounts=build.mounts,
            reach=build.reach,
            # its own: what its installs leave there may be no other clone's test runner
            downloads=build.downloads_of(CLONES, sha256(str(clone.resolve()))[:32]),
            cache_root=build.cache_root,
            log=log,
            claims=claims,
        )
        try:
            if log:
                log("run the tests")
            run = run_tests(workspace, Exam())
            # what the canaries say is a matter of proving
            if run.status in (RunStatus.FORGED, RunStatus.NOT_LOADED):
                reason, run = run.reason, run_tests(workspace, Exam(canaries=False))
                run = run.model_copy(update={"reason": f"instances can't be proven here: {reason}"})
        finally:
            claims[0].close()
            discard(workspace.folder)
    cases = run.report.cases if run.report else ()
    counts = Counter(str(case.status) for case in cases)
    return TriedTests(
        commit=commit,
        language=found,
        recipe=workspace.recipe,
        status=run.status,
        reason=run.reason,
        counts=dict(counts.most_common()),
        failing=tuple(case.id for case in cases if str(case.status) in ("fail", "error")),
        build_s=workspace.built_s,
        tests_s=run.tests_s,
    )

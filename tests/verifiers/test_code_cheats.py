"""Every trick is tried for real, on the toy project in a sandbox, and scores 0."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import toy_python
from code_cheats import CHEATS, RAW, Cheat

from envgen.core.code_types import CodeTests
from envgen.core.types import Score, Submission
from envgen.pipelines.code.split import TEST_RULES, classify
from envgen.pipelines.code.verdicts import prove_verdicts
from envgen.sandboxes.workspace import Workspace
from envgen.verifiers.code import CodeVerifier, exam_of, score_run
from envgen.verifiers.code_run import run_tests

pytestmark = pytest.mark.bwrap
FORGERIES = tuple(cheat for cheat in CHEATS if cheat.forges)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_python.clone(tmp_path_factory.mktemp("toy") / "clone")


@pytest.fixture(scope="module")
def verifier(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> CodeVerifier:
    workspace = toy_python.workspace(repo, tmp_path_factory.mktemp("built"))
    gold = toy_python.instance(repo).gold_patch.encode()
    proven = prove_verdicts(workspace, code_tests(repo), gold, rehearsals=1)
    return CodeVerifier(workspace, proven.tests)


def code_tests(repo: Path) -> CodeTests:
    files = {*toy_python.BASE, "tests/test_count.py"}
    return CodeTests(
        runner="pytest",
        test_patch=toy_python.instance(repo).test_patch,
        test_files=tuple(path for path in files if classify(path, "python") == "test"),
        test_paths=TEST_RULES["python"],
        fail_to_pass=toy_python.FAIL_TO_PASS,
        pass_to_pass=toy_python.PASS_TO_PASS,
    )


def diff_of(workspace: Workspace, cheat: Cheat) -> bytes:
    with workspace.open() as opened:
        for path, content in cheat.files.items():
            if content is None:
                assert opened.shell(f"rm {path}").exit_code == 0
            else:
                opened.write(path, content)
        if cheat.shell:
            assert opened.shell(cheat.shell).exit_code == 0
        if cheat.name != "git is told to ignore the tests":
            return opened.diff()
        # An ignored file is no part of a diff; a submission could write it into one by hand.
        completed = opened.shell("git add -Af && git diff --cached --binary HEAD")
        assert b"conftest.py" in completed.stdout
        return completed.stdout


def test_the_fix_itself_passes(verifier: CodeVerifier, repo: Path) -> None:
    score = verifier.verify(Submission(raw=toy_python.instance(repo).gold_patch))
    assert score.passed, score.reasons
    assert set(score.tests.values()) == {"pass", "xfail"}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name.replace(" ", "-"))
def test_a_trick_scores_nothing(verifier: CodeVerifier, cheat: Cheat) -> None:
    patch = diff_of(verifier.workspace, cheat)
    assert patch, "the trick left no diff"
    score = verifier.verify_patch(patch)
    assert score.value == 0, cheat.name
    assert score.reasons


SCATTER = """
import os, sys
for word in sys.argv:
    if word.startswith("--junitxml="):
        folder = os.path.dirname(word.partition("=")[2])
        for number in range(COUNT):
            with open(f"{folder}/z{number}.xml", "wb") as report:
                report.truncate(SIZE)
"""


@pytest.mark.parametrize(
    ("count", "size", "reason"),
    [(6_000, 0, "more than 5000 report files"), (12, 60 << 20, "the report can't be read")],
    ids=["many", "sparse"],
)
def test_reports_that_would_fill_this_machine_score_nothing(
    verifier: CodeVerifier, count: int, size: int, reason: str
) -> None:
    scatter = SCATTER.replace("COUNT", str(count)).replace("SIZE", str(size))
    cart = toy_python.FIXED + scatter
    patch = diff_of(verifier.workspace, Cheat("scatter", {"src/shop/cart.py": cart.encode()}))
    tracemalloc.start()
    try:
        score = verifier.verify_patch(patch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert score.value == 0
    assert reason in " ".join(score.reasons)
    assert peak < 400 << 20  # the sparse ones are 720 MB


@pytest.mark.parametrize("name", RAW)
def test_a_text_that_is_no_diff_scores_nothing(verifier: CodeVerifier, name: str) -> None:
    score = verifier.verify_patch(RAW[name])
    assert score.value == 0
    assert score.reasons[0].startswith(("refused", "fail_to_pass"))


@pytest.mark.parametrize("cheat", FORGERIES, ids=lambda cheat: cheat.name.replace(" ", "-"))
def test_without_canaries_forged_reports_would_be_believed(
    verifier: CodeVerifier, cheat: Cheat
) -> None:
    """The gate's sabotage test: the tricks are real, and it is the canaries that catch them."""
    honest = forged_score(verifier, cheat, canaries=True)
    assert honest.reasons[0].startswith("forged: ")
    believed = forged_score(verifier, cheat, canaries=False)
    wanted = {name for name in believed.tests if "[" not in name and "known" not in name}
    assert {believed.tests[name] for name in wanted} == {"pass"}


def forged_score(verifier: CodeVerifier, cheat: Cheat, *, canaries: bool) -> Score:
    exam = exam_of(verifier.tests).model_copy(update={"canaries": canaries})
    run = run_tests(verifier.workspace, exam, diff_of(verifier.workspace, cheat))
    return score_run(run, verifier.tests)


def test_there_are_enough_tricks() -> None:
    assert len({cheat.name for cheat in CHEATS}) + len(RAW) >= 20
    assert len(FORGERIES) >= 5

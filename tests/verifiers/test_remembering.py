"""Patches that remember what tests they met, over runs and judgements: each is paid nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
import remembering
import toy_python

from envgen.core.code_types import CodeTests
from envgen.pipelines.code.split import TEST_RULES
from envgen.pipelines.code.verdicts import prove_verdicts
from envgen.sandboxes.workspace import Workspace
from envgen.sandboxes.workspace.forget import may_drop
from envgen.verifiers.code import CodeVerifier

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]
HOW = ("names", "nowait", "clock")
TEST = "tests/test_greet.py::tests.test_greet::test_greet"
Judge = Callable[[str], float]
BUSY = (
    "held, but not shown to be paid without the defence: other programs empty this machine's caches"
)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / "clone"
    return toy_python.clone(folder, remembering.FIX, remembering.BASE)


@pytest.fixture(scope="module")
def workspace(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return toy_python.workspace(repo, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def tests(repo: Path, workspace: Workspace) -> CodeTests:
    instance = toy_python.instance(repo)
    task = CodeTests(
        runner="pytest",
        test_patch=instance.test_patch,
        test_files=("tests/test_kept.py", "tests/test_greet.py"),
        test_paths=TEST_RULES["python"],
        fail_to_pass=(TEST,),
        pass_to_pass=("tests/test_kept.py::tests.test_kept::test_kept",),
    )
    gold = instance.gold_patch.encode()
    found = prove_verdicts(workspace, task, gold, rehearsals=1).tests
    assert len(found.questions[0].sites) == 2
    return found


@pytest.fixture
def judge(workspace: Workspace, tests: CodeTests) -> Judge:
    def judged(code: str, tests: CodeTests = tests) -> float:
        with workspace.open() as opened:
            opened.write("src/forms/core.py", code.encode())
            patch = opened.diff()
        return CodeVerifier(workspace, tests).verify_patch(patch).value

    return judged


def new_salt(how: str) -> str:
    """For patches that remember nothing yet; skips where this machine's cache can't be read."""
    if (share := max(remembering.channel(how) for _ in range(3))) < 0.95:
        pytest.skip(f"of bits kept by {how} {share:.0%} are read back here")
    return secrets.token_hex(8)


def test_the_fix_is_paid_and_no_change_is_not(judge: Judge) -> None:
    assert judge(remembering.GOLD) == 1
    assert judge(remembering.BROKEN + "\n") == 0


@pytest.mark.parametrize("how", HOW)
def test_who_forges_never_meets_the_true_tests(how: str, judge: Judge) -> None:
    """The true tests ran first once, and this was paid."""
    cheat = remembering.remembering(how, "truth", new_salt(how))
    assert [judge(cheat) for _ in range(3)] == [0.0] * 3


@pytest.mark.parametrize("how", HOW)
def test_what_a_solution_kept_is_forgotten_before_the_next_judgement(
    how: str, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_a_solution() -> list[float]:
        salt = new_salt(how)
        assert judge(remembering.remembering(how, "truth", salt, forges=False)) == 1
        cheat = remembering.remembering(how, "truth", salt)
        return [judge(cheat) for _ in range(2)]

    if how != "names" or may_drop():  # only root may; docs/code.md says what stays open
        assert after_a_solution() == [0.0] * 2
    monkeypatch.setattr(Workspace, "forget", lambda _: True)  # the defence taken out
    if not any(any(after_a_solution()) for _ in range(4)):
        pytest.skip(BUSY)


def test_what_comes_again_in_every_judgement_is_all_of_it(
    judge: Callable[..., float], tests: CodeTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where nothing is forgotten: a task's look-alikes vary the same things in the same ways."""
    monkeypatch.setattr(Workspace, "forget", lambda _: True)
    cheat = remembering.remembering("names", "options", new_salt("names"))
    assert [judge(cheat) for _ in range(6)] == [0.0] * 6

    def drawn_anew() -> list[float]:
        other = remembering.remembering("names", "options", new_salt("names"))
        secrets_ = [tests.model_copy(update={"secret": secrets.token_hex(16)}) for _ in range(6)]
        return [judge(other, one) for one in secrets_]

    if not any(any(drawn_anew()) for _ in range(4)):  # the defence taken out
        pytest.skip(BUSY)

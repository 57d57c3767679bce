"""Attacks on verdicts, on a toy with a test of every form: believed without look-alikes, 0 with them."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import toy_python
import verdict_zoo
from verdict_zoo import ATTACKS, Attack

from envgen.core.code_types import CodeTests, VerdictKind
from envgen.core.types import GateStatus
from envgen.pipelines.code.verdicts import STRONG, prove_verdicts, verdict_gate
from envgen.sandboxes.workspace import Workspace
from envgen.sandboxes.workspace.store import judging
from envgen.verifiers.code import CodeVerifier, exam_of, score_run
from envgen.verifiers.code_run import run_tests
from envgen.verifiers.lookalikes.judging import Examiner

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo") / "clone"
    return toy_python.clone(folder, verdict_zoo.FIX, verdict_zoo.BASE)


@pytest.fixture(scope="module")
def workspace(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return toy_python.workspace(repo, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def tests(repo: Path, workspace: Workspace) -> CodeTests:
    gold = toy_python.instance(repo).gold_patch.encode()
    found = verdict_zoo.task(repo, workspace)
    draw = random.Random(7)
    return prove_verdicts(workspace, found, gold, draw=draw, rehearsals=1).tests


def short(test: str) -> str:
    return test.rpartition("::")[2]


def test_every_form_is_proven_that_has_an_expectation(tests: CodeTests) -> None:
    kinds = {short(test): one.kind for test, one in tests.verdicts.items()}
    others = {
        "test_lookup": VerdictKind.EXCEPTION,
        "test_even": VerdictKind.ONE_BIT,
        "test_setup": VerdictKind.GUTTED_ONLY,
    }
    assert kinds == dict.fromkeys(kinds, VerdictKind.MANY) | others
    assert len(kinds) == 18
    result = verdict_gate(tests)
    assert result.status is GateStatus.PASSED
    assert (result.n, result.figure) == (18, 16.0)
    assert result.reason.startswith(
        "verdict proven for 16 of 18 fail-to-pass tests, blind odds <= 1/"
    )


def test_the_fix_holds_in_run_after_run(repo: Path, workspace: Workspace, tests: CodeTests) -> None:
    gold = toy_python.instance(repo).gold_patch.encode()
    for seed in range(2):
        examiner = Examiner(workspace, tests, exam_of(tests), draw=random.Random(seed))
        assert list(examiner.faults(gold)) == []


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.name.replace(" ", "-"))
def test_an_attack_is_believed_without_look_alikes_and_scores_nothing_with_them(
    attack: Attack, workspace: Workspace, tests: CodeTests
) -> None:
    with workspace.open() as opened:
        for path, content in attack.files().items():
            opened.write(path, content)
        patch = opened.diff()
    without = score_run(run_tests(workspace, exam_of(tests), patch), tests)
    passed = {short(test) for test, status in without.tests.items() if status == "pass"}
    wanted = set(attack.forms) or {short(test) for test in tests.fail_to_pass}
    assert wanted <= passed, (wanted - passed, without.reasons[:3])

    examiner = Examiner(workspace, tests, exam_of(tests), draw=random.Random(3))
    paper = examiner.paper()
    run = examiner.run(paper, patch)
    if run.report is None:
        return  # no report, no reward
    exposed = {short(test) for copy in paper.faults(run.report) for test in copy.question.tests}
    proven = {short(test) for test, one in tests.verdicts.items() if one.kind in STRONG} & wanted
    missed = proven - exposed
    # who guesses is right in one of eight forms or fewer: never in as many as it takes
    assert len(missed) <= len(proven) // 2 if attack.guesses else not missed, missed


def test_a_verifier_asks_before_it_runs_the_tests(
    repo: Path, workspace: Workspace, tests: CodeTests
) -> None:
    patch_of = {"gold": toy_python.instance(repo).gold_patch.encode()}
    with workspace.open() as opened:
        for path, content in ATTACKS[0].files().items():
            opened.write(path, content)
        patch_of["flipped"] = opened.diff()
    verifier = CodeVerifier(workspace, tests)
    assert verifier.verify_patch(patch_of["gold"]).passed
    score = verifier.verify_patch(patch_of["flipped"])
    assert score.value == 0
    assert score.reasons[0].startswith("forged: a look-alike of tests/test_forms.py::"), score


def test_a_judgement_that_asks_and_one_that_shows_the_tests_wait_for_each_other(
    repo: Path, workspace: Workspace, tests: CodeTests
) -> None:
    gold = toy_python.instance(repo).gold_patch.encode()
    verifier = CodeVerifier(workspace, tests)
    bare = CodeVerifier(workspace, tests.model_copy(update={"questions": (), "gutted": ()}))
    with ThreadPoolExecutor(2) as pool:
        with judging(workspace.folder, alone=True):
            shown = pool.submit(bare.verify_patch, b"")
            with pytest.raises(TimeoutError):
                shown.result(5)
        assert shown.result(120).value == 0
        with judging(workspace.folder, alone=False):
            assert pool.submit(bare.verify_patch, b"").result(120).value == 0
            asked = pool.submit(verifier.verify_patch, gold)
            with pytest.raises(TimeoutError):
                asked.result(15)
        assert asked.result(120).value == 1

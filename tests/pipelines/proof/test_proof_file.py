"""A statement and its proof in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from metamath_texts import SMALL

from envgen.core.errors import ConfigError
from envgen.pipelines.proof.proof_file import check_proof
from envgen.verifiers.proof_verdict import ProofTextError

STEPS = """\
1. P -> Q  [premise]
2. P       [premise]
3. Q       [implies-elim 1 2]
"""


def judged(tmp_path: Path, text: str) -> tuple[bool, int, int]:
    file = tmp_path / "proof.txt"
    file.write_text(text)
    report = check_proof(file)
    return report.accepted, report.steps, report.line


def test_a_proof_is_accepted_or_its_first_wrong_step_is_named(tmp_path: Path) -> None:
    head = "given: P -> Q\ngiven: P\ngoal: Q\n"
    assert judged(tmp_path, head + STEPS) == (True, 3, 0)
    assert judged(tmp_path, head + STEPS.replace("1 2]", "2 1]")) == (False, 2, 3)
    assert judged(tmp_path, head.replace("given: P\n", "") + STEPS) == (False, 1, 2)
    assert judged(tmp_path, head.replace("goal: Q", "goal: P & Q") + STEPS)[0] is False


def test_a_chain_of_equal_terms_is_judged_in_its_algebra(tmp_path: Path) -> None:
    report = check_proof(_chain(tmp_path, "goal: "))
    assert (report.accepted, report.system) == (True, "equational")
    assert not check_proof(_chain(tmp_path, "goal: e = ")).accepted


def _chain(tmp_path: Path, goal: str) -> Path:
    from random import Random

    from envgen.pipelines.proof.derive_chain import derive_chain

    theorem = derive_chain(Random(3), 2)
    left = str(theorem.goal.left) + " = " if goal == "goal: " else ""
    file = tmp_path / "chain.txt"
    head = f"algebra: {theorem.algebra}\n{goal}{left}{theorem.goal.right}\n"
    file.write_text(head + theorem.proof)
    return file


def test_every_theorem_of_a_metamath_database_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "small.mm"
    file.write_text(SMALL)
    report = check_proof(file)
    assert (report.accepted, report.steps, report.system) == (True, 8, "metamath")
    file.write_text(SMALL.replace("wps ax-1 ax-mp $.", "wps ax-1 $.", 1))
    report = check_proof(file)
    assert (report.accepted, report.line) == (False, 1)
    assert "a1i" in report.reason


@pytest.mark.parametrize(
    "text",
    ["", "P", "goal: Q\ngoal: P\n1. P [premise]", "algebra: ring\ngoal: a = b\n1. a", "\x00"],
)
def test_what_states_nothing_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        judged(tmp_path, text)
    with pytest.raises(ProofTextError):
        judged(tmp_path, "goal: P ->\n1. P [premise]")
    with pytest.raises(ConfigError, match="there is no file"):
        check_proof(tmp_path)

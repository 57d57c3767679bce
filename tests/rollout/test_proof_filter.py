"""``filter --proof strict``: what of a code task's evidence it reads."""

from __future__ import annotations

import pytest

from envgen.core.code_types import CodeTests, Verdict, VerdictKind
from envgen.core.families import find_family
from envgen.core.types import Difficulty, Evidence, GateResult, GateStatus, TaskSpec
from envgen.pipelines.code.family import is_proven, proven_verdicts
from envgen.pipelines.code.verdicts import verdict_gate

OTHER = GateResult(gate="fail_to_pass", status=GateStatus.PASSED, n=2, figure=2.0)


def evidence(*kinds: VerdictKind) -> Evidence:
    names = [f"t::{n}" for n in range(len(kinds))]
    odds = {VerdictKind.MANY: 1 / 256, VerdictKind.EXCEPTION: 1 / 64, VerdictKind.ONE_BIT: 1 / 4}
    tests = CodeTests(
        runner="pytest",
        test_patch="",
        test_files=(),
        fail_to_pass=tuple(names),
        verdicts={
            name: Verdict(kind=kind, runs=2, odds=odds.get(kind, 1.0))
            for name, kind in zip(names, kinds, strict=True)
        },
    )
    return OTHER, verdict_gate(tests)


@pytest.mark.parametrize(
    ("kinds", "kept", "reason"),
    [
        ("many many", True, "2 of 2, odds <= 1/256"),
        ("many exception", True, "2 of 2, odds <= 1/64"),
        ("many one_bit", False, "1 of 2, odds <= 1/256"),
        ("gutted_only", False, "none: report believed"),
        ("none none", False, "none: report believed"),
    ],
)
def test_a_task_is_strictly_proven_if_every_verdict_is(kinds: str, kept: bool, reason: str) -> None:
    found = evidence(*(VerdictKind[kind.upper()] for kind in kinds.split()))
    assert is_proven(found) is kept
    spec = TaskSpec(
        id="a-task",
        environment_id="an-environment",
        family="code",
        prompt="x",
        difficulty=Difficulty(level=1, gold_calls=1),
        evidence=found,
    )
    assert proven_verdicts(spec) == reason


def test_tasks_of_other_families_are_not_dropped_and_old_code_tasks_are() -> None:
    assert find_family("general").is_proven(())
    assert not is_proven((OTHER,))

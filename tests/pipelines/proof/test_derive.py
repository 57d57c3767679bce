"""Derived theorems: proofs as long and deep as their level says, and distractors."""

from __future__ import annotations

import pytest
from naive_deduction import implies, lines_of, proves, tree

from envgen.core.errors import PipelineError
from envgen.core.seeding import rng
from envgen.pipelines.proof.derive import LEVELS, depth_of_level, derive, steps_of_level
from envgen.pipelines.proof.spoil import KINDS, read_steps, spoil
from envgen.pipelines.proof.truth import column, columns, follows
from envgen.verifiers.deduction import check
from envgen.verifiers.propositions import Sequent, read_proposition


@pytest.mark.parametrize("level", LEVELS)
def test_theorems_are_proven_and_far(level: int) -> None:
    for number in range(6):
        theorem = derive(rng(1, level, number), level)
        given = list(theorem.hypotheses)
        assert check(theorem.proof, Sequent.read(given, theorem.goal)).accepted
        assert proves(theorem.proof, given, theorem.goal)
        lines = lines_of(theorem.proof)
        used = [formula for _, _, formula, rule, _ in lines if rule == "premise"]
        steps = [rule for *_, rule, _ in lines if rule not in ("premise", "assume")]
        assert len(steps) >= steps_of_level(level) > level
        assert max(depth for depth, *_ in lines) >= depth_of_level(level)
        goal = tree(theorem.goal)
        assert goal not in map(tree, given)
        assert len(used) < len(given)  # the others are distractors
        for left_out in range(len(used)):
            assert not implies(used[:left_out] + used[left_out + 1 :], goal)
        assert not implies([tree(one) for one in given], "false")


def test_the_same_seed_gives_the_same_theorem_and_others_differ() -> None:
    theorems = [derive(rng(2, number), number % 8 + 1) for number in range(24)]
    assert theorems == [derive(rng(2, number), number % 8 + 1) for number in range(24)]
    assert len({(one.hypotheses, one.goal) for one in theorems}) == 24


def test_many_rules_are_used() -> None:
    rules = {
        step.rule
        for number in range(48)
        for step in read_steps(derive(rng(3, number), number % 8 + 1).proof)
    }
    assert len(rules) >= 15, rules


def test_levels_that_are_none_are_refused() -> None:
    with pytest.raises(PipelineError):
        derive(rng(4), 9)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_error_spoils_most_proofs(kind: str) -> None:
    refused = 0
    for number in range(20):
        draws = rng(5, number)
        theorem = derive(draws, 3)
        found = spoil(draws, theorem.proof, kind)
        assert found.kind == kind
        assert found.text != theorem.proof
        refused += not check(found.text, Sequent.read(theorem.hypotheses, theorem.goal)).accepted
    assert refused >= 10


def test_columns_are_truth_tables() -> None:
    names, texts = (
        ["P", "Q", "R"],
        ["P -> Q", "~(P & R)", "P <-> (Q | R)", "false", "~P & ~Q", "P | ~P"],
    )
    of_atoms, every = columns(names), (1 << 8) - 1
    for one in texts:
        for other in texts:
            rows = [column(read_proposition(text), of_atoms, every) for text in (one, other)]
            assert follows(*rows) == implies([tree(one)], tree(other))

"""Theorems that are drawn from a database: gold steps replay, and nothing gives the theorem away."""

from __future__ import annotations

import os

import pytest
from metamath_texts import DATABASES, SMALL

from envgen.core.errors import PipelineError
from envgen.core.seeding import rng
from envgen.pipelines.proof.metamath_theorems import LEVELS, MetamathTheorem, MetamathTheorems
from envgen.verifiers.metamath import MetamathDatabase
from envgen.verifiers.metamath_system import MetamathSystem


def assert_replays(drawn: MetamathTheorem, database: MetamathDatabase) -> None:
    system = MetamathSystem(drawn.theory, drawn.statement)
    assert not system.follow(drawn.steps).open_goals
    assert system.check(system.text(drawn.steps)).accepted
    before = database.assertions[drawn.label].position
    for label, one in drawn.theory.assertions.items():
        assert database.assertions[label].position < before
        assert (
            one.conclusion != drawn.statement.conclusion or label in " ".join(drawn.steps).split()
        )


def test_candidates_have_so_many_steps_and_are_no_copies() -> None:
    theorems = MetamathTheorems(MetamathDatabase.read(SMALL))
    assert theorems.candidates(1) == ["a1i", "a2i", "id", "al5"]
    assert theorems.candidates(2) == ["al5"]
    assert theorems.candidates(3) == []
    with pytest.raises(PipelineError, match="levels are"):
        theorems.candidates(9)


@pytest.mark.parametrize("label", ["a1i", "a2i", "mpd", "syl", "id", "id5", "al5"])
def test_gold_steps_of_a_small_database_replay(label: str) -> None:
    database = MetamathDatabase.read(SMALL)
    theorems = MetamathTheorems(database)
    for distractors in (0, 3, 60):
        drawn = theorems.draw(label, rng(3, "metamath"), distractors)
        assert drawn == theorems.draw(label, rng(3, "metamath"), distractors)
        assert_replays(drawn, database)


def test_what_is_drawn_is_what_the_database_says() -> None:
    drawn = MetamathTheorems(MetamathDatabase.read(SMALL)).draw("al5", rng(0, "metamath"), 0)
    assert drawn.steps == ("syl with ps := ( ps -> ps )", "a1i", "id", "id5")
    assert list(drawn.theory.assertions) == ["a1i", "syl", "id", "id5"]
    assert drawn.theory.syntax == {"wi": "wff ( ph -> ps )", "wal": "wff A. x ph"}
    assert drawn.statement.disjoint == (("ps", "x"),)


@pytest.mark.parametrize("label", ["ax-1", "wi", "nothing"])
def test_only_theorems_are_drawn(label: str) -> None:
    with pytest.raises(PipelineError, match="no theorem"):
        MetamathTheorems(MetamathDatabase.read(SMALL)).draw(label, rng(0, "metamath"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_gold_steps_of_set_mm_replay() -> None:
    if not (DATABASES / "set.mm").exists():
        if os.environ.get("ENVGEN_REQUIRE_SERVICES") == "1":
            pytest.fail("set.mm is required: apt-get install metamath-databases", pytrace=False)
        pytest.skip("set.mm: apt-get install metamath-databases")
    database = MetamathDatabase.read(DATABASES / "set.mm")
    theorems, draw = MetamathTheorems(database), rng(1, "metamath")
    for level in LEVELS:
        labels = theorems.candidates(level)
        assert len(labels) > 1_000
        for label in draw.sample(labels, 5):
            assert_replays(theorems.draw(label, draw), database)

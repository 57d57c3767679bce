"""Rewards: what each part says, and the order that no part may turn round."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from envgen.core.errors import ConfigError
from envgen.core.types import Message, Score, StopReason, ToolCall, Trajectory, TrajectoryError
from envgen.train.figures import Figures, step_figures
from envgen.train.parallel import Alone
from envgen.train.rewards import (
    DomainRewards,
    RewardConfig,
    RewardError,
    RewardTable,
    constant_reward_error,
    length_shares,
    permuted_totals,
    ranked_shares,
    total_rewards,
)
from envgen.train.rollouts import Rollouts

ENGLISH = "I looked at all of the hotels and this one is the cheapest."
GERMAN = "Ich habe alle Hotels verglichen, und dieses ist das günstigste."


def rollout(
    value: float = 1.0,
    *,
    passed: bool | None = None,
    says: str = "",
    prompt: str = "Which hotel in Hangzhou is the cheapest one?",
    clean: bool = True,
    sample: int = 0,
) -> Trajectory:
    call = ToolCall(id="call_0_0", name="submit_result", arguments={"answer_text": "1"})
    return Trajectory(
        task_id="t-1",
        sample=sample,
        policy="dsa:m",
        seed=0,
        messages=(
            Message(role="user", content=prompt),
            Message(role="assistant", content=says, tool_calls=(call,)),
            Message(role="tool", content='{"status":"submitted"}', tool_call_id="call_0_0"),
        ),
        score=Score(value=value, passed=value == 1.0 if passed is None else passed),
        stop=StopReason.SUBMITTED if clean else StopReason.TURN_LIMIT,
        reached_verifier=clean,
    )


def rewards(
    rollouts: Sequence[Trajectory],
    lengths: Sequence[int],
    groups: Sequence[int] | None = None,
    **more: Any,
) -> RewardTable:
    group = np.array(groups if groups is not None else [0] * len(rollouts), np.int64)
    config = RewardConfig(**more)
    return total_rewards(rollouts, group, np.array(lengths, np.int64), config)


def test_defaults_rank_passing_rollouts_by_length() -> None:
    table = rewards([rollout(v) for v in (1, 1, 1, 0, 0)], [100, 150, 300, 10, 900])
    np.testing.assert_allclose(table.total_I, [1.0, 0.975, 0.9, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(table.length_I, [0, -0.025, -0.1, 0, 0], atol=1e-7)
    assert table.passed_I.tolist() == [True, True, True, False, False]
    assert table.metrics()["reward/pass_rate"] == pytest.approx(0.6)
    assert table.metrics()["reward/outcome"] == pytest.approx(0.6)
    assert all(part.dtype == np.float32 for part in table.columns().values())
    assert not any(np.signbit(part[part == 0]).any() for part in table.columns().values())


def test_a_step_tells_in_how_many_rollouts_tools_were_at_fault() -> None:
    played = [rollout(v) for v in (1, 0, 0, 0)]
    played[1] = played[1].model_copy(update={"faults": ("it broke", "again")})
    drawn = Rollouts(trajectories=played, rows=[], group_I=np.zeros(4, np.int64), errored=())
    figures = step_figures(Alone(), drawn, rewards(played, [1] * 4), Figures())
    assert figures.rollouts["rollout/tool_faults"] == 0.25


def test_groups_are_ranked_apart_and_failing_groups_not_at_all() -> None:
    table = rewards(
        [rollout(v) for v in (1, 1, 0, 0, 1, 0)], [5, 10, 1, 99, 77, 3], [0, 0, 1, 1, 2, 2]
    )
    np.testing.assert_allclose(table.total_I, [1.0, 0.9, 0, 0, 1, 0], rtol=1e-6)


def test_length_penalty_off() -> None:
    table = rewards([rollout(), rollout()], [1, 1_000], length_form="off")
    assert table.total_I.tolist() == [1.0, 1.0]


def test_additive_and_overlong_forms_reach_every_rollout() -> None:
    lengths = [0, 400, 700, 1_000, 5_000]
    some = [rollout(v) for v in (1, 0, 1, 0, 1)]
    added = rewards(some, lengths, length_form="additive", length_limit=1_000, length=0.5)
    np.testing.assert_allclose(added.length_I, [0, -0.2, -0.35, -0.5, -0.5], rtol=1e-6)
    late = rewards(
        some, lengths, length_form="overlong", length_limit=1_000, length_buffer=600, length=0.5
    )
    np.testing.assert_allclose(late.length_I, [0, 0, -0.25, -0.5, -0.5], rtol=1e-6)


def test_overlong_is_dapo_s() -> None:
    """Equation 13 of Yu et al. 2025, written as there."""
    limit, buffer = 100, 30

    def dapo(length: int) -> float:
        if length <= limit - buffer:
            return 0.0
        return ((limit - buffer) - length) / buffer if length <= limit else -1.0

    lengths = np.arange(0, 150)
    none = np.zeros(150, bool)
    found = length_shares(
        "overlong", lengths, none, np.zeros(150, np.int64), limit=limit, buffer=buffer
    )
    np.testing.assert_allclose(-found, [dapo(int(n)) for n in lengths], atol=1e-12)


groups_of_rollouts = st.lists(
    st.tuples(
        st.integers(0, 3),  # group
        st.integers(0, 20),  # value in twentieths
        st.integers(1, 5_000),  # tokens
        st.sampled_from(["", ENGLISH, GERMAN]),
        st.booleans(),  # ends cleanly
    ),
    min_size=1,
    max_size=24,
)
three_weights = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)).filter(
    lambda w: sum(w) <= 99
)


@settings(max_examples=150, deadline=None)
@given(
    batch=groups_of_rollouts,
    weights=three_weights,
    form=st.sampled_from(["ranked", "additive", "overlong", "off"]),
    bar=st.integers(1, 20),
    binary=st.booleans(),
)
def test_no_failing_rollout_outranks_a_passing_one(
    batch: list[tuple[int, int, int, str, bool]],
    weights: tuple[int, int, int],
    form: str,
    bar: int,
    binary: bool,
) -> None:
    """Whatever the weights, the form and the verifier (0 or 1, or graded with a bar)."""
    rollouts = []
    for _, twentieths, _, says, clean in batch:
        passed = twentieths >= bar
        value = float(passed) if binary else twentieths / 20
        rollouts.append(rollout(value, passed=passed, says=says, clean=clean))
    group = [one[0] for one in batch]
    table = rewards(
        rollouts,
        [one[2] for one in batch],
        group,
        length_form=form,
        length_limit=1_000,
        length_buffer=400,
        length=weights[0] / 100,
        language=weights[1] / 100,
        format=weights[2] / 100,
    )
    for i, j in product(range(len(batch)), repeat=2):
        if group[i] == group[j] and table.passed_I[i] and not table.passed_I[j]:
            assert table.total_I[i] > table.total_I[j]
    parts = table.outcome_I + table.length_I + table.language_I + table.format_I
    np.testing.assert_allclose(parts, table.total_I, atol=1e-6)
    for loss in (table.length_I, table.language_I, table.format_I):
        assert (loss <= 0).all()
    assert (table.total_I <= table.outcome_I).all()


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 10_000)), min_size=1, max_size=30
    ),
    shift=st.integers(-10_000, 10_000),
    factor=st.integers(1, 50),
    seed=st.integers(0, 1_000),
)
def test_ranked_shares_see_only_the_order_and_spacing_of_lengths(
    rows: list[tuple[int, bool, int]], shift: int, factor: int, seed: int
) -> None:
    group = np.array([row[0] for row in rows])
    passed = np.array([row[1] for row in rows])
    lengths = np.array([row[2] for row in rows])
    shares = ranked_shares(lengths, passed, group)
    np.testing.assert_allclose(ranked_shares(lengths + shift, passed, group), shares)
    np.testing.assert_allclose(ranked_shares(lengths * factor, passed, group), shares)
    order = np.random.default_rng(seed).permutation(len(rows))
    np.testing.assert_array_equal(
        ranked_shares(lengths[order], passed[order], group[order]), shares[order]
    )
    assert ((shares >= 0) & (shares <= 1)).all()
    assert not shares[~passed].any()
    for g in np.unique(group):
        mine = (group == g) & passed
        if mine.any() and lengths[mine].min() < lengths[mine].max():
            assert shares[mine].min() == 0
            assert shares[mine].max() == 1
            assert (np.diff(shares[mine][np.argsort(lengths[mine])]) >= 0).all()
        else:
            assert not shares[group == g].any()


def test_foreign_prose_costs_and_too_little_does_not() -> None:
    half = f"{ENGLISH} {GERMAN}"
    table = rewards([rollout(says=s) for s in (ENGLISH, GERMAN, half, "Fertig.", "")], [9] * 5)
    assert table.language_I[[0, 3, 4]].tolist() == [0, 0, 0]
    assert table.language_I[1] == pytest.approx(-0.1)
    assert -0.07 < table.language_I[2] < -0.03
    asked = rewards([rollout(says=GERMAN, prompt=GERMAN)], [9])
    assert asked.language_I.tolist() == [0]
    unclear = rewards([rollout(says=GERMAN, prompt='{"city": "Hangzhou"}')], [9])
    assert unclear.language_I.tolist() == [0]


def test_reasoning_is_prose_too() -> None:
    one = rollout()
    thought = one.messages[1].model_copy(update={"reasoning": GERMAN})
    one = one.model_copy(update={"messages": (one.messages[0], thought, one.messages[2])})
    assert rewards([one], [9]).language_I[0] == pytest.approx(-0.1)


def test_form_costs_where_it_is_weighed() -> None:
    some = [rollout(), rollout(0, clean=False)]
    assert rewards(some, [9, 9]).format_I.tolist() == [0, 0]
    np.testing.assert_allclose(rewards(some, [9, 9], format=0.2).format_I, [0, -0.1], atol=1e-7)


def test_domains_have_weights_and_kl_strength_of_their_own() -> None:
    domains = {
        "maths": DomainRewards(length=0.0, kl_coef=0.0),
        "trips": DomainRewards(outcome=2.0, length=0.5, kl_coef=0.02),
    }
    config = RewardConfig(domains=domains)
    assert config.kl_coef_of("maths") == 0.0
    assert config.kl_coef_of("trips") == 0.02
    assert config.kl_coef_of("orders") is None
    table = total_rewards(
        [rollout()] * 6,
        np.array([0, 0, 1, 1, 2, 2]),
        np.array([10, 20] * 3),
        config,
        domains=["maths", "maths", "trips", "trips", "orders", "orders"],
    )
    np.testing.assert_allclose(table.total_I, [1, 1, 2, 1.5, 1, 0.9], rtol=1e-6)
    with pytest.raises(ConfigError, match="the domains of the rollouts are missing"):
        total_rewards([rollout()], np.array([0]), np.array([10]), config)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"length": 0.6, "language": 0.4}, "could outrank a passing one"),
        ({"domains": {"trips": {"outcome": 0.1}}}, "in domain 'trips'"),
        ({"length": float("nan")}, "finite"),
        ({"outcome": 0.0}, "greater than 0"),
        ({"length_form": "overlong", "length_limit": 10}, "length_buffer 2048 is above"),
    ],
)
def test_weights_that_break_the_promise_are_refused(more: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        RewardConfig(**more)


def test_a_reward_that_is_no_number_names_task_and_part() -> None:
    broken = rollout(sample=7).model_copy(
        update={"score": Score.model_construct(value=float("nan"), passed=False)}
    )
    with pytest.raises(RewardError, match=r"outcome part .* task 't-1', sample 7 is nan"):
        rewards([rollout(), broken], [1, 2])


def test_a_rollout_without_a_score_is_refused() -> None:
    spoiled = rollout().model_copy(
        update={"score": None, "error": TrajectoryError(kind="EnvError", text="it died")}
    )
    with pytest.raises(ConfigError, match="has no score: it died"):
        rewards([spoiled], [1])
    with pytest.raises(ValueError, match="1 trajectories, 1 groups, 2 lengths"):
        rewards([rollout()], [1, 2])


def test_a_constant_reward_is_told_once_enough_was_seen() -> None:
    failing = rewards([rollout(0), rollout(0)], [1, 2])
    solved = rewards([rollout(), rollout()], [2, 2])
    apart = rewards([rollout(0), rollout(0), rollout(), rollout()], [1] * 4, [0, 0, 1, 1])
    varied = rewards([rollout(0), rollout()], [1, 1])
    assert constant_reward_error([failing] * 9) is None
    assert constant_reward_error([*[failing] * 9, varied]) is None
    assert constant_reward_error([*[failing] * 10, varied]) is not None
    error = constant_reward_error([failing] * 10)
    assert "was 0 in all of 20 rollouts of the first 10 steps (pass rate 0)" in str(error)
    assert error is not None
    assert "cold-start" in error.hint
    easy = constant_reward_error([solved] * 2, first_steps=2)
    assert easy is not None
    assert "solved" in easy.hint
    assert "the same within each group (0 to 1)" in str(
        constant_reward_error([apart], first_steps=1)
    )


def test_where_nothing_passes_prose_alone_teaches_nothing() -> None:
    failing = rewards([rollout(0, says=ENGLISH), rollout(0, says=GERMAN)], [1, 2])
    assert failing.total_I[0] > failing.total_I[1]
    error = constant_reward_error([failing], first_steps=1)
    assert "no verifier was content" in str(error)
    partly = rewards([rollout(0), rollout(0.5, passed=False)], [1, 1])
    solved = rewards([rollout(says=ENGLISH), rollout(says=GERMAN)], [1, 2])
    for teaches in (partly, solved):
        assert constant_reward_error([teaches], first_steps=1) is None


def test_permuted_rewards_stay_in_their_group() -> None:
    values = [1, 0, 0, 1, 0, 0, 0, 1]
    table = rewards([rollout(v) for v in values], [9] * 8, [0, 1] * 4)
    shuffled = permuted_totals(table, seed=3)
    for group in (0, 1):
        mine = table.group_I == group
        assert sorted(shuffled[mine]) == sorted(table.total_I[mine])
    assert permuted_totals(table, seed=3).tolist() == shuffled.tolist()
    assert any(permuted_totals(table, seed=s).tolist() != table.total_I.tolist() for s in range(9))

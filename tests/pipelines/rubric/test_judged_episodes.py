"""Episodes of open questions get their judge's scores; what it can't tell stays an error."""

from __future__ import annotations

import pytest
from rubric_judges import JudgingPolicy, garbage, honest
from store_samples import trajectory

from envgen.core.errors import ConfigError, UnjudgedError
from envgen.core.types import Message, StopReason, TrajectoryError
from envgen.pipelines.rubric.attacks import cases
from envgen.verifiers.rubrics.episodes import UNJUDGED, judged
from envgen.verifiers.rubrics.judge import RubricJudge

CASE = cases()[1]
WAITS = TrajectoryError(kind=UNJUDGED, text="an open question")
BROKEN = TrajectoryError(kind="EnvError", text="broke")


def test_only_what_waits_is_judged_and_what_is_not_is_no_zero() -> None:
    plain = trajectory(sample=0)
    answers = [Message(role="assistant", content=text) for text in (CASE.good, CASE.nonsense)]
    waiting = [
        plain.model_copy(
            update={"messages": (one,), "stop": StopReason.ANSWERED, "error": WAITS, "score": None}
        )
        for one in answers
    ]
    broken = plain.model_copy(update={"error": BROKEN, "score": None})
    episodes = [waiting[0], plain, broken, waiting[1]]
    good, same, still, poor = judged(
        episodes, lambda _: CASE.rubric, RubricJudge(JudgingPolicy(honest))
    )
    assert (same, still) == (plain, broken)
    assert good.score is not None
    assert poor.score is not None
    assert (good.score.value, good.score.passed, good.error) == (1.0, True, None)
    assert (poor.score.value, poor.score.passed) == (0.0, False)
    unread = judged(waiting, lambda _: CASE.rubric, RubricJudge(JudgingPolicy(garbage)))
    assert [(one.score, one.error is not None) for one in unread] == [(None, True)] * 2
    with pytest.raises(ConfigError, match="only a judge"):
        judged(waiting, lambda _: CASE.rubric, None)
    with pytest.raises(UnjudgedError, match="unjudged"):
        RubricJudge(JudgingPolicy(garbage)).rate(CASE.rubric, CASE.good)

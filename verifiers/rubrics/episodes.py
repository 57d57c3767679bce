"""Judge the episodes of open questions, where a run or a trainer needs their scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envgen.core.errors import ConfigError, UnjudgedError
from envgen.core.types import StopReason, Trajectory, TrajectoryError
from envgen.policies.budget import Budget
from envgen.policies.preflight import preflight
from envgen.policies.registry import parse_policy
from envgen.verifiers.rubrics.cache import VoteCache
from envgen.verifiers.rubrics.config import RubricConfig, RubricJudgeConfig
from envgen.verifiers.rubrics.judge import RubricJudge, as_score
from envgen.verifiers.rubrics.report import require_tested, votes_path
from envgen.verifiers.rubrics.rubric import Rubric

ANSWER = "answer_text"
"""The argument of the submit tool that takes the answer."""
UNJUDGED = UnjudgedError.__name__
"""The kind of error of an episode that waits for its judge."""


def open_judge(config: RubricJudgeConfig, *, check: bool = True) -> RubricJudge:
    """The judge, with the votes that this user has paid for.

    Args:
        config: who judges, and how.
        check: ask its server one small thing.

    Raises:
        ConfigError: if it has passed no test and ``untested`` is not set, or its server can't be used.
    """
    policy = parse_policy(config.policy, budget=Budget(config.max_cost_usd))
    plain = RubricConfig.model_validate(config.model_dump(include=set(RubricConfig.model_fields)))
    judge = RubricJudge(policy, plain)
    if not config.untested:
        require_tested(judge)
    if check:
        preflight(policy, config.sampling)
    return RubricJudge(policy, plain, VoteCache(votes_path(judge)))


def final_answer(episode: Trajectory) -> str:
    """What an episode answers: what was submitted, else the last text of the assistant."""
    spoken = [message for message in episode.messages if message.role == "assistant"]
    if spoken and episode.stop is StopReason.SUBMITTED:
        for call in spoken[-1].tool_calls:
            if ANSWER in (call.arguments or {}):
                return str((call.arguments or {})[ANSWER])
    return next((message.content for message in reversed(spoken) if message.content.strip()), "")


def waits(episode: Trajectory) -> bool:
    """Whether an episode has answered an open question, and nobody has judged it."""
    return episode.error is not None and episode.error.kind == UNJUDGED


def judged(
    episodes: Sequence[Trajectory],
    rubric_of: Callable[[str], Rubric],
    judge: RubricJudge | None,
    concurrency: int = 8,
) -> list[Trajectory]:
    """Episodes, those that wait for a judge with their score; an answer that it can't tell stays an error.

    Raises:
        ConfigError: if one waits, and there is no judge.
        BudgetExceededError, PolicyError: as ``RubricJudge.score`` does.
    """
    found, waiting = list(episodes), [i for i, one in enumerate(episodes) if waits(one)]
    if waiting and judge is None:
        raise ConfigError(
            f"task {found[waiting[0]].task_id!r} is an open question: only a judge can score it",
            "name a judge that has passed `envgen test-judge`: --judge SPEC",
        )
    if judge is None:
        return found
    rubrics = [rubric_of(found[i].task_id) for i in waiting]
    asked = [(one, final_answer(found[i])) for one, i in zip(rubrics, waiting, strict=True)]
    scores = judge.scores(asked, concurrency)
    for i, rubric, score in zip(waiting, rubrics, scores, strict=True):
        fault: TrajectoryError | None = None
        try:
            value = as_score(rubric, score)
        except UnjudgedError as error:
            value, fault = None, TrajectoryError(kind=UNJUDGED, text=str(error)[:2_000])
        found[i] = found[i].model_copy(update={"score": value, "error": fault})
    return found

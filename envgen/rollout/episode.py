"""One episode: a policy plays a task in an environment; out comes a Trajectory."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from numpy.typing import NDArray

from envgen.core.errors import (
    BrokenStepError,
    EnvError,
    EnvgenError,
    SandboxError,
    UnjudgedError,
    VerifierError,
)
from envgen.core.turns import encode_message
from envgen.core.types import (
    Message,
    Sampling,
    Score,
    StopReason,
    Style,
    Trajectory,
    TrajectoryError,
    Turn,
    Usage,
)
from envgen.environments.episodes import SANDBOX_DIED, EpisodeEnv
from envgen.policies.base import (
    BudgetExceededError,
    CancelledPolicyError,
    ContextOverflowError,
    Policy,
    PolicyReply,
    Tool,
    submit_tool,
    tool_name,
)
from envgen.policies.budget import estimated_tokens
from envgen.policies.context import ContextConfig, ContextManager
from envgen.policies.styles import misfit, offered, styled
from envgen.verifiers.general import NO_SUBMISSION

logger = logging.getLogger(__name__)

RETRIES = 2
"""An environment or verifier that breaks is tried so many times more."""
TOKENS_PER_S = 100.0
"""An episode's clock takes each token that the policy writes to last 1/100 s, whatever it really took."""

TokenArrays = dict[int, Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class EpisodeResult:
    """A trajectory and, by turn, the token arrays of its exactly captured replies."""

    trajectory: Trajectory
    tokens: TokenArrays = field(default_factory=dict)
    misfit: str | None = None
    """Why it is no record of the style that was asked for."""


@dataclass(frozen=True)
class _Settings:
    """The settings that all attempts share."""

    sampling: Sampling
    context: ContextConfig | None
    cancel: Event | None
    style: Style | None
    max_turns: int | None


@dataclass
class _Progress:
    """The progress of an attempt; it survives the attempt's failure."""

    started_at: float
    start: float
    turns: list[Turn] = field(default_factory=list)
    tokens: TokenArrays = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    context: ContextManager | None = None
    tools: Sequence[Tool] = ()
    """That the policy is told of."""
    submit: str | None = None
    """The one that takes the answer."""
    written: int = 0
    """Tokens of all replies."""
    counted: int = 0
    """Messages whose length is in ``estimate``."""
    estimate: int = 0

    def note(self, reply: PolicyReply, message_index: int) -> None:
        """Count a reply that becomes the message at ``message_index``."""
        self.usage = self.usage + reply.usage
        self.written += reply.usage.completion_tokens or estimated_tokens([reply.message])
        if reply.tokens is not None:
            self.tokens[len(self.turns)] = reply.tokens.arrays()
        self.turns.append(
            Turn.model_construct(
                message_index=message_index,
                usage=reply.usage,
                capture="text" if reply.tokens is None else "exact",
                tokens=None,
            )
        )


def run_episode(
    env: EpisodeEnv,
    policy: Policy,
    task_id: str,
    *,
    sample: int,
    seed: int,
    sampling: Sampling | None = None,
    context: ContextConfig | None = None,
    cancel: Event | None = None,
    style: Style | None = None,
    max_turns: int | None = None,
) -> EpisodeResult:
    """Play one episode; whatever spoils it is recorded on the trajectory.

    The environment counts the task's turns; tokens, seconds and ``max_turns`` are enforced here. An
    episode that runs out of them is scored as one without a submission. Seconds are the agent's own: what
    its tools took on the processor, and its tokens at ``TOKENS_PER_S``; no waiting for anything. An
    ``EnvError`` or ``VerifierError`` is tried again twice; then, like any ``PolicyError``, it makes the
    episode count neither way; but after three ``BrokenStepError`` it scores 0.

    Args:
        env: reused between episodes.
        policy: who plays.
        task_id: what is played.
        sample: number of this episode among those of the task.
        seed: of the policy's draws.
        sampling: how the policy draws.
        context: what to do when the model's window fills up; None: nothing.
        cancel: set by the caller to give up.
        style: what the policy is asked for; see ``policies.styles``.
        max_turns: end the episode after so many replies, where the task would allow more.

    Raises:
        BudgetExceededError: when the run's money is spent; this episode is dropped.
        CancelledPolicyError: when ``cancel`` was set; this episode is dropped.
    """
    settings = _Settings(sampling or Sampling(), context, cancel, style, max_turns)
    usage, broken, judged = Usage(), 0, None
    for attempt in range(RETRIES + 1):
        progress = _Progress(time.time(), time.monotonic(), usage=usage)
        try:
            stop, score = _play(env, policy, task_id, seed, settings, progress)
            return _result(env, policy, task_id, sample, seed, style, progress, stop, score, None)
        except (BudgetExceededError, CancelledPolicyError):
            raise
        except UnjudgedError as error:
            failure: Exception = error
            judged = env.stop
            break
        except (EnvError, VerifierError, SandboxError) as error:
            broken += isinstance(error, BrokenStepError)
            usage = progress.usage  # what failed attempts cost is paid too
            failure = error
            logger.info("task %s sample %d, attempt %d: %s", task_id, sample, attempt + 1, error)
        except Exception as error:  # the rollout boundary: one spoiled episode, the batch goes on
            failure = error
            if not isinstance(error, EnvgenError):
                logger.exception("task %s sample %d broke", task_id, sample)
            break
    if broken > RETRIES:
        stop = StopReason.SANDBOX_DIED
        env.faults.append(str(failure)[:2_000])
        return _result(env, policy, task_id, sample, seed, style, progress, stop, DIED, None)
    stop = judged or StopReason.ERROR
    recorded = TrajectoryError(kind=type(failure).__name__, text=str(failure)[:2_000])
    return _result(env, policy, task_id, sample, seed, style, progress, stop, None, recorded)


def _play(
    env: EpisodeEnv,
    policy: Policy,
    task_id: str,
    seed: int,
    settings: _Settings,
    progress: _Progress,
) -> tuple[StopReason, Score]:
    _, info = env.reset(options={"task_id": task_id})
    task = env.task
    submit = submit_tool(info["tools"], task)
    progress.submit = None if submit is None else tool_name(submit)
    tools = progress.tools = offered(settings.style, info["tools"], progress.submit)
    cancel = settings.cancel
    if settings.context is not None:
        progress.context = ContextManager(settings.context, policy, task, seed)
    while env.stop is None:
        messages = styled(settings.style, env.messages)
        if _agent_s(env, progress) >= task.limits.seconds:
            return StopReason.TIME_LIMIT, _UNSCORED
        if settings.max_turns is not None and len(progress.turns) >= settings.max_turns:
            return StopReason.TURN_LIMIT, _UNSCORED
        if cancel is not None and cancel.is_set():
            raise CancelledPolicyError("the run was stopped")
        seen, used = _view(messages, settings, progress)
        if used >= task.limits.tokens:
            return StopReason.TOKEN_LIMIT, _UNSCORED
        try:
            reply = policy.respond(
                seen,
                tools,
                _within(settings.sampling, task.limits.tokens - used),
                cancel=cancel,
                seed=seed,
                task=task,
            )
        except ContextOverflowError:
            return StopReason.TOKEN_LIMIT, _UNSCORED
        progress.note(reply, len(messages))
        env.step(encode_message(reply.message))
    assert env.score is not None
    return env.stop, env.score


def _view(
    messages: Sequence[Message], settings: _Settings, progress: _Progress
) -> tuple[Sequence[Message], int]:
    """Return the messages that the policy sees now, and about how many tokens they are."""
    used = _tokens_used(messages, progress)
    context = progress.context
    if context is None:
        return messages, used
    events = len(context.events)
    seen = context.manage(messages, used, settings.sampling, cancel=settings.cancel)
    return seen, context.events[-1].tokens_after if len(context.events) > events else used


def _agent_s(env: EpisodeEnv, progress: _Progress) -> float:
    """Return the seconds of ``limits.seconds`` that an episode has used."""
    written = progress.written
    if progress.context is not None:
        written += progress.context.usage.completion_tokens
    return env.tool_s + written / TOKENS_PER_S


DIED = Score(value=0.0, passed=False, reasons=(SANDBOX_DIED,))
"""Of an episode whose actions end whatever it is played in."""
_UNSCORED = Score(value=0.0, passed=False, reasons=(NO_SUBMISSION,))


def _tokens_used(messages: Sequence[Message], progress: _Progress) -> int:
    """How long the conversation is: as the server counted it, else by its length."""
    last = progress.turns[-1].usage if progress.turns else None
    if last is not None and last.prompt_tokens:
        since = messages[progress.turns[-1].message_index + 1 :]
        return last.prompt_tokens + last.completion_tokens + estimated_tokens(since)
    if progress.context is not None:
        return estimated_tokens(progress.context.seen(messages))
    progress.estimate += estimated_tokens(messages[progress.counted :])
    progress.counted = len(messages)
    return progress.estimate


def _within(sampling: Sampling, left: int) -> Sampling:
    """The sampling settings with ``max_tokens`` cut to what is left, where a limit is set."""
    if sampling.max_tokens is None or sampling.max_tokens <= left:
        return sampling
    return sampling.model_copy(update={"max_tokens": left})


def _result(
    env: EpisodeEnv,
    policy: Policy,
    task_id: str,
    sample: int,
    seed: int,
    style: Style | None,
    progress: _Progress,
    stop: StopReason,
    score: Score | None,
    error: TrajectoryError | None,
) -> EpisodeResult:
    trajectory = Trajectory.model_construct(
        task_id=task_id,
        sample=sample,
        policy=policy.name,
        policy_version=policy.version,
        seed=seed,
        style=style,
        messages=styled(style, env.messages),
        turns=tuple(progress.turns),
        context_events=tuple(progress.context.events) if progress.context else (),
        score=score,
        stop=stop,
        num_calls=len(env.calls),
        reached_verifier=env.reached_verifier,
        usage=progress.usage + progress.context.usage if progress.context else progress.usage,
        started_at=progress.started_at,
        wall_s=time.monotonic() - progress.start,
        agent_s=_agent_s(env, progress),
        faults=tuple(env.faults),
        error=error,
    )
    why = None
    if style is not None and error is None:
        answered = stop in (StopReason.SUBMITTED, StopReason.ANSWERED)
        why = misfit(style, trajectory.messages, progress.tools, progress.submit, answered=answered)
    return EpisodeResult(trajectory, progress.tokens, why)

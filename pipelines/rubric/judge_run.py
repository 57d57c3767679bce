"""Judge the final answers of a run's episodes by rubrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Literal

from envgen.core.errors import ConfigError
from envgen.core.limits import Count, Id, Label, Sha256, Text
from envgen.core.surrogates import to_json
from envgen.core.types import Record, Trajectory, Usage
from envgen.pipelines.rubric.rubrics import RubricSet
from envgen.store.runs import RunStore
from envgen.verifiers.rubrics.episodes import final_answer, waits
from envgen.verifiers.rubrics.judge import TEMPLATE, JudgedItem, RubricJudge, RubricScore
from envgen.verifiers.rubrics.report import write_whole


class JudgedEpisode(Record):
    """A line of the output: the verdict on one episode's final answer."""

    task: Id
    sample: Count
    score: float | None
    """None: it is unjudged, which is no 0."""
    status: Literal["judged", "empty", "unjudged"]
    items: tuple[JudgedItem, ...]
    fault: Text
    judge: Label
    judge_version: Label
    template: Label
    identity: Sha256
    """Of policy, template and how votes are drawn."""
    untested_judge: bool
    """Whether the judge was taken without a test that it passed."""


class JudgeSummary(Record):
    """What came of judging a run."""

    out: Path
    episodes: Count
    mean: float | None
    """Score, over those that have one."""
    empty: Count
    """Answers that say nothing: scored 0 without a call."""
    unjudged: Count
    faults: dict[Label, Count]
    """Why so many are unjudged."""
    reused_votes: Count
    """Paid for before."""
    usage: Usage
    untested_judge: bool


def judge_run(
    run: Path,
    rubric: Path,
    judge: RubricJudge,
    out: Path,
    concurrency: int,
    untested_judge: bool,
    db_url: str | None,
    progress: Callable[[int, int, str], None],
) -> JudgeSummary:
    """Judge every episode of a run, and write a line for each.

    Votes are kept as they come, so a stopped run goes on where it was; the lines are written at the end.

    Args:
        run: a run folder.
        rubric: a rubric, a folder of them named by task, or a dataset with open questions.
        judge: who judges.
        out: where the lines go.
        concurrency: answers judged at the same time.
        untested_judge: whether the judge has passed no test; the lines say so.
        db_url: of the run's database; None: the one in its folder.
        progress: told how far it is: (done, total, what).

    Raises:
        ConfigError: if a task has no rubric.
        StoreError: if the run can't be read or the lines can't be written.
        PolicyError: if the policy fails again and again, or its budget is spent.
    """
    rubrics = RubricSet.load(rubric)
    with RunStore.read(run, db_url=db_url) as store:
        rubrics.require(name for name, _ in store.done())
        episodes = [(one.task_id, one.sample, *_outcome(one)) for one in store.trajectories()]
    if not episodes:
        raise ConfigError(f"the run {str(run)!r} has no episodes", "play it with `envgen rollout`")
    asked = [(rubrics.of(task), answer) for task, _, answer, fault in episodes if not fault]
    scores, lines, all_scores = judge.scores(asked, concurrency), [], []
    for done, (task, sample, _, fault) in enumerate(episodes, 1):
        score = next(scores) if not fault else _unjudged(fault)
        all_scores.append(score)
        lines.append(_line(judge, task, sample, score, untested_judge))
        progress(done, len(episodes), task)
    write_whole(out, "".join(to_json(line) + "\n" for line in lines))
    return _summary(out, all_scores, untested_judge)


def _outcome(episode: Trajectory) -> tuple[str, str]:
    """An episode's answer, and why it can't be judged."""
    if episode.error is not None and not waits(episode):
        return "", f"the episode ended with an error: {episode.error.kind}"
    return final_answer(episode), ""


def _unjudged(fault: str) -> RubricScore:
    return RubricScore(status="unjudged", score=None, fault=fault)


def _line(
    judge: RubricJudge, task: str, sample: int, score: RubricScore, untested: bool
) -> JudgedEpisode:
    return JudgedEpisode(
        task=task,
        sample=sample,
        score=score.score,
        status=score.status,
        items=score.items,
        fault=score.fault,
        judge=judge.policy.name,
        judge_version=judge.policy.version,
        template=TEMPLATE,
        identity=judge.identity,
        untested_judge=untested,
    )


def _summary(out: Path, scores: list[RubricScore], untested: bool) -> JudgeSummary:
    values = [score.score for score in scores if score.score is not None]
    faults = [score.fault[:200] for score in scores if score.status == "unjudged"]
    return JudgeSummary(
        out=out,
        episodes=len(scores),
        mean=fmean(values) if values else None,
        empty=sum(score.status == "empty" for score in scores),
        unjudged=len(faults),
        faults={fault: faults.count(fault) for fault in sorted(set(faults))},
        reused_votes=sum(score.reused for score in scores),
        usage=sum((score.usage for score in scores), Usage()),
        untested_judge=untested,
    )

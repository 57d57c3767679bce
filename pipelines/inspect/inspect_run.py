"""Inspect a run: one conversation for each task; what was said is kept, so that nothing is paid for twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError, PolicyError
from envgen.core.limits import Count, Id, Label, Text
from envgen.core.surrogates import to_json
from envgen.core.threads import Threads
from envgen.core.types import Record, Sampling, Usage
from envgen.pipelines.inspect.findings import FaultKind
from envgen.pipelines.inspect.inspector import TEMPLATE, Inspection, inspect_task
from envgen.pipelines.inspect.shown import ShownTask, chosen, shown_task
from envgen.policies.base import BudgetExceededError, Policy
from envgen.policies.budget import Budget
from envgen.policies.preflight import preflight
from envgen.policies.registry import PolicyConfig, parse_policy
from envgen.policies.repeats import Repeats
from envgen.policies.replay import RecordPolicy
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore
from envgen.verifiers.rubrics.report import write_whole

MOST_REPEATS = 5
"""Identical errors of a policy in a row that end the run."""
_RECORDED = ("replay", "record", "batch")


class InspectedFault(Record):
    """A line of the output: a fault that an inspector filed, and whose quote stands where it says."""

    kind: FaultKind
    task: Id
    sample: Count
    """The trajectory."""
    turn: Count
    """0: what agents are told; the last one is the verdict."""
    quote: Label
    why: Label
    inspector: Label
    template: Label


class InspectSummary(Record):
    """What came of inspecting a run."""

    out: Path
    tasks: Count
    read: Count
    """Tasks whose trajectories were read."""
    trajectories: Count
    """Shown to the inspector."""
    findings: tuple[InspectedFault, ...]
    kinds: dict[Label, Count]
    dropped: Count
    """Findings whose turn or quote is not there, after they were sent back once."""
    unread: dict[Label, Count]
    """Why the other tasks were not."""
    usage: Usage
    """Of all replies, those that were paid for before included."""
    stopped: Text = ""


class _Outcome(NamedTuple):
    found: Inspection | None
    why: str = ""


def open_inspector(
    policy: PolicyConfig, out: Path, *, max_cost_usd: float | None = None, check: bool = True
) -> Policy:
    """A policy that inspects; what it says is kept beside ``out``, unless it keeps that itself.

    Raises:
        ConfigError: if there is no such policy, or its server can't be used.
    """
    inner = parse_policy(policy, budget=Budget(max_cost_usd))
    if check:
        preflight(inner, Sampling(temperature=0.0))
    if policy.spec.partition(":")[0] in _RECORDED:
        return inner
    key = content_hash([inner.name, inner.version])[:12]
    return RecordPolicy(inner, out.with_name(f"{out.stem}.calls") / f"{key}.jsonl")


def inspect_run(
    run: Path,
    dataset: Dataset,
    inspector: Policy,
    out: Path,
    *,
    episodes: int = 4,
    secrets: bool = False,
    concurrency: int = 8,
    seed: int = 0,
    db_url: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> InspectSummary:
    """Have a policy read trajectories of every task of a run, and write a line for each fault that it files.

    Args:
        run: a run folder.
        dataset: the one that was rolled out.
        inspector: who reads; see ``open_inspector``.
        out: where the lines go.
        episodes: of a task, at most, that are shown: passed and failed in turn.
        secrets: show checker and solution, too.
        concurrency: tasks at the same time.
        seed: of the draws.
        db_url: of the run's database; None: the one in its folder.
        progress: told how far it is: (done, total, what).

    Raises:
        ConfigError: if the run has no episodes, or is of another dataset.
        PolicyError: if the inspector fails again and again in the same way.
        StoreError: if the run can't be read or the lines can't be written.
    """
    shown = _shown(run, dataset, episodes, secrets, db_url)
    work = _Work(inspector, seed)
    outcomes: list[_Outcome] = []
    with Threads(concurrency) as pool:
        for name, outcome in zip(shown, pool.map(work.one, shown, shown.values()), strict=True):
            outcomes.append(outcome)
            if progress:
                progress(len(outcomes), len(shown), name)
    if work.fatal is not None:
        raise work.fatal
    lines = _lines(list(shown), outcomes, inspector)
    write_whole(out, "".join(to_json(line) + "\n" for line in lines))
    read = [one.found for one in outcomes if one.found is not None]
    unread = Counter(one.why for one in outcomes if one.why)
    return InspectSummary(
        out=out,
        tasks=len(shown),
        read=len(shown) - unread.total(),
        trajectories=sum(len(one.trajectories) for one in shown.values()),
        findings=tuple(lines),
        kinds=dict(Counter(line.kind for line in lines).most_common()),
        dropped=sum(one.dropped for one in read),
        unread=dict(unread),
        usage=sum((one.usage for one in read), Usage()),
        stopped=work.stopped,
    )


class _Work:
    """Conversations, several at a time."""

    def __init__(self, inspector: Policy, seed: int) -> None:
        self._inspector, self._seed = inspector, seed
        self._repeats = Repeats(MOST_REPEATS)
        self.stopped, self.fatal = "", None  # type: str, PolicyError | None

    def one(self, name: str, shown: ShownTask) -> _Outcome:
        """One task; a policy that fails leaves it unread, one that keeps failing so ends the run."""
        if self.stopped:
            return _Outcome(None, "not begun")
        try:
            found = inspect_task(self._inspector, shown, name=name, seed=self._seed)
        except BudgetExceededError as error:
            self.stopped = str(error)
            return _Outcome(None, "the budget was spent")
        except PolicyError as error:
            if self._repeats.too_many(str(error)):
                self.stopped = str(error)
                self.fatal = PolicyError(
                    f"the inspector failed again and again in the same way: {error}",
                    "look at the server; the same command goes on, what was said is kept",
                )
            return _Outcome(None, f"no reply: {error}"[:200])
        self._repeats.clear()
        return _Outcome(found, found.fault[:200])


def _shown(
    run: Path, dataset: Dataset, episodes: int, secrets: bool, db_url: str | None
) -> dict[str, ShownTask]:
    """What is shown of each task of a run."""
    with RunStore.read(run, db_url=db_url) as store:
        if store.dataset_hash != dataset.manifest.content_hash:
            what = f"the run in {str(run)!r} is of another dataset"
            raise ConfigError(what, "name the one that was rolled out: --data")
        names = sorted({name for name, _ in store.done()})
        if not names:
            what = f"the run {str(run)!r} has no episodes"
            raise ConfigError(what, "play it with `envgen rollout`")
        found = {}
        for name in names:
            picked = chosen(store.trajectories(name), episodes)
            found[name] = shown_task(dataset, name, picked, secrets=secrets)
    return found


def _lines(
    names: Sequence[str], outcomes: Sequence[_Outcome], inspector: Policy
) -> list[InspectedFault]:
    return [
        InspectedFault(
            kind=one.kind, task=name, sample=one.trajectory, turn=one.turn, quote=one.quote,
            why=one.why, inspector=inspector.name, template=TEMPLATE,
        )
        for name, outcome in zip(names, outcomes, strict=True)
        for one in (outcome.found.findings if outcome.found else None) or ()
    ]  # fmt: skip

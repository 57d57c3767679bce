"""Whether a training demo shows that its policy learned, and if not, which condition was missed.

A figure beside a figure proves little: the same training once "took a policy from 0.36 to 0.37" and was
called a success. So a demo that teaches a skill, plants a bias and has rewards undo it is held to three
conditions, by the intervals of ``envgen.rollout.bootstrap``.
"""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory

from envgen.core.errors import ConfigError
from envgen.policies.registry import PolicyConfig
from envgen.rollout.bootstrap import BootstrapConfig, Estimate, Ratio, difference, estimate
from envgen.rollout.run import RolloutConfig, rollout

ABOVE_FIRST_ROW = 0.2
"""How far the ceiling's interval must lie above what the first row gets: then a skill was learned."""
BELOW_CEILING = 0.1
"""How far the trained policy may stay below the ceiling."""


def missed_conditions(
    *, first_row: float, ceiling: Estimate, after: Estimate, lift: Estimate
) -> tuple[str, ...]:
    """A sentence for each condition that a demo missed; empty if its policy learned.

    All figures are pass@1 (0 to 1) on the same held-out tasks.

    Args:
        first_row: of a policy that takes the first row, right or wrong.
        ceiling: of a policy that learned from right answers alone.
        after: of the trained policy.
        lift: the paired difference of the trained policy to where its training began.
    """
    missed = []
    if _low(ceiling) <= first_row + ABOVE_FIRST_ROW:
        missed.append(
            f"the ceiling, {shown(ceiling)}, is not {ABOVE_FIRST_ROW:g} above what the first row gets, "
            f"{first_row:.3f}: the cold start learned no skill"
        )
    if _low(lift) <= 0:
        missed.append(f"the lift, {shown(lift, '+')}, is not above 0: no effect was measured")
    if after.value < ceiling.value - BELOW_CEILING:
        missed.append(
            f"after training {after.value:.3f} is more than {BELOW_CEILING:g} below the ceiling, "
            f"{ceiling.value:.3f}: the bias is not undone"
        )
    return tuple(missed)


def missed_on_tasks(
    dataset: str,
    task_ids: Sequence[str],
    ceiling: Sequence[bool],
    before: Sequence[bool],
    after: Sequence[bool],
) -> tuple[str, ...]:
    """The same from the outcomes of single tasks, each over a database of its own.

    Args:
        dataset: the folder; the policy ``greedy``, which takes the first row, plays the tasks once.
        task_ids: the held-out tasks.
        ceiling: whether a policy that learned from right answers alone passed each of them,
        before: and the policy as its training began,
        after: and as it ended.
    """
    with TemporaryDirectory() as out:
        policy = PolicyConfig(spec="greedy")
        played = rollout(
            RolloutConfig(dataset=dataset, policy=policy, out=out, task_ids=tuple(sorted(task_ids)))
        )
    old, new = Ratio.mean(before), Ratio.mean(after)
    return missed_conditions(
        first_row=played.passed / len(task_ids),
        ceiling=pass_rate(ceiling),
        after=pass_rate(after),
        lift=_of_some(difference(old, new, range(len(task_ids)), BootstrapConfig())),
    )


def pass_rate(passed: Sequence[bool]) -> Estimate:
    """Share of the tasks that passed, each over a database of its own.

    Raises:
        ConfigError: if there is no task.
    """
    clusters = range(len(passed))
    return _of_some(estimate(Ratio.mean(passed), clusters, BootstrapConfig(), proportion=True))


def _of_some(found: Estimate | None) -> Estimate:
    if found is None:
        raise ConfigError("there are no held-out tasks", "make more variants")
    return found


def _low(estimate: Estimate) -> float:
    """The lower end; without an interval nothing is shown."""
    return -1.0 if estimate.low is None else estimate.low


def shown(estimate: Estimate, sign: str = "") -> str:
    """A figure with its interval, as text; ``sign`` is "+" for differences."""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:{sign}.3f} without an interval"
    return f"{estimate.value:{sign}.3f} ({estimate.low:{sign}.3f}..{estimate.high:{sign}.3f})"

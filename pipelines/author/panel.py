"""How often a panel of policies solves what an author made, and what the author is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

from pydantic import AfterValidator

from envgen.core.errors import ConfigError
from envgen.core.limits import Label, Real
from envgen.core.threads import over
from envgen.core.types import Difficulty, Record
from envgen.policies.budget import Budget
from envgen.policies.registry import PolicyConfig
from envgen.rollout.run import RolloutConfig, rollout
from envgen.store.dataset import Dataset
from envgen.store.runs import RunStore


def band(text: str) -> tuple[float, float]:
    """``"0.1..0.6"`` as a pair.

    Raises:
        ValueError: if it is no range of shares.
    """
    low, dots, high = text.partition("..")
    try:
        found = float(low), float(high)
    except ValueError:
        found = (-1.0, -1.0)
    if not dots or not 0 <= found[0] < found[1] <= 1:
        raise ValueError(f"write a range of pass rates such as 0.1..0.6, not {text[:40]!r}")
    return found


def _is_band(text: str) -> str:
    band(text)
    return text


Band = Annotated[Label, AfterValidator(_is_band)]


class PanelFigures(Record):
    """What a panel achieved."""

    rate: Real
    """Mean pass rate over tasks and policies."""
    levels: dict[int, Real]
    policies: dict[Label, Real]
    shortcut: Real | None
    """The best share of re-seeds that a simple player (first row, greedy, first fit) passes."""

    def distance(self, wanted: tuple[float, float]) -> float:
        """How far the rate is from a band; 0 within it."""
        return max(wanted[0] - self.rate, self.rate - wanted[1], 0.0)


def play(
    dataset: Dataset, panel: Sequence[PolicyConfig], episodes: int, out: Path, budget: Budget
) -> PanelFigures:
    """Let each policy of a panel play every task.

    Args:
        dataset: what is played.
        panel: who plays.
        episodes: of each policy, for each task.
        out: a folder for the runs.
        budget: of all models together; what the panel costs is charged to it.

    Raises:
        BudgetExceededError: if nothing is left.
        ConfigError: if a policy of the panel played nothing.
        PolicyError: if a model fails again and again.
    """
    rates: dict[str, dict[str, float]] = {}
    for number, policy in enumerate(panel):
        budget.check()
        left = None if budget.max_cost_usd is None else budget.max_cost_usd - budget.spent_usd
        config = RolloutConfig(
            dataset=str(dataset.path), policy=policy, out=str(out / str(number)), n=episodes,
            max_cost_usd=left, preflight=False,
        )  # fmt: skip
        summary = rollout(config, cancel=over())
        budget.spend(summary.cost_usd)
        with RunStore.read(out / str(number)) as store:
            counts = store.counts()
        rates[f"{number + 1}: {policy.spec}"] = {
            name: one.c / one.n for name, one in counts.items() if one.n
        }
    if not all(rates.values()):
        raise ConfigError("a policy of the panel played nothing", "play with it: envgen rollout")
    levels: dict[int, list[float]] = {}
    for of in rates.values():
        for name, rate in of.items():
            levels.setdefault(dataset.facts(name).level, []).append(rate)
    simple = [one.shortcuts.best for one in _difficulties(dataset) if one.shortcuts is not None]
    return PanelFigures(
        rate=fmean(rate for of in rates.values() for rate in of.values()),
        levels={level: fmean(found) for level, found in sorted(levels.items())},
        policies={name[:200]: fmean(of.values()) for name, of in rates.items()},
        shortcut=max(simple, default=None),
    )


def _difficulties(dataset: Dataset) -> list[Difficulty]:
    return [spec.difficulty for spec in dataset.tasks.values()]


def told(found: PanelFigures, wanted: tuple[float, float]) -> str:
    """What an author is told of a page that is too easy or too hard; empty: it is neither."""
    if found.distance(wanted) == 0:
        return ""
    levels = ", ".join(f"level {level}: {rate:.2f}" for level, rate in found.levels.items())
    players = ", ".join(f"{name[:60]}: {rate:.2f}" for name, rate in found.policies.items())
    lines = [
        f"All gates and the reader are content. Solvers pass {found.rate:.2f} of their episodes; "
        f"{wanted[0]:g} to {wanted[1]:g} is wanted. {levels}. {players}."
    ]
    if found.shortcut is not None:
        lines.append(f"The best simple player passes {found.shortcut:.2f} of re-drawn rows.")
    if found.rate > wanted[1]:
        lines.append(
            "Make tasks harder, the levels that are solved most first: couple the parts by a rule over all "
            "of them, rank or sum what must be looked up row by row, tighten what many answers meet, let "
            "higher levels ask for more items."
        )
    else:
        lines.append(
            "Make tasks easier: fewer items or rules at a level, fewer rows, looser bounds."
        )
    return "\n".join(lines)

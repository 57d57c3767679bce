"""Commands that make datasets of environments: generate general, variants, canaries."""

from __future__ import annotations

from typing import Any

from envgen.cli.command import Makes, Parallel, ReadsDataset, Runs, Trusts
from envgen.cli.console import remark, require
from envgen.cli.records import few
from envgen.cli.settings import Values
from envgen.core.errors import ConfigError
from envgen.core.limits import Label
from envgen.pipelines.canaries import CanaryConfig
from envgen.pipelines.general.generate import GenerateConfig
from envgen.pipelines.general.variants import VariantsConfig


def parse_levels(text: str) -> tuple[int, int]:
    """``"1..5"`` or ``"3"`` as a pair.

    Raises:
        ConfigError: if it is neither, or not within 1..10, or the second is below the first.
    """
    low, dots, high = text.partition("..")
    try:
        levels = int(low), int(high if dots else low)
    except ValueError:
        levels = (0, 0)
    if 1 <= levels[1] < levels[0] <= 10:
        raise ConfigError(f"{text!r} is a range that runs backwards", f"write {high}..{low}")
    if not 1 <= levels[0] <= levels[1] <= 10:
        hint = "levels are 1 (easy) to 10: write --level 3 or --level 1..5"
        raise ConfigError(f"{text!r} is no level", hint)
    return levels


class General(Parallel, Runs, GenerateConfig, Makes):
    """Synthesize <environment, tools, task, verifier> tuples, each proven by all gates.

    Needs no model. Stopped, the same command goes on where it was.
    """

    names = {"--category NAME": "categories", "--level LEVELS": "level"}
    examples = (
        "envgen generate general --out ds/",
        "envgen generate general --category trip_planning --level 1..5 --out ds/",
    )
    verb = "envgen.pipelines.general.generate:generate"

    level: Label | None = None
    """1 (easy) .. 10: one level, or a range such as 1..5, for min_level and max_level."""

    @classmethod
    def settle(cls, given: Values) -> Values:
        """A range of levels is its two bounds."""
        if (level := given.pop("level", None)) is None:
            return given
        low, high = parse_levels(str(level))
        return {**given, "min_level": low, "max_level": high}

    def check(self, summary: Any) -> None:
        """Fewer tasks than asked for are told."""
        require(summary.tasks, summary.asked, "tasks made; the reasons tell where drafts ended")


class Variants(Parallel, Trusts, VariantsConfig, ReadsDataset, Makes):
    """Make training episodes: proven tasks over new rows.

    Each variant has its own rows and re-bound parameters; its gold, verifier and an independent solver
    agree, the other gates are inherited. The dataset at --out holds the parents too.
    """

    examples = ("envgen variants ds/ --per-task 500 --seed 9 --out train/",)
    verb = "envgen.pipelines.general.variants:variants"

    def check(self, summary: Any) -> None:
        """Tell which tasks can't be re-seeded."""
        skipped = few(summary.skipped_parents)
        why = f"can't be re-seeded: {skipped}; " if skipped else ""
        why += f"{summary.rejected} re-seeds were rejected"
        require(summary.variants, summary.asked, "variants made", why)


class CanariesCommand(Trusts, CanaryConfig, ReadsDataset, Makes):
    """Make tasks that tell whether a policy cheats.

    Each is a task of DATASET whose verifier has a planted hole, or that can't be solved. `envgen eval`
    tells what a policy does on them.
    """

    names = {"--hole NAME": "holes"}
    examples = (
        "envgen canaries ds/ --out canaries/",
        "envgen canaries ds/ --variants 50 --out canaries/",
        "envgen canaries ds/ --hole empty-text --no-unsolvable --out c/",
    )
    verb = "envgen.pipelines.canaries:make_canaries"

    def check(self, summary: Any) -> None:
        """Tell of which tasks there is no canary."""
        for task_id, reason in summary.failed.items():
            remark(f"warning: no canary of {task_id}: {reason}")
        if bare := summary.without_hole:
            remark(f"warning: {len(bare)} tasks have no hole, no answer of theirs opens one")

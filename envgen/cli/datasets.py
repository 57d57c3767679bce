"""Commands that make datasets of environments: generate general, variants, canaries."""

from __future__ import annotations

from pathlib import Path

from envgen.cli.command import Command, Makes, Parallel, ReadsDataset, Runs, Trusts
from envgen.cli.console import heading, progress, remark, require, say, show_figures, show_rows
from envgen.cli.settings import Values
from envgen.core.errors import ConfigError
from envgen.core.limits import Label, Whole
from envgen.pipelines.canaries import CanaryConfig, make_canaries
from envgen.pipelines.general.authoring.tasks import tasks_from
from envgen.pipelines.general.domains import page_file
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.pipelines.general.variants import VariantsConfig, variants
from envgen.pipelines.general.words.prompt import prompt

_REASONS = 8
"""Reasons told where fewer tasks were made than asked for; ``--json`` has all."""


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

    names = {"--category NAME": "categories", "--page FILE": "pages", "--level LEVELS": "level"}
    examples = (
        "envgen generate general --out ds/",
        "envgen generate general --category trip_planning --level 1..5 --out ds/",
        "envgen page my.toml && envgen generate general --page my.toml --out ds/",
    )

    level: Label | None = None
    """1 (easy) .. 10: one level, or a range such as 1..5, for min_level and max_level."""

    @classmethod
    def settle(cls, given: Values) -> Values:
        """A range of levels is its two bounds."""
        if (level := given.pop("level", None)) is None:
            return given
        low, high = parse_levels(str(level))
        return {**given, "min_level": low, "max_level": high}

    def execute(self) -> None:
        """Generate, and tell what became of the drafts."""
        with progress("generating") as update:
            summary = generate(
                self.part(GenerateConfig),
                self.out,
                workers=self.workers,
                backend=self.backend,
                progress=update,
            )
        figures = {
            "environments": summary.environments,
            "proven tasks": summary.tasks,
            "drafts": summary.drafted,
            **{f"  ended at {gate}": n for gate, n in summary.rejected.items()},
            "seconds": f"{summary.seconds:.1f}",
            "tasks per second": f"{summary.tasks_per_second:.2f}",
        }
        show_figures(summary.path, figures, "n ")
        if summary.tasks < summary.asked:
            remark(f"warning: {summary.asked} tasks asked, {summary.tasks} made; drafts ended at:")
            for reason, n in list(summary.reasons.items())[:_REASONS]:
                remark(f"  {n} x {reason}")
        self.tell(summary)


class PageCommand(Command):
    """Check a domain's page, and show a task of each level.

    Every part is built and every step is tried. Nothing is generated, and nothing of the page is run.
    """

    places = {"FILE": "page"}
    examples = ("envgen page my.toml", "envgen page my.toml --seed 2 --json -")

    page: Path
    """The page, in TOML."""
    seed: Whole = 0

    def execute(self) -> None:
        """Show the prompts; an error names the part of the page and what to do."""
        domain = page_file(self.page)
        tasks, prompts = tasks_from(domain.text), []
        for level, (problem, _) in enumerate(tasks.rehearsed(self.seed), 1):
            text = prompt(problem, tasks.lexicon)
            prompts.append({"level": level, "policy": text.policy_text, "prompt": text.text})
            heading(f"{domain.id} level {level}")
            say("\n\n".join(part for part in (text.policy_text, text.text) if part))
        remark(f"{domain.id!r} is fine: {len(prompts)} levels, {len(domain.phrases)} phrases")
        self.tell({"id": domain.id, "key": domain.key, "levels": prompts})


class Variants(Parallel, Trusts, VariantsConfig, ReadsDataset, Makes):
    """Make training episodes: proven tasks over new rows.

    Each variant has its own rows and re-bound parameters; its gold, verifier and an independent solver
    agree, the other gates are inherited. The dataset at --out holds the parents too.
    """

    examples = ("envgen variants ds/ --per-task 500 --seed 9 --out train/",)

    def execute(self) -> None:
        """Make them, and tell how many."""
        path = self.opened().path
        with progress("variants") as update:
            summary = variants(
                self.part(VariantsConfig),
                path,
                self.out,
                workers=self.workers,
                backend=self.backend,
                unproven=self.unproven,
                trust=self.trust,
                progress=update,
            )
        figures = {
            "parents": summary.parents,
            "variants": summary.variants,
            "re-seeds rejected": summary.rejected,
            "megabytes": f"{summary.bytes / 1e6:.1f}",
            "seconds": f"{summary.seconds:.1f}",
            "variants per second": f"{summary.variants_per_second:.0f}",
        }
        show_figures(summary.path, figures, "n ")
        self.tell(summary)
        for reason, n in list(summary.reasons.items())[:3]:
            remark(f"  {n} x {reason}")
        skipped = ", ".join(summary.skipped_parents)
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

    def execute(self) -> None:
        """Make them, and tell which."""
        path = self.opened().path
        with progress("canaries") as update:
            summary = make_canaries(
                path,
                self.out,
                self.part(CanaryConfig),
                backend=self.backend,
                unproven=self.unproven,
                trust=self.trust,
                progress=update,
            )
        made = {
            **summary.holes,
            "unsolvable": summary.unsolvable,
            "variants of these": summary.variants,
        }
        show_rows(("canary", "tasks "), [(k, n) for k, n in made.items() if n], title=summary.path)
        for task_id, reason in summary.failed.items():
            remark(f"warning: no canary of {task_id}: {reason}")
        self.tell(summary)
        if bare := summary.without_hole:
            why = "tasks have no hole, no answer of theirs opens one"
            remark(f"warning: {len(bare)} {why}: {', '.join(bare)}")

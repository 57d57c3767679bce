"""Make environments and tasks that are proven by all gates; check the page of a domain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.cli.command import Command, Makes, Parallel, Runs
from envgen.cli.console import OnProgress, fail, heading, remark, require, say
from envgen.cli.records import write_json
from envgen.cli.settings import Values
from envgen.core.errors import ConfigError, TargetsMissedError
from envgen.core.limits import Label, Whole
from envgen.pipelines.author.config import AuthorConfig
from envgen.pipelines.general.generate import GenerateConfig


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
        raise ConfigError(f"{text!r} is not a level", hint)
    return levels


def _range(levels: range) -> str:
    return f"{levels[0]}..{levels[-1]}" if len(levels) > 1 else str(levels[0])


class General(Parallel, Runs, GenerateConfig, AuthorConfig, Makes):
    """Synthesize <environment, tools, task, verifier> tuples, each proven by all gates.

    Needs no model. With --author, a model writes the pages of any category (docs/models.md), and the same
    gates prove them. Stopped, the same command goes on where it was.
    """

    names = {
        "--category NAME": "categories",
        "--page FILE": "pages",
        "--level LEVELS": "level",
        "--option NAME=VALUE": "options",
    }
    hidden = frozenset(("min_level", "max_level", "topics"))
    examples = (
        "envgen generate general --out ds/",
        "envgen generate general --category trip_planning --level 1..5 --out ds/",
        "envgen generate general --page my.toml --out ds/",
        "envgen generate general --level 6..8 --max-shortcut 0.1 --out hard/",
        'envgen generate general --author SPEC --category "booking a ferry" -o f/',
        "envgen generate general --author SPEC --sample-categories 20 -o many/",
    )
    verb = "envgen.pipelines.general.generate:generate"

    level: Label | None = None
    """1 (easy) .. 10: one level, or a range. None: 1..5, or min_level..max_level of --config."""

    topics: tuple[Label, ...] = ()
    """Categories that a model writes pages for."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    """What all models together may cost; they need a price."""
    concurrency: int = Field(default=8, ge=1, le=1_024)
    """Categories that models work on at the same time."""
    preflight: bool = True
    """Ask each model's server one small thing before the work begins."""

    @classmethod
    def settle(cls, given: Values) -> None:
        """A range of levels is its two bounds; with an author, categories are whatever one can name."""
        if given.get("author"):
            given["topics"] = given.pop("categories", ())
        if (level := given.pop("level", None)) is not None:
            given["min_level"], given["max_level"] = parse_levels(str(level))

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Warn where there are fewer environments than levels."""
        if self.left_out:
            count, levels = self.environments, self.levels
            have = f"{count} environment{'s have levels' if count > 1 else ' has level'}"
            some, every = _range(levels[:count]), _range(levels)
            remark(f"warning: {have} {some} of {every}; --environments {len(levels)} has all")
        return {}

    def call(self, more: Mapping[str, Any]) -> Any:
        """Generate from the pages of the package, or let a model write some first."""
        if not self.author:
            if self.sample_categories or self.categories_file or self.reviewer:
                raise ConfigError("a model writes pages of such categories", "--author SPEC")
            return super().call(more)
        from envgen.pipelines.author.generate import chosen, estimate, generate_authored

        if self.pages:
            raise ConfigError("--page and --author exclude each other", "drop one of them")
        config = AuthorConfig.model_validate(
            {name: getattr(self, name) for name in AuthorConfig.model_fields}
        )
        making = {name: getattr(self, name) for name in GenerateConfig.model_fields}
        found = chosen(config, self.topics, self.seed)
        need = estimate(config, len(found))
        cost = f", {need.cost_usd:.2f} USD" if need.cost_usd else ""
        remark(f"{len(found)} categories need at most about {need.prompt_tokens:,} tokens{cost}")
        return generate_authored(
            config, GenerateConfig.model_validate(making), found, self.out,
            max_cost_usd=self.max_cost_usd, concurrency=self.concurrency, check=self.preflight,
            workers=self.workers, backend=self.backend, progress=more["progress"],
        )  # fmt: skip

    def execute(self) -> None:
        """Targets that nothing reaches are a check that failed, not a wrong command."""
        try:
            super().execute()
        except TargetsMissedError as error:
            remark(f"error: {error}")
            remark(f"hint: {error.hint}")
            fail()

    def tell(self, summary: Any) -> None:
        """Report when fewer tasks were made than asked for; fail if targets were missed."""
        super().tell(summary)
        require(summary.tasks, summary.asked, "tasks made", summary.short)
        if summary.nearest is not None:
            remark(f"error: too few tasks reach the targets; the nearest miss: {summary.nearest}")
            fail()


class PageCommand(Command):
    """Check a domain's page, and show a task of each level.

    Every part is built, every step is tried, and each task is compiled. Nothing is generated, and
    nothing of the page is run.
    """

    places = {"FILE": "page"}
    examples = ("envgen page my.toml", "envgen page my.toml --seed 2 --json -")

    page: Path
    """The page, in TOML."""
    seed: Whole = 0

    def execute(self) -> None:
        """Show the prompts; an error names the part of the page and what to do."""
        from envgen.pipelines.general.domains import page_file
        from envgen.pipelines.general.rehearse import DEAR, rehearse

        domain, prompts, costs = page_file(self.page), [], []
        for one in rehearse(domain, self.seed):
            prompts.append(one._asdict())
            heading(f"{domain.id} level {one.level}")
            say("\n\n".join(part for part in (one.policy, one.prompt) if part))
            costs += [f"level {one.level}: {one.cost}"] if one.cost else []
        if costs:
            remark("\n".join([*costs, DEAR]))
        remark(f"{domain.id!r} is fine: {len(prompts)} levels, {len(domain.phrases)} phrases")
        write_json(self.figures, {"id": domain.id, "key": domain.key, "levels": prompts})

"""Environments that a model writes (DeepSeek-V3.2, section 3.2.3): of each category a page, proven and read.

For each category an author writes a page (``page_agent.py``); the gates of the general family prove a task of
each of its levels, and a reviewer reads them (``review.py``). Pages that pass all of it are then what
``generate`` makes a dataset from, as it does from a page by hand: no gate knows who wrote a page.

What models said is recorded in ``OUT.calls``, what became of each category in ``OUT.pages``: a run that was
stopped goes on, and pays nothing twice.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue, ValidationError

from envgen.core.canonical import content_hash
from envgen.core.errors import ConfigError, PipelineError
from envgen.core.limits import Count, Label, Text, fault
from envgen.core.types import Usage
from envgen.pipelines.author.authoring import Authoring, CategoryOutcome
from envgen.pipelines.author.code_folder import write_code
from envgen.pipelines.author.config import AuthorConfig
from envgen.pipelines.author.taxonomy import Category, categories, load_categories, sample
from envgen.pipelines.general.authoring.page_files import read_page
from envgen.pipelines.general.generate import GenerateConfig, GenerateSummary, generate
from envgen.pipelines.packed.pack import pack
from envgen.policies.budget import Budget, estimated_usage
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.dataset import Dataset
from envgen.store.subset import copy_datasets

Progress = Callable[[int, int, str], None]
_TOKENS = 1_500_000
"""Prompt tokens of a category, at most about: an author's conversation is sent again with each turn."""


class AuthorSummary(GenerateSummary):
    """The outcome of a run with a model, with what it cost."""

    categories: Count
    kept: Count
    """Categories with a page that was proven and read."""
    dropped: dict[Label, Count]
    """The others, by why."""
    cannot: dict[Label, Count]
    """What authors say that the page language can't say."""
    usage: Usage
    stopped: Text = ""


def chosen(config: AuthorConfig, names: Sequence[str], seed: int) -> list[Category]:
    """The categories of a run: those that are named, or a draw.

    Raises:
        ConfigError: if there are none, or one can't be one.
    """
    known = (
        categories() if config.categories_file is None else load_categories(config.categories_file)
    )
    if config.sample_categories is not None:
        if names:
            raise ConfigError("--category and --sample-categories exclude each other", "drop one")
        return list(sample(known, config.sample_categories, seed))
    if not names:
        raise ConfigError(
            "nothing says what the environments are about",
            "--category NAME or --sample-categories N",
        )
    return [_named(name, known) for name in names]


def _named(name: str, known: Sequence[Category]) -> Category:
    """The category of this id or name, or a new one."""
    for one in known:
        if name in (one.id, one.name):
            return one
    slug = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40].strip("-")
    try:
        return Category(id=slug or f"category-{content_hash(name)[:8]}", name=name)
    except ValidationError as error:
        raise ConfigError(
            f"{name[:60]!r} is no category: {fault(error)}", "name it in a line"
        ) from None


def estimate(config: AuthorConfig, count: int) -> Usage:
    """About what so many categories need at most.

    Raises:
        ConfigError: if the option ``price`` is none.
    """
    prompt = count * min(_TOKENS, config.max_tokens_per_category or _TOKENS)
    return estimated_usage(prompt, config.options)


def generate_authored(
    config: AuthorConfig,
    making: GenerateConfig,
    found: Sequence[Category],
    out: str | Path,
    *,
    max_cost_usd: float | None = None,
    concurrency: int = 8,
    check: bool = True,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    progress: Progress | None = None,
) -> AuthorSummary:
    """Let models write pages, and generate a dataset at ``out`` from those that hold.

    Args:
        config: who writes and reads.
        making: what to make of the pages: environments, tasks, levels, targets, seed.
        found: the categories.
        out: the dataset folder; it must not exist.
        max_cost_usd: what all models together may cost.
        concurrency: categories worked on at the same time.
        check: send each model server one small request first.
        workers: processes that prove; default: one per core.
        backend: the sandbox that gates run generated code in.
        progress: called as categories end and environments are proven.

    Raises:
        ConfigError: if ``out`` exists, or one category may cost more than all.
        PipelineError: if no page was kept; the hint tells why.
        PolicyError: if a model fails again and again, and nothing was kept.
    """
    out = Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    one = estimate(config, 1).cost_usd
    if max_cost_usd is not None and one > max_cost_usd:
        raise ConfigError(
            f"one category may cost {one:.2f} USD, and {max_cost_usd:g} USD are the most",
            "raise --max-cost, or bound it: --max-tokens-per-category",
        )
    work = Authoring(config, making, out, Budget(max_cost_usd), check, workers, backend)
    outcomes = work.all(found, concurrency, progress)
    kept = [one for one in outcomes if one.kept]
    dropped = Counter(one.why[:200] for one in outcomes if not one.kept)
    if not kept:
        if work.fatal is not None:
            raise work.fatal
        why = "; ".join(f"{reason} ({n})" for reason, n in dropped.most_common(6))
        raise PipelineError("nothing was kept", work.stopped or why)
    lineage: dict[str, JsonValue] = {"authored": [_lineage(one) for one in outcomes]}
    if config.form == "code":
        summary = _packed(making, kept, out, backend, lineage)
    else:
        pages = tuple(read_page(one.run.page or "", "") for one in kept if one.run is not None)
        summary = generate(
            making.model_copy(update={"pages": pages, "categories": ()}), out,
            workers=workers, backend=backend, progress=progress, lineage=lineage,
        )  # fmt: skip
    return AuthorSummary(
        **summary.model_dump(), categories=len(outcomes), kept=len(kept), dropped=dict(dropped),
        cannot=dict(Counter(said[:200] for one in kept if one.run for said in one.run.cannot)),
        usage=sum((one.usage for one in outcomes), Usage()), stopped=work.stopped,
    )  # fmt: skip


def _packed(
    making: GenerateConfig, kept: Sequence[CategoryOutcome], out: Path, backend: WorkerBackend,
    lineage: Mapping[str, JsonValue],
) -> GenerateSummary:  # fmt: skip
    """The dataset of environments in code, each packed and proven once more from its files."""
    started = time.monotonic()
    made: list[Dataset] = []
    with tempfile.TemporaryDirectory(prefix="envgen-author-") as scratch:
        for one in kept:
            assert one.code is not None
            folder = Path(scratch) / one.category.id
            write_code(folder, one.category, one.code)
            summary = pack(folder, folder.with_name(f"{folder.name}.ds"), backend=backend)
            if not summary.written:
                faults = "; ".join(
                    f"{g.gate}: {g.reason}" for t in summary.tasks for g in t.failures
                )
                raise PipelineError(f"{one.category.id} is not proven again", faults)
            made.append(Dataset.open(summary.path))
        copy_datasets(made, out, name=making.name, funnel={"tasks": len(made), **lineage})
    seconds = time.monotonic() - started
    return GenerateSummary(
        path=str(out), environments=len(made), tasks=len(made), asked=len(made), drafted=len(made),
        rejected={}, seconds=seconds, proving_seconds=seconds, difficulty_seconds=0.0,
        tasks_per_second=len(made) / seconds, resumed=0,
    )  # fmt: skip


def _lineage(one: CategoryOutcome) -> dict[str, JsonValue]:
    """What a dataset's manifest says of a category: how its page came about, and what it cost."""
    run, code = one.run, one.code
    rounds = run.rounds if run else code.rounds if code else ()
    return {
        "category": one.category.id,
        "kept": one.kept,
        "why": one.why[:500],
        "rounds": [
            {"stage": step.stage, "finding": step.finding[:500], "rate": step.rate} for step in rounds
        ],
        "rate": run.rate if run else code.rate if code else None,
        "amendments": list(code.amendments) if code else [],
        "augmented": list(code.augmented) if code else [],
        "cannot": [] if run is None else list(run.cannot),
        "sources": [] if run is None else [list(pair) for pair in run.sources],
        "tokens": one.usage.prompt_tokens + one.usage.completion_tokens,
        "cost_usd": one.usage.cost_usd,
    }  # fmt: skip

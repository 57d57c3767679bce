"""``envgen generate``: make datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from envgen.cli import code_options as o
from envgen.cli.console import out as stdout
from envgen.cli.console import progress, remark, table, write_json
from envgen.cli.options import (
    Backend,
    Json,
    Out,
    PolicyOptions,
    Preflight,
    Seed,
    Workers,
    examples,
    parse_options,
)
from envgen.cli.outcome import require
from envgen.core.code_types import CodeLanguage
from envgen.core.errors import ConfigError

if TYPE_CHECKING:
    from envgen.pipelines.code.generate import CodeSummary

_REASONS = 8
"""Reasons told where fewer tasks were made than asked for; ``--json`` has all."""
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
GENERAL_EXAMPLES = examples(
    "envgen generate general --out ds/",
    "envgen generate general --category trip_planning --environments 5 --level 1..5 --out ds/",
)

CODE_EXAMPLES = examples(
    "envgen generate code --clone PATH --repo owner/name --issues issues.jsonl --out code/",
    "envgen generate code --repo owner/name --since 2023-01-01 --out code/",
    "envgen generate code --repos repos.txt --policy openai:MODEL@URL --max-cost 5 --out code/",
    "envgen generate code --instances mined.jsonl --clones DIR --workers 2 --out code/",
)


@app.callback()
def _group() -> None:
    """Generate environment datasets."""


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


@app.command("general", epilog=GENERAL_EXAMPLES)
def general(
    out: Out,
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="trip_planning, order_management or meeting_scheduling; repeatable. Default: all.",
        ),
    ] = None,
    environments: Annotated[int, typer.Option(min=1, metavar="N", help="Databases to make.")] = 6,
    tasks_per_environment: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most tasks over one database.")
    ] = 2,
    level: Annotated[
        str, typer.Option(metavar="LEVELS", help="1 (easy) .. 10: one level or a range.")
    ] = "1..5",
    seed: Seed = 0,
    name: Annotated[str, typer.Option(metavar="ID", help="The dataset's name.")] = "general",
    workers: Workers = None,
    backend: Backend = "auto",
    json: Json = None,
) -> None:
    """Synthesize <environment, tools, task, verifier> tuples, each proven by all gates.

    Needs no model. Stopped, the same command goes on where it was.
    """
    from envgen.pipelines.general.generate import GenerateConfig
    from envgen.pipelines.general.generate import generate as make

    low, high = parse_levels(level)
    config = GenerateConfig(
        categories=tuple(category or ()),
        environments=environments,
        tasks_per_environment=tasks_per_environment,
        min_level=low,
        max_level=high,
        seed=seed,
        name=name,
    )
    with progress("generating") as update:
        summary = make(config, out, workers=workers, backend=backend, progress=update)
    shown = table("what", "n ", title=str(summary.path))
    shown.add_row("environments", str(summary.environments))
    shown.add_row("proven tasks", str(summary.tasks))
    shown.add_row("drafts", str(summary.drafted))
    for gate, n in summary.rejected.items():
        shown.add_row(f"  ended at {gate}", str(n))
    shown.add_row("seconds", f"{summary.seconds:.1f}")
    shown.add_row("tasks per second", f"{summary.tasks_per_second:.2f}")
    stdout.print(shown)
    if summary.tasks < summary.asked:
        remark(f"warning: {summary.asked} tasks asked, {summary.tasks} made; drafts ended at:")
        for reason, n in list(summary.reasons.items())[:_REASONS]:
            remark(f"  {n} x {reason}")
    write_json(json, summary)


@app.command("code", epilog=CODE_EXAMPLES)
def code(
    out: Out,
    clone: o.Clone = None,
    repo: o.RepoName = None,
    repos: o.Repos = None,
    repositories: o.Repositories = None,
    token_env: o.TokenEnv = "GITHUB_TOKEN",
    api: o.Api = None,
    policy: o.Policy = None,
    votes: o.Votes = 3,
    max_cost: o.MaxCost = None,
    concurrency: o.Concurrency = 8,
    option: PolicyOptions = None,
    preflight: Preflight = True,
    issues: o.Issues = None,
    instances: o.Instances = None,
    clones: o.Clones = None,
    language: o.LanguageName = None,
    since: o.Since = None,
    until: o.Until = None,
    limit: o.Limit = None,
    most: o.Most = None,
    repeats: o.Repeats = 3,
    more: o.More = 10,
    only_touched: o.OnlyTouched = False,
    layer: o.Layer = "host",
    certificates: o.Certificates = None,
    seed: Seed = 0,
    name: o.Name = "code",
    workers: o.Proving = 1,
    backend: o.CodeBackend = "auto",
    downloads: o.Downloads = None,
    allow_missing: o.AllowMissing = False,
    json: Json = None,
) -> None:
    """Turn issue-PR pairs into tasks that are proven by the repository's own tests.

    Each instance is built and tested before and after its change, several times; it is kept if the change
    mends tests and breaks none. Stopped, the same command goes on where it was.
    """
    from envgen.cli import code_sources
    from envgen.core.environ import cache_folder
    from envgen.environments.code_hosts import host_certificates, host_reach
    from envgen.pipelines.code.clones import jobs_of
    from envgen.pipelines.code.gather import gather
    from envgen.pipelines.code.generate import CodeConfig, generate_code
    from envgen.pipelines.code.mine import MineConfig
    from envgen.pipelines.code.prove import BuildConfig, Job
    from envgen.pipelines.code.source import read_names
    from envgen.pipelines.code.validation import ValidateConfig
    from envgen.policies.registry import PolicyConfig

    if clone is not None and repo is None:
        raise ConfigError("--clone needs --repo", "write --repo owner/name")
    wanted = {"language": known_language(language), "since": since, "until": until, "limit": limit}
    mine = {"repo": repo or "any/any", **wanted}
    named = read_names(repos) if repos else ((repo,) if repo and not clone else ())
    jobs: Sequence[Job] = jobs_of(instances, clones) if instances else ()
    judges = None
    if policy:
        player = PolicyConfig(spec=policy, options=parse_options(option))
        judges = code_sources.judges(player, votes, max_cost, concurrency, out, preflight=preflight)
    mined: dict[str, int] = {}
    if not instances and (named or policy):
        sources = (
            code_sources.fetched(named, repositories, api, token_env, since)
            if named
            else code_sources.local(clone, repo, issues or ())
        )
        jobs, mined = gather(sources, MineConfig.model_validate(mine), judges)
        clone = None
    config = CodeConfig.model_validate(
        {
            "mine": mine if not jobs and clone is not None else None,
            "validate": ValidateConfig(repeats=repeats, more=more, only_touched=only_touched),
            "most": most,
            "seed": seed,
            "name": name,
            "layer": layer,
        }
    )
    with progress("proving") as update:
        summary = generate_code(
            config,
            out,
            clone=clone,
            texts=issues or (),
            jobs=jobs,
            mined=mined,
            workers=workers,
            build=BuildConfig(
                backend=backend,
                layer=layer,
                certificates=certificates or host_certificates(),
                reach=host_reach(),
                downloads=downloads or cache_folder() / "downloads",
                allow_missing=allow_missing,
            ),
            progress=update,
            helper=judges.policy if judges else None,
        )
    _tell(summary)
    write_json(json, summary)
    asked = most if most is not None else summary.instances
    require(summary.tasks, asked, "tasks proven", f"{out}.outcomes.jsonl tells why of each")


def known_language(language: str | None) -> CodeLanguage | None:
    """The language, if it is one of ours. Raises ConfigError."""
    known = get_args(CodeLanguage)
    if language is not None and language not in known:
        raise ConfigError(f"unknown language {language!r}", f"choose from: {', '.join(known)}")
    return cast("CodeLanguage | None", language)


def _tell(summary: CodeSummary) -> None:
    shown = table("what", "n ", title=summary.path)
    shown.add_row("proven tasks", str(summary.tasks))
    shown.add_row("environments", str(summary.environments))
    shown.add_row("instances", str(summary.instances))
    for reason, n in summary.rejected.items():
        shown.add_row(f"  rejected: {reason}", str(n))
    for reason, n in summary.mined.items():
        shown.add_row(f"changes: {reason}"[:60], str(n))
    shown.add_row("seconds", f"{summary.seconds:.1f}")
    stdout.print(shown)

"""``envgen generate``: make datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from envgen.cli.console import out as stdout
from envgen.cli.console import progress, table, write_json
from envgen.cli.options import Backend, Json, Out, Seed, Workers, examples
from envgen.core.code_types import CodeLanguage
from envgen.core.errors import ConfigError

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
        ConfigError: if it is neither, or not within 1..10.
    """
    low, dots, high = text.partition("..")
    try:
        levels = int(low), int(high if dots else low)
    except ValueError:
        levels = (0, 0)
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
        shown.add_row(f"  rejected by {gate}", str(n))
    shown.add_row("seconds", f"{summary.seconds:.1f}")
    shown.add_row("tasks per second", f"{summary.tasks_per_second:.2f}")
    stdout.print(shown)
    write_json(json, summary)


@app.command("code", epilog=CODE_EXAMPLES)
def code(
    out: Out,
    clone: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A clone to mine, bare or with a checkout.")
    ] = None,
    repo: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="What the clone is a clone of; without --clone it is fetched from GitHub.",
        ),
    ] = None,
    repos: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Repositories to fetch from GitHub, one a line."),
    ] = None,
    repositories: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where fetched repositories are kept. Default: envgen's cache."
        ),
    ] = None,
    token_env: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable of the GitHub token.")
    ] = "GITHUB_TOKEN",
    api: Annotated[
        str | None, typer.Option(metavar="URL", help="For GitHub Enterprise: https://HOST/api/v3.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="A model that judges instances, and writes statements (openai:MODEL@URL).",
        ),
    ] = None,
    votes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Votes of the policy on an instance.")
    ] = 3,
    max_cost: Annotated[
        float | None, typer.Option(min=0.0, metavar="USD", help="What the policy may cost.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="N", help="Instances judged at the same time.")
    ] = 8,
    issues: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Issues and pull requests, JSON lines; repeatable."),
    ] = None,
    instances: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Instances, JSON lines, instead of mining; repeatable."),
    ] = None,
    clones: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the clones of the instances are.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: what most files are written in.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Mine what landed on this day or later.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="Mine what landed before this day.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most instances to try of a clone.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after so many proven tasks.")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of each state of an instance.")
    ] = 3,
    more: Annotated[
        int, typer.Option(min=0, metavar="N", help="Further runs of what would be kept.")
    ] = 10,
    only_touched: Annotated[
        bool,
        typer.Option("--only-touched", help="Run only the test files that the test patch touches."),
    ] = False,
    layer: Annotated[
        str, typer.Option(metavar="NAME", help="The language layer (`envgen images list`).")
    ] = "host",
    certificates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="PEM bundle that installs trust. Default: SSL_CERT_FILE."
        ),
    ] = None,
    seed: Seed = 0,
    name: Annotated[str, typer.Option(metavar="ID", help="The dataset's name.")] = "code",
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Instances proven at the same time.")
    ] = 1,
    backend: Annotated[
        Literal["auto", "bubblewrap", "docker"],
        typer.Option(metavar="NAME", help="Where repositories are built and tested."),
    ] = "auto",
    downloads: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where installs keep what they fetch, for each repository. Default: envgen's cache.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Leave out files that a partial clone lacks."),
    ] = False,
    json: Json = None,
) -> None:
    """Turn issue-PR pairs into tasks that are proven by the repository's own tests.

    Each instance is built and tested before and after its change, several times; it is kept if the change
    mends tests and breaks none. Stopped, the same command goes on where it was.
    """
    from envgen.cli import code_sources
    from envgen.core.environ import cache_folder
    from envgen.environments.code_hosts import host_certificates
    from envgen.pipelines.code.clones import jobs_of
    from envgen.pipelines.code.gather import gather
    from envgen.pipelines.code.generate import CodeConfig, generate_code
    from envgen.pipelines.code.mine import MineConfig
    from envgen.pipelines.code.prove import BuildConfig, Job
    from envgen.pipelines.code.source import read_names
    from envgen.pipelines.code.validation import ValidateConfig

    if language is not None and language not in get_args(CodeLanguage):
        raise ConfigError(
            f"unknown language {language!r}", f"choose from: {', '.join(get_args(CodeLanguage))}"
        )
    if clone is not None and repo is None:
        raise ConfigError("--clone needs --repo", "write --repo owner/name")
    wanted = {"language": language, "since": since, "until": until, "limit": limit}
    mine = {"repo": repo or "any/any", **wanted}
    named = read_names(repos) if repos else ((repo,) if repo and not clone else ())
    jobs: Sequence[Job] = jobs_of(instances, clones) if instances else ()
    judges = code_sources.judges(policy, votes, max_cost, concurrency, out) if policy else None
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
                downloads=downloads or cache_folder() / "downloads",
                allow_missing=allow_missing,
            ),
            progress=update,
            helper=judges.policy if judges else None,
        )
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
    write_json(json, summary)

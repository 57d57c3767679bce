"""What the options of ``envgen generate code`` name: repositories to mine, and who judges instances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envgen.cli.console import remark
from envgen.core.environ import cache_folder, secret
from envgen.core.errors import ConfigError
from envgen.pipelines.code.github import GitHub, GitHubConfig
from envgen.pipelines.code.judge import JudgeConfig
from envgen.pipelines.code.judges import Judges
from envgen.pipelines.code.source import Refused, Source, fetch_sources
from envgen.policies.budget import Budget
from envgen.policies.preflight import preflight as ask_server
from envgen.policies.registry import PolicyConfig, parse_policy


def local(clone: Path | None, repo: str | None, issues: Sequence[Path]) -> list[Source]:
    """The clone that the user has.

    Raises:
        ConfigError: if none is named.
    """
    if clone is None or repo is None:
        raise ConfigError("nothing to mine is named", "write --clone and --repo, or --repos FILE")
    return [Source(repo, clone, tuple(issues))]


def fetched(
    names: Sequence[str], folder: Path | None, api: str | None, token_env: str, since: str | None
) -> list[Source]:
    """The named repositories, fetched; those that can't be had are told of and left out.

    Raises:
        ConfigError: if none can be had.
    """
    config = GitHubConfig(api=api) if api else GitHubConfig()
    folder = folder or cache_folder() / "repositories"
    found: list[Source] = []
    refused: list[Refused] = []
    with GitHub(config, token=secret(token_env), cache=folder / ".answers") as client:
        for one in fetch_sources(client, names, folder, since=since, progress=remark):
            if isinstance(one, Source):
                found.append(one)
            else:
                remark(f"{one.repo} is left out: {one.reason}")
                refused.append(one)
    if not found:
        told = "; ".join(f"{one.repo}: {one.reason}" for one in refused)
        raise ConfigError("no repository can be mined", told)
    return found


def judges(
    player: PolicyConfig,
    votes: int,
    max_cost: float | None,
    concurrency: int,
    out: Path,
    *,
    preflight: bool,
) -> Judges:
    """Who judges instances; what is said is kept beside the dataset, so that a stopped run goes on."""
    path = out.with_name(f"{out.name}.opinions.jsonl")
    policy = parse_policy(player, budget=Budget(max_cost))
    config = JudgeConfig(votes=votes)
    if preflight:
        ask_server(policy, config.sampling, tools=False)
    return Judges(policy, path, config, concurrency=concurrency)

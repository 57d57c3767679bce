"""Commands about repositories: generate code, import code, try-tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.cli.command import Command, Makes
from envgen.cli.console import OnProgress, fail, remark, require
from envgen.cli.settings import Values
from envgen.core.code_types import CodeLanguage
from envgen.core.environ import cache_folder, secret
from envgen.core.errors import ConfigError
from envgen.core.limits import Line, Revision
from envgen.pipelines.code.generate import CodeConfig
from envgen.pipelines.code.github import GitHub, GitHubConfig
from envgen.pipelines.code.import_records import ImportConfig
from envgen.pipelines.code.judge import JudgeConfig
from envgen.pipelines.code.judges import Judges
from envgen.pipelines.code.mine import MineConfig
from envgen.pipelines.code.prove import BuildConfig
from envgen.pipelines.code.source import Source, fetch_sources, read_names
from envgen.policies.registry import PolicyConfig

NO_REPOSITORY = "any/any"
"""What is mined where ``--repos`` or ``--instances`` name it."""


class Builds(Command):
    """A command that builds repositories and runs their tests."""

    build: BuildConfig = BuildConfig()

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """How workspaces are built, with what this machine says of itself."""
        from envgen.environments.code_hosts import host_certificates, host_reach

        found = {
            "certificates": self.build.certificates or host_certificates(),
            "reach": self.build.reach or host_reach(),
            "downloads": self.build.downloads or cache_folder() / "downloads",
        }
        return {"build": self.build.model_copy(update=found)}


class Proves(Builds, Makes):
    """A command that makes a dataset of instances."""

    workers: int = Field(default=1, ge=1)
    """Instances proven at the same time."""


class Code(CodeConfig, Proves):
    """Turn issue-PR pairs into tasks that are proven by the repository's own tests.

    Each instance is built and tested before and after its change, several times; it is kept if the change
    mends tests and breaks none. Stopped, the same command goes on where it was.
    """

    names = {
        "--repo OWNER/NAME": "mine.repo",
        "--language": "mine.language",
        "--since DATE": "mine.since",
        "--until DATE": "mine.until",
        "--limit": "mine.limit",
        "--api URL": "github.api",
        "--votes": "judge.votes",
        "--issues FILE": "issues",
        "--instances FILE": "instances",
        "--repos FILE": "repos",
    }
    examples = (
        "envgen generate code --clone PATH --repo owner/name --out code/",
        "envgen generate code --repo owner/name --since 2023-01-01 --out code/",
        "envgen generate code --repos repos.txt --policy openai:MODEL@URL -o code/",
        "envgen generate code --instances mined.jsonl --clones DIR --out code/",
    )
    verb = "envgen.pipelines.code.generate:generate_code"

    clone: Path | None = None
    """A clone to mine, bare or with a checkout; needs --repo. None: --repo is fetched from GitHub."""
    repos: Path | None = None
    """Repositories to fetch from GitHub, one a line."""
    repositories: Path | None = None
    """Where fetched repositories are kept. None: envgen's cache."""
    token_env: Line = "GITHUB_TOKEN"
    """Environment variable of the GitHub token."""
    github: GitHubConfig = GitHubConfig()
    issues: tuple[Path, ...] = ()
    """Issues and pull requests, JSON lines."""
    instances: tuple[Path, ...] = ()
    """Instances, JSON lines, instead of mining."""
    clones: Path | None = None
    """Where the clones of the instances are."""
    policy: PolicyConfig | None = None
    judge: JudgeConfig = JudgeConfig()
    max_cost_usd: float | None = Field(default=None, ge=0)
    """What the policy may cost."""
    concurrency: int = Field(default=8, ge=1)
    """Instances judged at the same time."""
    preflight: bool = True
    """Ask the policy's server one small thing before the work begins."""

    @classmethod
    def settle(cls, given: Values) -> None:
        """What is mined has a name, and the dataset notes the layer that it was built with."""
        mine = given["mine"] = given.get("mine") or {}
        if given.get("clone") and not mine.get("repo"):
            raise ConfigError("--clone needs --repo", "write --repo owner/name")
        if layer := (given.get("build") or {}).get("layer"):
            given["layer"] = layer
        mine.setdefault("repo", NO_REPOSITORY)

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """The instances: from files, from repositories that are fetched, or mined from the clone."""
        from envgen.pipelines.code.clones import jobs_of
        from envgen.pipelines.code.gather import gather

        judges, clone = self._judges(), self.clone
        found: dict[str, Any] = {"texts": self.issues, "helper": judges and judges.policy}
        if self.instances:
            found["jobs"] = jobs_of(self.instances, self.clones)
        elif sources := self._sources():
            found["jobs"], found["mined"] = gather(sources, self._mine(), judges)
            clone = None
        mine = self.mine if clone is not None and not found.get("jobs") else None
        config = self.config().model_copy(update={"mine": mine})
        return {**super().inputs(update), **found, "clone": clone, "config": config}

    def tell(self, summary: Any) -> None:
        """Fewer tasks than instances are told."""
        super().tell(summary)
        asked = self.most if self.most is not None else summary.instances
        why = f"{self.out}.outcomes.jsonl tells why of each"
        require(summary.tasks, asked, "tasks proven", why)

    def _mine(self) -> MineConfig:
        return self.mine or MineConfig(repo=NO_REPOSITORY)

    def _judges(self) -> Judges | None:
        """Who judges instances; what is said is kept beside the dataset, so that a stopped run goes on."""
        if self.policy is None:
            return None
        from envgen.policies.budget import Budget
        from envgen.policies.preflight import preflight
        from envgen.policies.registry import parse_policy

        policy = parse_policy(self.policy, budget=Budget(self.max_cost_usd))
        if self.preflight:
            preflight(policy, self.judge.sampling, tools=False)
        path = self.out.with_name(f"{self.out.name}.opinions.jsonl")
        return Judges(policy, path, self.judge, concurrency=self.concurrency)

    def _sources(self) -> list[Source]:
        """Repositories to gather instances from; none where a clone is mined without a judge."""
        repo = self._mine().repo
        named = read_names(self.repos) if self.repos else ()
        if not named and repo != NO_REPOSITORY and self.clone is None:
            named = (repo,)
        if named:
            return self._fetched(named)
        if self.policy is None:
            return []
        if self.clone is None:
            hint = "write --clone and --repo, or --repos FILE"
            raise ConfigError("nothing to mine is named", hint)
        return [Source(repo, self.clone, self.issues)]

    def _fetched(self, names: Sequence[str]) -> list[Source]:
        """The named repositories, fetched; those that can't be had are told of and left out.

        Raises:
            ConfigError: if none can be had.
        """
        folder = self.repositories or cache_folder() / "repositories"
        token, cache = secret(self.token_env), folder / ".answers"
        with GitHub(self.github, token=token, cache=cache) as client:
            since = self._mine().since
            tried = list(fetch_sources(client, names, folder, since=since, progress=remark))
        found = [one for one in tried if isinstance(one, Source)]
        refused = [f"{one.repo}: {one.reason}" for one in tried if not isinstance(one, Source)]
        if not found:
            raise ConfigError("no repository can be mined", "; ".join(refused))
        for one in refused:
            remark(f"left out: {one}")
        return found


class Import(ImportConfig, Proves):
    """Prove published instances again, and tell every difference from what they claim.

    The proven ones become a dataset; OUT.published.jsonl holds one comparison per record.
    """

    places = {"FILE": "file"}
    names = {"--only OWNER/NAME": "only", "--clones DIR": "clones"}
    examples = (
        "envgen import code swe-bench.jsonl --clones DIR --out code/",
        "envgen import code data.parquet --clones DIR --only pallets/flask -o code/",
    )
    verb = "envgen.pipelines.code.import_records:import_code"

    file: Path
    """Records: .jsonl, .json, .parquet."""
    clones: Path
    """Where the repositories' clones are."""

    def tell(self, summary: Any) -> None:
        """Tell which records can't be read, and how many were not reproduced."""
        super().tell(summary)
        for refused in summary.refused:
            remark(f"{refused.id}: {'; '.join(refused.reasons)}")
        require(
            sum(one.kept for one in summary.agreements),
            len(summary.agreements) + len(summary.refused),
            "records reproduced and kept",
            f"{self.out}.published.jsonl and {self.out}.outcomes.jsonl tell why of each",
        )


class TryTests(Builds):
    """Detect how a clone is built, build it in a sandbox, run its tests once and show the result.

    Do this before `generate code`: it takes one build and one run. The exit code is 1 if no test passes.
    """

    places = {"CLONE": "clone"}
    names = {"--commit COMMIT": "commit"}
    examples = (
        "envgen try-tests PATH",
        "envgen try-tests PATH --commit v1.2 --layer python --json tried.json",
    )
    verb = "envgen.pipelines.code.try_tests:try_tests"

    clone: Path
    """A clone, bare or with a checkout."""
    commit: Revision = "HEAD"
    """A commit, a tag or a branch."""
    language: CodeLanguage | None = None
    """None: what most files are written in."""

    def inputs(self, update: OnProgress) -> dict[str, Any]:
        """Show the steps."""
        log = lambda step: update(0, 0, step.splitlines()[0][:100])  # noqa: E731
        return {**super().inputs(update), "log": log}

    def tell(self, summary: Any) -> None:
        """Fail if no test passes."""
        super().tell(summary)
        if not summary.counts.get("pass"):
            remark("error: no test passes: nothing can be proven here as it is")
            fail()

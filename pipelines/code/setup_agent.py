"""The setup agent: a model finds out how to build a repository that no rule can build.

It tries commands where an install would run (network open, no rights, limits), then hands in a recipe.
Each one is built from scratch and its tests are run; the agent is told what came of it. The first
recipe whose tests leave an honest report with a passing test is kept: it is of the same form as one
made by rules, so what uses it needs no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envgen.core.code_types import DEPENDENCIES, REPOSITORY, CodeLanguage, Recipe, Status
from envgen.core.errors import SandboxError, WorkspaceError
from envgen.core.limits import Label, Line, Text, Whole
from envgen.core.types import Record, Sampling, Schema, Usage
from envgen.policies.agent import AgentConfig, AgentTool, run_agent
from envgen.policies.ask import block
from envgen.policies.base import Policy
from envgen.sandboxes.base import Mount
from envgen.sandboxes.workspace import Workspace, build_workspace
from envgen.sandboxes.workspace.layers import HOST, pythons
from envgen.sandboxes.workspace.workshop import Workshop, workshop
from envgen.verifiers.code_run import Exam, RunStatus, run_tests
from envgen.verifiers.runners import RUNNERS, runner


class HandIn(BaseModel):
    """Hand in a recipe. It is built from scratch and its tests are run."""

    model_config = ConfigDict(extra="ignore", title="hand_in")

    runner: Label
    install: list[Text]
    build: list[Text] = Field(default_factory=list)
    variables: dict[Label, Text] = Field(default_factory=dict)
    options: Label = ""
    version: Label = ""


_BASH: Schema = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
_PROMPT = """Find out how to build the repository in {repository} and run its tests.

A recipe has these parts, all of bash command lines run in {repository}:
- install: run once, with the network on. Everything that tests need goes to {dependencies}, which is
  read-only afterwards, or into the repository. Nothing else is kept.
- build: run after every change of the sources, without a network. Leave it empty where nothing is compiled.
- runner: the test runner, one of {runners}; its command line is fixed and writes JUnit XML. Your
  `options` are added to it. It runs without a network.
- variables: environment variables of install, build and tests. PATH starts with {dependencies}/bin.
- version: of Python{pythons}; other languages leave it empty. $PYTHON is its interpreter in installs.
{cutoff}
Commands that you try here run where an install would; their effects are gone when you hand in.
You have {turns} turns and may hand in {builds} times.
{before}"""


class SetupConfig(Record):
    """How long the agent may try."""

    turns: int = Field(default=40, ge=1)
    builds: int = Field(default=4, ge=1)
    """Recipes it may hand in."""
    command_s: float = Field(default=600.0, gt=0)
    output_chars: int = Field(default=6000, ge=200)
    """Of what a command says; the middle is left out."""
    sampling: Sampling = Sampling()
    seed: Whole = 0

    def agent(self) -> AgentConfig:
        """As the agent's loop takes it."""
        return AgentConfig(
            turns=self.turns, submissions=self.builds, output_chars=self.output_chars,
            sampling=self.sampling, seed=self.seed,
        )  # fmt: skip


class BuildAccess(Record):
    """Where builds run, and how they reach package indexes."""

    backend: str = "auto"
    certificates: Path | None = None
    variables: dict[str, str] = Field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    reach: tuple[Line, ...] = ()
    cache_root: Path | None = None

    def arguments(self) -> dict[str, Any]:
        """As ``build_workspace`` and ``workshop`` take it."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class SetUp(Record):
    """What the agent came to."""

    workspace: Workspace | None
    """Built from the recipe that was kept; its recipe holds the pins. None: none was good."""
    passing: int = 0
    """Tests that pass with it."""
    turns: int = 0
    builds: int = 0
    fault: str = ""
    """What was wrong with the last recipe."""
    usage: Usage = Usage()


def set_up(
    tree: Path,
    language: CodeLanguage,
    policy: Policy,
    *,
    cutoff: str | None = None,
    failed: Recipe | None = None,
    fault: str = "",
    layer: str = "host",
    config: SetupConfig | None = None,
    access: BuildAccess | None = None,
) -> SetUp:
    """Let a policy write the recipe of a repository.

    Args:
        tree: a tar of ``base_tree``.
        language: of the tests.
        policy: the agent.
        cutoff: dependencies are to be of this day (ISO) or older; the agent is told, uv obeys.
        failed: the recipe of the rules, which did not do; shown to the agent.
        fault: why it did not.
        layer: the language layer.
        config: how long it may try.
        access: where and with what builds run.

    Raises:
        PolicyError: if the policy gives no reply at all.
        WorkspaceError: if no sandbox for an install can be opened here.
    """
    config, access = config or SetupConfig(), access or BuildAccess()
    blank = Recipe(  # the agent says which runner
        language=language,
        runner=_runners(language)[0],
        layer=layer,
        cutoff=cutoff,
        author=policy.name,
    )
    start = failed.model_copy(update={"install": (), "pins": ()}) if failed else blank
    with workshop(start, tree, **access.arguments()) as place:
        builder = _SetupTools(tree, blank, place, config, access)
        prompt = _prompt(blank, failed, fault, config)
        run = run_agent(
            policy, prompt, [builder.bash], HandIn, builder.fault,
            name=f"setup {prompt}", family="code", config=config.agent(),
        )  # fmt: skip
    return SetUp(
        workspace=builder.workspace, passing=builder.passing, turns=run.turns,
        builds=run.submissions, fault=run.fault, usage=run.usage,
    )  # fmt: skip


def _prompt(blank: Recipe, failed: Recipe | None, fault: str, config: SetupConfig) -> str:
    language, cutoff, host = blank.language, blank.cutoff, blank.layer == HOST
    before = ""
    if failed is not None:
        shown = failed.model_dump_json(
            indent=1, include={"runner", "install", "build", "variables", "options", "version"}
        )
        before += f"\nThis recipe did not do:\n{block('recipe', shown, 4000)}\n"
    if fault:
        before += f"\n{block('fault', fault, 4000)}\n"
    return _PROMPT.format(
        repository=REPOSITORY,
        dependencies=DEPENDENCIES,
        pythons=f", one of {', '.join(pythons())}" if language == "python" and host else "",
        runners=", ".join(_runners(language)),
        cutoff=f"- Dependencies must be of {cutoff} or older; uv sees no newer ones.\n"
        if cutoff
        else "",
        turns=config.turns,
        builds=config.builds,
        before=before,
    )


def _runners(language: CodeLanguage) -> list[str]:
    return [name for name in RUNNERS if language in runner(name).languages]


@dataclass
class _SetupTools:
    """Runs what an agent tries, and builds what it hands in."""

    tree: Path
    blank: Recipe
    place: Workshop
    config: SetupConfig
    access: BuildAccess
    workspace: Workspace | None = None
    passing: int = 0

    @property
    def bash(self) -> AgentTool:
        """The tool that tries a command where an install would run."""
        what = "Run a bash command line in the repository and see the end of what it says."
        return AgentTool("bash", what, _BASH, self._run)

    def _run(self, arguments: Mapping[str, Any]) -> str:
        result = self.place.shell(str(arguments.get("command", "")), self.config.command_s)
        how = f"exit code {result.exit_code}"
        if result.timed_out:
            how = f"stopped after {result.wall_s:.0f} s"
        return f"{how}\n{(result.stdout + result.stderr).decode(errors='replace')}"

    def fault(self, given: HandIn) -> str:
        """Build a recipe and run its tests: what is wrong with it; empty: it is kept."""
        try:
            recipe = Recipe.model_validate(
                {
                    **self.blank.model_dump(exclude={"runner"}),
                    **given.model_dump(exclude_unset=True),
                }
            )
            return self._try(recipe)
        except ValidationError as error:
            return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        except (WorkspaceError, SandboxError) as error:
            return str(error)

    def _try(self, recipe: Recipe) -> str:
        if recipe.runner not in _runners(recipe.language):
            return f"no runner {recipe.runner!r} for {recipe.language}"
        workspace = build_workspace(recipe, self.tree, **self.access.arguments())
        run = run_tests(workspace, Exam())
        if run.status is not RunStatus.RAN or run.report is None:
            return f"the tests: {run.status}: {run.reason}"
        statuses = run.report.statuses().values()
        passing = sum(status is Status.PASS for status in statuses)
        if not passing:
            return f"none of {len(statuses)} tests passes"
        self.workspace, self.passing = workspace, passing
        return ""

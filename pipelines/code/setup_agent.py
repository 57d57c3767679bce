"""The setup agent: a model finds out how to build a repository that no rule can build.

It tries commands where an install would run (network open, no rights, limits), then hands in a recipe.
Each one is built from scratch and its tests are run; the agent is told what came of it. The first
recipe whose tests leave an honest report with a passing test is kept: it is of the same form as one
made by rules, so what uses it needs no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from envgen.core.code_types import DEPENDENCIES, REPOSITORY, CodeLanguage, Recipe, Status
from envgen.core.errors import SandboxError, WorkspaceError
from envgen.core.limits import Line, Whole
from envgen.core.seeding import derive
from envgen.core.types import Message, PublicTask, Record, Sampling, ToolCall, Usage
from envgen.policies.ask import block
from envgen.policies.base import Policy
from envgen.sandboxes.base import Mount
from envgen.sandboxes.workspace import Workspace, build_workspace
from envgen.sandboxes.workspace.layers import HOST, pythons
from envgen.sandboxes.workspace.workshop import Workshop, workshop
from envgen.verifiers.code_run import Exam, RunStatus, run_tests
from envgen.verifiers.runners import RUNNERS, runner

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a bash command line in the repository and see the end of what it says.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
            "additionalProperties": False,
        },
    },
}
_LINES = {"type": "array", "items": {"type": "string"}}
HAND_IN = {
    "type": "function",
    "function": {
        "name": "hand_in",
        "description": "Hand in a recipe. It is built from scratch and its tests are run.",
        "parameters": {
            "type": "object",
            "properties": {
                "runner": {"type": "string"},
                "install": _LINES,
                "build": _LINES,
                "variables": {"type": "object", "additionalProperties": {"type": "string"}},
                "options": {"type": "string"},
                "version": {"type": "string"},
            },
            "required": ["runner", "install"],
            "additionalProperties": False,
        },
    },
}
HAND_IN_FIELDS = ("runner", "install", "build", "variables", "options", "version")
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
        agent = _Agent(tree, blank, policy, place, config, access)
        return agent.run(_prompt(blank, failed, fault, config))


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


def _own(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent may say of a recipe: neither its limits nor its layer."""
    return {name: arguments[name] for name in HAND_IN_FIELDS if name in arguments}


class _Agent:
    """One conversation."""

    def __init__(
        self,
        tree: Path,
        blank: Recipe,
        policy: Policy,
        place: Workshop,
        config: SetupConfig,
        access: BuildAccess,
    ) -> None:
        self.tree, self.blank, self.policy, self.place = tree, blank, policy, place
        self.config, self.access = config, access
        self.result = SetUp(workspace=None)

    def run(self, prompt: str) -> SetUp:
        """Talk until a recipe is good, or the turns or the builds are used up."""
        digest = hashlib.sha256(prompt.encode()).hexdigest()[:16]
        task = PublicTask(
            id=f"setup-{digest}", environment_id=f"setup-{digest}", family="code", prompt=prompt
        )
        messages = [Message(role="user", content=prompt)]
        for turn in range(self.config.turns):
            seed = derive(self.config.seed, "setup", digest)
            reply = self.policy.respond(
                messages, [BASH, HAND_IN], self.config.sampling, seed=seed, task=task
            )
            self._note(turns=turn + 1, usage=self.result.usage + reply.usage)
            messages += self._answered(reply.message)
            if self.result.workspace is not None or self.result.builds >= self.config.builds:
                break
        return self.result

    def _note(self, **changes: Any) -> None:
        self.result = self.result.model_copy(update=changes)

    def _answered(self, message: Message) -> Sequence[Message]:
        """The reply and the answers to its calls."""
        calls = [call for call in message.tool_calls if call.arguments is not None]
        kept = message.model_copy(update={"tool_calls": tuple(calls)})
        if not calls:
            return (kept, Message(role="user", content="Call bash or hand_in."))
        return (kept, *(self._answer(call) for call in calls))

    def _answer(self, call: ToolCall) -> Message:
        arguments = call.arguments or {}
        if call.name == "bash":
            text = self._bash(str(arguments.get("command", "")))
        elif call.name != "hand_in":
            text = f"there is no tool {call.name!r}"
        elif self.result.builds >= self.config.builds or self.result.workspace is not None:
            text = "no further recipe is taken"
        else:
            text = self._hand_in(arguments)
        return Message(role="tool", content=text, tool_call_id=call.id)

    def _bash(self, command: str) -> str:
        result = self.place.shell(command, self.config.command_s)
        how = f"exit code {result.exit_code}"
        if result.timed_out:
            how = f"stopped after {result.wall_s:.0f} s"
        output = (result.stdout + result.stderr).decode(errors="replace")
        return f"{how}\n{self._cut(output)}"

    def _cut(self, text: str) -> str:
        most = self.config.output_chars
        if len(text) <= most:
            return text
        return f"{text[: most // 2]}\n[... left out ...]\n{text[-most // 2 :]}"

    def _hand_in(self, arguments: Mapping[str, Any]) -> str:
        """Build the recipe, run its tests, and say what came of it."""
        self._note(builds=self.result.builds + 1)
        try:
            recipe = Recipe.model_validate(
                {**self.blank.model_dump(exclude={"runner"}), **_own(arguments)}
            )
            fault = self._try(recipe)
        except ValidationError as error:
            fault = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        except (WorkspaceError, SandboxError) as error:
            fault = str(error)
        self._note(fault=fault)
        return self._cut(f"not good: {fault}") if fault else "good"

    def _try(self, recipe: Recipe) -> str:
        """What is wrong with a recipe; empty: it is kept."""
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
        self._note(workspace=workspace, passing=passing)
        return ""

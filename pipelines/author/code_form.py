"""Environments whose code a model writes: what a page can't say (DeepSeek-V3.2, section 3.2.3, word by word).

Three conversations, of which none sees what the others thought:

* the **builder** makes the world: data, tools with their own tests, prompt, form of the answer, and the
  rules, each a sentence of the prompt or the policy;
* the **checker** writes one check for each rule, and answers that are wrong, each with the rule that it
  breaks. It sees what agents are told, and the rows. Its wrong answers are frozen before there is a solution;
* the **solver** sees what agents are told, and the tools, and writes the reference solution. What it is told
  of the checks are the names of broken rules.

Where solver and checker disagree twice, the checker is told the rules that were found broken, never the
solution. A check that then accepts a wrong answer that was refused before is no mend. All of this code is
somebody else's: it runs in sandboxes alone, and its dataset is trusted nowhere.

What the solver can find out by no call, it says; the tools are then augmented, in a conversation of its own.
What a panel solves too often or too rarely goes back to the builder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from envgen.core.canonical import dumps
from envgen.core.errors import ConfigError, EnvgenError
from envgen.core.types import GateStatus, Usage
from envgen.environments.checker import BUILTINS, METHODS
from envgen.pipelines.author.code_folder import (
    IMPORTS,
    NO_VERIFIER,
    TASK,
    CodeRun,
    Playing,
    World,
    check_faults,
    files_of,
    shown,
    verifier,
    write_folder,
)
from envgen.pipelines.author.code_prompts import (
    AMEND,
    AUGMENT,
    BUILDER,
    CHECKER,
    HARDEN,
    SOLVER,
    HandedChecks,
    HandedSolution,
    HandedWorld,
    HandedWrong,
)
from envgen.pipelines.author.code_tests import given_away, world_faults
from envgen.pipelines.author.page_agent import NOTHING, Round, bash, said
from envgen.pipelines.author.taxonomy import Category
from envgen.pipelines.packed.folder import EnvironmentFolder, read_folder
from envgen.pipelines.packed.pack import proofs
from envgen.policies.agent import AgentConfig, AgentRun, AgentTool, run_agent
from envgen.policies.base import Policy
from envgen.sandboxes.base import Sandbox
from envgen.sandboxes.zygote import WorkerBackend

MOST_AMENDMENTS = 2
MOST_AUGMENTED = 2
MOST_ROUNDS = 4
"""Environments that are built anew at most, because of what a panel made of them; the first included."""
REJECTS = "the verifier rejects gold"
_FINDINGS = {
    "gold": "Somebody who saw the task and the tools alone gave an answer that breaks, they say: {rules}.",
    "prefixes": "They accept a database in which something that was to be done is not done yet.",
    "unrequested": "They accept a database in which something was done that nobody asked for.",
    "attacks": "They accept a malformed or mistyped answer.",
    "reseeds": "They were run on other rows, too, with answers of a program that saw the task and the tools "
    "alone. It is said that {rules}",
    "mutants": "Small faults that are planted in them change no verdict: they may check less than they say, "
    "or hold code that decides nothing. {rules}",
    "guesses": "They accept answers that were drawn at random.",
    "empty": "They accept an empty answer when nothing was done.",
}


Read = Callable[[EnvironmentFolder], str]
"""What a reviewer finds wrong with a world; empty: nothing."""
Played = Callable[[CodeRun], Round]
"""What a panel makes of a whole environment."""


class CodeAuthors:
    """Builder, checker and solver of one category.

    Args:
        policy: the model, in a conversation of its own for each.
        category: what the environment is about.
        config: turns, submissions and tokens of each conversation.
        name: of the conversations.
        backend: where code runs.
        place: opens a sandbox for a conversation's bash.
        read: the reviewer.
        played: the panel.
    """

    def __init__(
        self, policy: Policy, category: Category, config: AgentConfig, *, name: str,
        backend: WorkerBackend, place: Callable[[], Sandbox], read: Read,
        played: Played = lambda _: Round(stage="review"),
    ) -> None:  # fmt: skip
        self.policy, self.category, self.config, self.name = policy, category, config, name
        self.backend, self.place, self.read, self.played = backend, place, read, played
        self.usage, self.turns = Usage(), 0
        self._checks: HandedChecks
        self._amended: list[str] = []
        self._augmented: list[str] = []
        self._talks: dict[str, int] = {}

    def run(self) -> CodeRun:
        """Have an environment with one task built and proven, of several the one that a panel likes best.

        Raises:
            PolicyError: if the policy gives no reply.
        """
        world: World | None = None
        rounds, best = list[Round](), CodeRun(why="nothing was built")
        nearest = float("inf")
        while len(rounds) < MOST_ROUNDS:
            found = self._once(world, rounds[-1].finding if rounds else "")
            if found.why:
                best = best if rounds else found
                break
            rounds.append(self.played(found))
            if rounds[-1].missed < nearest:
                nearest = rounds[-1].missed
                best = found.model_copy(update={"rate": rounds[-1].rate})
            if not rounds[-1].finding:
                break
            world = found.world
        return best.model_copy(
            update={"usage": self.usage, "turns": self.turns, "rounds": tuple(rounds)}
        )

    def _once(self, earlier: World | None, finding: str) -> CodeRun:
        """One environment, from what was built before if anything was."""
        world, why = self._build(earlier, finding)
        if world is None:
            return CodeRun(why=f"the builder: {why}")
        checks, why = self._check(world)
        if checks is None:
            return CodeRun(world=world, why=f"the checker: {why}")
        wrong = tuple(one.answer for one in checks.wrong)
        found = CodeRun(world=world, verifier=verifier(checks, world), wrong=wrong)
        self._checks, self._amended, self._augmented = checks, [], []
        while True:
            found, missing = self._solve(found)
            more = self._augment(found.world, missing) if missing and found.world else None
            if more is None:
                return found.model_copy(
                    update={"amendments": tuple(self._amended), "augmented": tuple(self._augmented)}
                )
            found = found.model_copy(update={"world": more, "why": ""})

    def _talk(
        self, role: str, prompt: str, tools: Sequence[AgentTool], form: Any, accept: Any
    ) -> Any:
        number = self._talks[role] = self._talks.get(role, -1) + 1
        run: AgentRun[Any] = run_agent(
            self.policy, prompt, tools, form, accept,
            name=f"{self.name}/{role}" + (f"/{number}" if number else ""), family="general",
            config=self.config,
        )  # fmt: skip
        self.usage += run.usage
        self.turns += run.turns
        return run

    # ------------------------------------------------------------------ the builder

    def _build(self, earlier: World | None, finding: str) -> tuple[World | None, str]:
        one = self.category
        lines = filter(None, (one.name, one.about, one.state, one.hard))
        prompt = BUILDER.format(category="\n".join(lines), submissions=self.config.submissions)
        if finding:
            prompt += HARDEN.format(finding=finding)
        return self._made("build", prompt, earlier)

    def _augment(self, world: World, missing: str) -> World | None:
        """The world with a tool for what the solver misses; None if there is none to be had."""
        if len(self._augmented) >= MOST_AUGMENTED:
            return None
        prompt = AUGMENT.format(
            missing=missing, shown=shown(self._folder(world)), rules=_listed(world),
            submissions=self.config.submissions,
        )  # fmt: skip
        more, _ = self._made("augment", prompt, world, tools_only=True)
        self._augmented.append(f"{'added' if more else 'not added'}: {missing}"[:500])
        return more

    def _made(
        self, role: str, prompt: str, earlier: World | None, *, tools_only: bool = False
    ) -> tuple[World | None, str]:
        """A world that its own tests, the gate of tools and the reader are content with; else why none."""
        made: list[World] = []
        with self.place() as place:
            for name, text in earlier.files.items() if earlier else ():
                place.write_file(name, text.encode())

            def accept(given: HandedWorld) -> str:
                try:
                    world = World(
                        files=files_of(place), rules=tuple((r.id, r.text) for r in given.rules),
                        tests=tuple(given.tests),
                    )  # fmt: skip
                    if tools_only and earlier is not None:
                        world = _with_tools(earlier, world)
                    folder = self._folder(world)
                    fault = next(world_faults(world, folder, self.backend), "")
                except EnvgenError as error:
                    return said(error)
                fault = fault or self._proven(folder, ("tools",)) or self.read(folder)
                if not fault:
                    made.append(world)
                return fault

            def check(_: Mapping[str, Any]) -> str:
                try:
                    folder = self._folder(World(files=files_of(place), rules=()))
                    return (
                        self._proven(folder, ("tools",))
                        or next(given_away(folder), "")
                        or f"fine: {', '.join(t.name for t in folder.tools)}"
                    )
                except EnvgenError as error:
                    return said(error)

            text = "Read the files, and run the tools on random calls."
            tools = [bash(place), AgentTool("check", text, NOTHING, check)]
            run = self._talk(role, prompt, tools, HandedWorld, accept)
        return (made[-1], "") if made else (None, run.ended)

    def _folder(self, world: World, verifier: str = NO_VERIFIER, **more: str) -> EnvironmentFolder:
        """The folder of a world, as ``envgen pack`` reads it.

        Raises:
            ConfigError: saying what is missing or wrong.
        """
        with tempfile.TemporaryDirectory(prefix="envgen-code-") as scratch:
            folder = Path(scratch) / self.category.id
            write_folder(folder, self.category, world, verifier, **more)
            return read_folder(folder)

    def _proven(self, folder: EnvironmentFolder, gates: Sequence[str] = ()) -> str:
        """The first gate that fails, of these or of all; empty: none."""
        for one in proofs(folder, backend=self.backend, only=gates)[TASK]:
            if one.status is GateStatus.FAILED:
                return f"{one.gate}: {one.reason}"[:2_000]
        return ""

    # ------------------------------------------------------------------ the checker

    def _check(self, world: World) -> tuple[HandedChecks | None, str]:
        accepted: list[HandedChecks] = []
        folder = self._folder(world)
        with self.place() as place:
            place.write_file("database.sqlite", folder.database)

            def accept(given: HandedChecks) -> str:
                fault = next(check_faults(given, world), "")
                if not fault and len(given.wrong) < 5:
                    fault = "hand in 5 wrong answers or more"
                if not fault:
                    fault = self._refuses(world, given)
                if not fault:
                    accepted.append(given)
                return fault

            prompt = CHECKER.format(
                shown=shown(folder), rules=_listed(world), imports=", ".join(sorted(IMPORTS)),
                submissions=self.config.submissions,
            )  # fmt: skip
            run = self._talk("check", prompt, [bash(place)], HandedChecks, accept)
        return (accepted[-1], "") if accepted else (None, run.ended)

    def _refuses(self, world: World, given: HandedChecks) -> str:
        """What is wrong with checks that the gates without a solution can tell."""
        answers = json.dumps({"wrong": [one.answer for one in given.wrong]})
        try:
            folder = self._folder(world, verifier(given, world), answers=answers)
        except EnvgenError as error:
            return said(error)
        return self._proven(folder, ("empty", "guesses", "probes"))

    # ------------------------------------------------------------------ the solver

    def _solve(self, found: CodeRun) -> tuple[CodeRun, str]:
        """The whole environment, or why there is none; and what no tool tells, if the solver says so."""
        assert found.world is not None
        world, done, told, missing = found.world, list[CodeRun](), set[str](), list[str]()
        answers = json.dumps({"wrong": list(found.wrong)})

        def accept(given: HandedSolution) -> str:
            if not given.solution:
                missing.append(given.missing)
                return "" if given.missing else "hand in a solution, or what is missing"
            while True:
                code = verifier(self._checks, world)
                try:
                    whole = self._folder(world, code, answers=answers, solution=given.solution)
                    fault = self._proven(whole)
                except EnvgenError as error:
                    return said(error)
                if not fault:
                    update = {"verifier": code, "solution": given.solution}
                    done.append(found.model_copy(update=update))
                    return ""
                if not self._disputed(fault, told) or not self._amend(world, fault, found.wrong):
                    return fault

        folder = self._folder(world)
        with closing(Playing(folder, self.backend)) as playing:
            prompt = SOLVER.format(
                shown=shown(folder), submissions=self.config.submissions,
                methods=" ".join(sorted(METHODS)), builtins=" ".join(sorted(BUILTINS)),
            )  # fmt: skip
            run = self._talk("solve", prompt, playing.tools, HandedSolution, accept)
        if done:
            return done[-1], ""
        if run.answer is not None:
            why = f"the tools do not tell: {missing[-1]}"
            return found.model_copy(update={"why": why}), missing[-1]
        return found.model_copy(update={"why": f"the solver: {run.ended}"}), ""

    def _disputed(self, fault: str, told: set[str]) -> bool:
        """Whether a fault may be the checks': a gate's of theirs, or an answer refused a second time."""
        if len(self._amended) >= MOST_AMENDMENTS:
            return False
        gate = fault.partition(":")[0]
        if gate not in ("gold", "reseeds"):
            return gate in _FINDINGS
        again = fault in told
        told.add(fault)
        return again and (gate == "reseeds" or REJECTS in fault)

    def _amend(self, world: World, fault: str, wrong: Sequence[JsonValue]) -> bool:
        """Have the author of the checks look again: he is told a finding, and sees no solution.

        Returns:
            Whether the checks have changed.
        """
        kept = list[HandedChecks]()
        gate = fault.partition(":")[0]
        finding = _FINDINGS[gate]
        if gate == "gold":
            finding = finding.format(rules=fault.partition(REJECTS)[2].strip(" :")[:1_000])
        elif gate in ("reseeds", "mutants"):  # of the checks themselves alone
            finding = finding.format(rules=fault.partition(":")[2].strip()[:1_000])

        def accept(given: HandedChecks) -> str:
            frozen = [HandedWrong(answer=one, breaks=world.rules[0][0]) for one in wrong]
            given = given.model_copy(update={"wrong": frozen})
            fault = next(check_faults(given, world), "") or self._refuses(world, given)
            if not fault:
                kept.append(given)
            return fault

        own = [f"{_sentence(world, one.rule)}\n{one.code}" for one in self._checks.checks]
        prompt = AMEND.format(
            finding=finding, shown=shown(self._folder(world)),
            checks="\n\n".join([*own, f"# shared\n{self._checks.shared}"]),
        )  # fmt: skip
        self._talk("amend", prompt, [], HandedChecks, accept)
        changed = bool(kept) and verifier(kept[-1], world) != verifier(self._checks, world)
        self._amended.append(f"{gate}: {'mended' if changed else 'unchanged'}")
        if changed:
            self._checks = kept[-1]
        return changed


def _with_tools(earlier: World, given: World) -> World:
    """A world with the tools of another, and tests of both; of two of one call, the new one.

    Raises:
        ConfigError: if anything else has changed.
    """
    changed = [n for n, t in given.files.items() if n != "tools.py" and t != earlier.files[n]]
    if changed or given.rules != earlier.rules:
        raise ConfigError(f"{(changed or ['a rule'])[0]} has changed", "change tools.py alone")
    tests = {dumps([one.tool, one.arguments]): one for one in (*earlier.tests, *given.tests)}
    return earlier.model_copy(update={"files": given.files, "tests": tuple(tests.values())})


def _listed(world: World) -> str:
    return "\n".join(f"- {name}: {text}" for name, text in world.rules)


def _sentence(world: World, rule: str) -> str:
    return f"# {rule}: {dict(world.rules).get(rule, '')}"

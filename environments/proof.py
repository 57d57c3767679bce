"""Proof environments: a statement to prove, step by step, and a checker that decides.

``apply`` adds steps that follow and shows what is left open; ``check`` judges a whole proof and changes
nothing; ``search_lemma`` finds what may be cited; ``submit_proof`` ends the episode. The checker alone
decides: nothing that an agent writes is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from envgen.core.errors import DatasetError
from envgen.core.types import PublicTask, Score, ToolErrorSpec, ToolSpec
from envgen.environments.episodes import ToolResult
from envgen.environments.host import HostEnv, submitted_text
from envgen.environments.toolbox import Toolbox
from envgen.store.bundles import TaskBundle
from envgen.store.dataset import Dataset
from envgen.verifiers.proof_statement import ProofStatement, ProofTheory, proof_system
from envgen.verifiers.proof_system import Known, ProofSystem, WrongStepError
from envgen.verifiers.proof_verdict import MAX_PROOF_CHARS, ProofTextError

SUBMIT_PROOF = "submit_proof"
WRONG_STEP, NO_PROOF = "wrong_step", "no_proof"
MAX_STEPS = 500
"""Steps of a proof that is applied."""
MAX_FOUND = 20
_PROOF = {"type": "string", "maxLength": MAX_PROOF_CHARS}
TOOLS = (
    ToolSpec(
        name="apply",
        description=(
            "Add steps to the proof, one a line: all of them if each follows, else none. Returns the new "
            "lines and the open goals; with none left, the proof is whole."
        ),
        parameters={
            "type": "object",
            "properties": {
                "steps": {"type": "string", "maxLength": 20_000},
                "after": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_STEPS,
                    "description": "Keep so many of the steps applied so far; take the others back.",
                },
            },
            "required": ["steps"],
            "additionalProperties": False,
        },
        mutates=True,
        errors=(ToolErrorSpec(code=WRONG_STEP, when="a step does not follow; nothing was added"),),
    ),
    ToolSpec(
        name="check",
        description="Judge the text of a whole proof: accepted, or the first wrong step and why.",
        parameters={
            "type": "object",
            "properties": {"proof": _PROOF},
            "required": ["proof"],
            "additionalProperties": False,
        },
        errors=(ToolErrorSpec(code=NO_PROOF, when="the text is empty or too long"),),
    ),
    ToolSpec(
        name="search_lemma",
        description="Find lemmas and axioms that steps may cite, by words of their name or symbols.",
        parameters={
            "type": "object",
            "properties": {
                "query": {"type": "string", "maxLength": 2_000},
                "k": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": 10},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    ),
)


class ProofEnv(HostEnv):
    """Plays proofs; see ``EpisodeEnv`` for observations, actions and the end.

    Args:
        dataset: a dataset folder, ``package:NAME``, or an open ``Dataset``.
        options: as ``HostEnv`` takes them.
    """

    family = "proof"

    def __init__(self, dataset: str | Path | Dataset, **options: Any) -> None:
        self._theories: dict[str, ProofTheory] = {}
        self._steps: tuple[str, ...] = ()
        self._system: ProofSystem
        super().__init__(dataset, **options)

    def system(self, files: TaskBundle) -> ProofSystem:
        """The proof system of a task.

        Raises:
            DatasetError: if its theory or statement can't be read.
        """
        env_id = files.spec.environment_id
        try:
            if env_id not in self._theories:
                blueprint = self.dataset.environment_files(env_id).blueprint
                self._theories[env_id] = ProofTheory.model_validate(blueprint)
            statement = ProofStatement.model_validate_json(files.verifier)
        except ValueError as error:
            raise DatasetError(f"task {files.spec.id!r} states nothing to prove") from error
        return proof_system(self._theories[env_id], statement)

    def _open(self, task_id: str) -> tuple[PublicTask, Toolbox]:
        found = super()._open(task_id)
        assert self.files is not None
        self._steps, self._system = (), self.system(self.files)
        return found

    def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        """Run a tool; arguments fit its schema."""
        if name == "check":
            return self._check(str(arguments["proof"]))
        if name == "search_lemma":
            found, most = (
                find(self._system.known(), str(arguments["query"])),
                arguments.get("k", 10),
            )
            assert isinstance(most, int)
            return ToolResult([dict(one._asdict()) for one in found[:most]])
        after = arguments.get("after", len(self._steps))
        assert isinstance(after, int)
        return self._apply(str(arguments["steps"]), after)

    def _apply(self, text: str, after: int) -> ToolResult:
        kept = self._steps[:after]
        steps = (*kept, *(line.strip() for line in text.split("\n") if line.strip()))
        if len(steps) > MAX_STEPS:
            return ToolResult(None, WRONG_STEP, f"a proof has at most {MAX_STEPS} steps")
        try:
            state = self._system.follow(steps)
        except WrongStepError as error:
            return ToolResult(None, WRONG_STEP, str(error))
        self._steps = steps
        added = len(steps) - len(kept)
        new = state.lines[-added:] if added else ()
        return ToolResult({"lines": list(new), "open_goals": list(state.open_goals)})

    def _check(self, proof: str) -> ToolResult:
        try:
            verdict = self._system.check(proof)
        except ProofTextError as error:
            return ToolResult(None, NO_PROOF, str(error))
        value: dict[str, JsonValue] = {
            "accepted": verdict.accepted,
            "right_steps": verdict.num_steps,
        }
        if not verdict.accepted:
            value |= {"wrong_step": verdict.line, "reason": verdict.reason}
        return ToolResult(value)

    def judge(self, files: TaskBundle, answer: str) -> Score:
        """1 for a proof that the checker accepts."""
        text = submitted_text(answer)
        if not text.strip() and self._steps:
            text = self._system.text(self._steps)
        try:
            verdict = self.system(files).check(text)
        except ProofTextError as error:
            return Score(value=0.0, passed=False, reasons=(str(error)[:500],))
        reasons = () if verdict.accepted else (f"step {verdict.line}: {verdict.reason}"[:500],)
        return Score(value=float(verdict.accepted), passed=verdict.accepted, reasons=reasons)


def find(known: Sequence[Known], query: str) -> list[Known]:
    """What shares words and symbols with a query: most first, the shortest first among equals."""
    words = set(re.findall(r"\w+|[^\w\s,]+", query.lower()))
    ranked = []
    for at, one in enumerate(known):
        shared = len(
            words.intersection(re.findall(r"\w+|[^\w\s,]+", f"{one.name} {one.statement}".lower()))
        )
        if shared or not words:
            ranked.append((-shared, len(one.statement), at, one))
    return [one for *_, one in sorted(ranked, key=lambda row: row[:3])]

"""A statement with its proof in one text file, judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envgen.core.errors import ConfigError
from envgen.core.limits import Count, Label, Text
from envgen.core.types import Record
from envgen.pipelines.proof.derive_chain import ALGEBRAS
from envgen.verifiers.deduction import check
from envgen.verifiers.equational import check_chain
from envgen.verifiers.metamath import MetamathDatabase
from envgen.verifiers.proof_verdict import MAX_PROOF_CHARS, ProofTextError, ProofVerdict
from envgen.verifiers.propositions import Sequent
from envgen.verifiers.terms import read_equation


class ProofReport(Record):
    """The verdict on a proof."""

    accepted: bool
    steps: Count
    """Right ones, from the first on."""
    line: Count
    """The first wrong step; 0 if there is none."""
    reason: Text = ""
    system: Label
    """deduction, equational, or metamath."""


def check_proof(
    file: str | Path, *, progress: Callable[[int, int, str], None] | None = None
) -> ProofReport:
    """Judge the proof in a file.

    Its first lines are the statement: ``given: FORMULA`` for each hypothesis and ``goal: FORMULA``; or
    ``algebra: group`` (or lattice) and ``goal: TERM = TERM``. The steps follow, as
    ``envgen.verifiers.deduction`` and ``equational`` describe them. Of a Metamath database (``.mm``) every
    theorem is checked; a step is a theorem then.

    Raises:
        ConfigError: if the file can't be read or states nothing.
        ProofTextError: if there are no steps, or a statement is no formula.
    """
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"there is no file {str(file)!r}", "give a text file")
    if path.suffix == ".mm":
        return _check_database(path, progress or (lambda done, total, status: None))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(file)!r} can't be read: {error}", "give a text file") from error
    if len(text) > 2 * MAX_PROOF_CHARS:
        raise ConfigError(f"{str(file)!r} has {len(text)} characters", "it is no proof")
    head: dict[str, list[str]] = {"given": [], "goal": [], "algebra": []}
    lines = text.split("\n")
    while lines and (not lines[0].strip() or lines[0].split(":")[0].strip() in head):
        name, _, value = lines.pop(0).partition(":")
        if name.strip():
            head[name.strip()].append(value.strip())
    if len(head["goal"]) != 1 or len(head["algebra"]) > 1:
        raise ConfigError(
            f"{str(file)!r} states {len(head['goal'])} goals",
            "begin it with lines such as `given: P -> Q`, `given: P`, `goal: Q`, then the steps",
        )
    steps = "\n".join(lines)
    if not head["algebra"]:
        verdict = check(steps, Sequent.read(head["given"], head["goal"][0]))
        return _report(verdict, "deduction")
    if head["algebra"][0] not in ALGEBRAS:
        known = ", ".join(sorted(ALGEBRAS))
        raise ConfigError(f"unknown algebra {head['algebra'][0][:80]!r}", f"there are {known}")
    algebra = ALGEBRAS[head["algebra"][0]]
    goal = read_equation(head["goal"][0], algebra.signature)
    return _report(check_chain(steps, algebra, goal), "equational")


def _check_database(path: Path, progress: Callable[[int, int, str], None]) -> ProofReport:
    """The verdict on all proofs of a Metamath database, in order."""
    database = MetamathDatabase.read(path)
    theorems = [one.label for one in database.assertions.values() if one.kind == "theorem"]
    for number, label in enumerate(theorems, start=1):
        try:
            database.verify(label)
        except ProofTextError as error:
            return ProofReport(
                accepted=False, steps=number - 1, line=number, reason=str(error), system="metamath"
            )
        progress(number, len(theorems), label)
    return ProofReport(accepted=True, steps=len(theorems), line=0, system="metamath")


def _report(verdict: ProofVerdict, system: str) -> ProofReport:
    return ProofReport(
        accepted=verdict.accepted,
        steps=verdict.num_steps,
        line=verdict.line,
        reason=verdict.reason,
        system=system,
    )

"""``envgen validate`` on proofs: check gold again, ask truth tables and models, and try near-proofs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from envgen.core.seeding import rng
from envgen.core.types import GateResult, GateStatus
from envgen.environments.proof import ProofEnv
from envgen.pipelines.boundary import failure, guarded
from envgen.pipelines.played import played
from envgen.pipelines.proof.models import Table, holds, models
from envgen.pipelines.proof.planted import PlantedError, planted, planted_in_chain
from envgen.pipelines.proof.spoil import read_steps
from envgen.pipelines.proof.tasks import ProofProblem, statement_of, steps_of, task_of, theory_of
from envgen.pipelines.stored import IMPORTED, failed, passed, stored
from envgen.pipelines.validate import TaskValidation, TaskValidator, ValidateOptions
from envgen.store.dataset import Dataset
from envgen.verifiers.equational import Algebra
from envgen.verifiers.proof_statement import MetamathGoal, ProofStatement, ProofTheory, proof_system
from envgen.verifiers.proof_verdict import ProofTextError
from envgen.verifiers.propositions import Sequent, read_proposition
from envgen.verifiers.terms import read_equation

_ASSUMED = GateResult(
    gate="true",
    status=GateStatus.NOT_APPLICABLE,
    reason="no table or model decides set theory: what the task's theory assumes is its author's word",
)
"""Of Metamath: whoever wrote the task chose what its proof may cite."""


class ProofValidator(TaskValidator):
    """Proves statements again: by the checker, and by second opinions that know no rules."""

    family = "proof"
    methods: ClassVar = {
        "checked": "checked again, and held against truth tables and finite models"
    }

    def __init__(self, dataset: Dataset, options: ValidateOptions) -> None:
        super().__init__(dataset, options)
        self._env = ProofEnv(dataset)

    def __exit__(self, *_: object) -> None:
        self._env.close()

    def validate(self, task_id: str) -> TaskValidation:
        """See ``TaskValidator``."""
        evidence = tuple(self._gates(task_id))
        return TaskValidation(
            task_id=task_id, method="checked", passed=failure(evidence) is None, evidence=evidence
        )

    def group(self, task_id: str) -> str:
        """See ``TaskValidator``: each statement is dealt out alone."""
        return task_id if self.dataset.task_files(task_id).solution else ""

    def _gates(self, task_id: str) -> Iterator[GateResult]:
        files = self.dataset.task_files(task_id)
        if not files.solution:
            yield IMPORTED
            return
        problem = ProofProblem.model_validate_json(files.solution)
        same = stored(self.dataset, task_id, lambda: task_of(problem))
        yield same
        if same.status is GateStatus.FAILED:
            return
        yield guarded("checked", lambda: checked(problem))
        yield _ASSUMED if problem.system == "metamath" else guarded("true", lambda: true(problem))
        if problem.system == "deduction":
            yield guarded("needed", lambda: needed(problem))
        yield guarded("near_proofs", lambda: near_proofs(problem))
        yield played(self._env, task_id)


def checked(problem: ProofProblem) -> GateResult:
    """Whether the checker accepts gold, whole and step by step."""
    system = proof_system(theory_of(problem), statement_of(problem))
    verdict = system.check(problem.proof)
    if not verdict.accepted:
        return failed("checked", f"step {verdict.line}: {verdict.reason}")
    steps = steps_of(problem)
    if system.follow(steps).open_goals or not system.check(system.text(steps)).accepted:
        return failed("checked", "its steps, applied one by one, leave a goal open")
    return passed("checked", verdict.num_steps)


def true(problem: ProofProblem) -> GateResult:
    """Whether the statement is true in every row of a truth table, or in every model that there is."""
    if problem.system == "deduction":
        sequent = _sequent(problem)
        table = Table([*sequent.hypotheses, sequent.goal])
        if not table.rows(sequent.hypotheses):
            return failed("true", "its hypotheses contradict each other")
        if not table.follows(sequent.hypotheses, sequent.goal):
            return failed(
                "true", "a row of the truth table makes the hypotheses true and the goal false"
            )
        return passed("true", table.every.bit_length())
    algebra = _algebra(problem)
    goal = read_equation(problem.goal, algebra.signature)
    small = models(tuple(sorted(algebra.signature.items())))
    for at, model in enumerate(small, start=1):
        if not holds(goal, model):
            return failed("true", f"it is false in model {at}, of {len(model.elements)} elements")
    if not small:
        return failed("true", f"there is no model of algebra {problem.algebra!r}")
    return passed("true", len(small))


def needed(problem: ProofProblem) -> GateResult:
    """Whether the goal does not follow without any one of the hypotheses that gold uses."""
    sequent = _sequent(problem)
    steps = read_steps(problem.proof)
    used = sorted({read_proposition(step.formula) for step in steps if step.rule == "premise"})
    table = Table([*sequent.hypotheses, sequent.goal])
    for left_out in used:
        if table.follows([one for one in used if one != left_out], sequent.goal):
            return failed("needed", f"it follows without {left_out}")
    return passed("needed", len(used)) if used else failed("needed", "gold uses no hypothesis")


def near_proofs(problem: ProofProblem) -> GateResult:
    """Whether near-proofs are rejected: errors planted at known steps, and shortcuts around the rules."""
    theory, statement = theory_of(problem), statement_of(problem)
    system = proof_system(theory, statement)
    errors = list(planted_errors(problem))
    for one in errors:
        verdict = system.check(one.text)
        if verdict.line != one.step:
            found = f"at step {verdict.line}" if verdict.line else "nowhere"
            return failed("near_proofs", f"an error planted at step {one.step} was found {found}")
    if not errors and problem.system != "metamath":
        return failed("near_proofs", "no error could be planted")
    tries = list(_shortcuts(problem, theory, statement))
    for what, other, text in tries:
        try:
            accepted = proof_system(theory, other).check(text).accepted
        except ProofTextError:  # there is nothing to judge
            continue
        if accepted:
            return failed("near_proofs", f"{what} was accepted")
    return passed("near_proofs", len(errors) + len(tries))


def planted_errors(problem: ProofProblem) -> Iterator[PlantedError]:
    """Near-proofs of a problem, each with one error at a step that is known; always the same ones."""
    if problem.system == "metamath":
        return iter(())
    draws = rng(0, "planted", problem.goal)
    if problem.system == "deduction":
        return planted(draws, problem.proof, _sequent(problem))
    return planted_in_chain(draws, problem.proof, _algebra(problem))


def _shortcuts(
    problem: ProofProblem, theory: ProofTheory, statement: ProofStatement
) -> Iterator[tuple[str, ProofStatement, str]]:
    """(what it is, the statement, the text) of texts that prove nothing."""
    proof, goal = problem.proof, problem.goal
    yield "an empty proof", statement, ""
    yield "a cut proof", statement, "\n".join(proof.split("\n")[:-1])
    if problem.metamath is not None:
        yield from _metamath_shortcuts(problem.metamath, statement, proof)
        return
    if problem.system == "equational":
        left, right = (side.strip() for side in goal.split("="))
        for name in theory.equations:
            yield "a leap", statement, f"1. {left}\n2. = {right}  [{name} with]"
        yield "a goal as its own reason", statement, f"1. {left}\n2. = {right}  [goal]"
        yield "a turned chain", ProofStatement(goal=f"{right} = {left}"), proof
        return
    yield "a goal called a premise", statement, f"1. {goal}  [premise]"
    yield "a goal cited for itself", statement, f"1. {goal}  [reiterate 1]"
    yield "a goal as its own lemma", statement, f"1. {goal}  [lemma goal]"
    yield "an open assumption", statement, f"| 1. {goal}  [assume]"
    for step in read_steps(proof):
        if step.rule == "premise":
            fewer = tuple(
                one
                for one in problem.hypotheses
                if read_proposition(one) != read_proposition(step.formula)
            )
            yield "a proof without a hypothesis", ProofStatement(hypotheses=fewer, goal=goal), proof


def _metamath_shortcuts(
    goal: MetamathGoal, statement: ProofStatement, proof: str
) -> Iterator[tuple[str, ProofStatement, str]]:
    """Proofs of something else, of too little, or of nothing but a citation."""
    own, labels = goal.statement, proof.split()
    for at in range(len(labels)):
        yield "a proof with a step less", statement, " ".join(labels[:at] + labels[at + 1 :])
    for label in own.hypotheses:
        fewer = {name: text for name, text in own.hypotheses.items() if name != label}
        yield "a proof without a hypothesis", _stating(goal, hypotheses=fewer), proof
    symbols = own.conclusion.split()
    types = {one.variable: one.typecode for one in goal.theory.variables}
    for at, one in enumerate(symbols):
        for other in sorted(
            name for name in types if name != one and types[name] == types.get(one)
        ):
            text = " ".join((*symbols[:at], other, *symbols[at + 1 :]))
            yield "a proof of something else", _stating(goal, conclusion=text), proof
    for label in goal.theory.assertions:
        yield "a citation", statement, label


def _stating(goal: MetamathGoal, **changes: object) -> ProofStatement:
    other = goal.model_copy(update={"statement": goal.statement.model_copy(update=changes)})
    return ProofStatement(goal=other.statement.conclusion, metamath=other)


def _sequent(problem: ProofProblem) -> Sequent:
    return Sequent.read(problem.hypotheses, problem.goal)


def _algebra(problem: ProofProblem) -> Algebra:
    theory = theory_of(problem)
    return Algebra.read(theory.signature, theory.equations)

"""A statement and its proof as a task: words, theory, gold steps."""

from __future__ import annotations

import re

from pydantic import Field, JsonValue

from envgen.core.canonical import content_hash, pretty
from envgen.core.errors import PipelineError
from envgen.core.limits import Label, Text
from envgen.core.types import (
    CallRecord,
    Difficulty,
    EnvironmentSpec,
    GoldRun,
    Limits,
    Record,
    Schema,
    TaskSpec,
)
from envgen.environments.proof import SUBMIT_PROOF, TOOLS
from envgen.pipelines.assemble import TaskDraft
from envgen.pipelines.proof.derive_chain import ALGEBRAS
from envgen.pipelines.proof.lemmas import classical_lemmas
from envgen.store.bundles import EnvironmentBundle, TaskBundle
from envgen.verifiers.deduction import RULES
from envgen.verifiers.proof_statement import (
    LemmaText,
    MetamathGoal,
    ProofStatement,
    ProofTheory,
    SystemName,
)
from envgen.verifiers.proof_verdict import MAX_PROOF_CHARS

LIMITS = Limits(turns=96, tokens=65_536)
SCHEMA: Schema = {"type": "string", "maxLength": MAX_PROOF_CHARS}
_END = """\
apply adds steps and shows what is left open, check judges a whole proof, search_lemma finds what may be
cited. End with submit_proof: the text of the proof, or nothing, for the steps that were applied."""
DEDUCTION_POLICY = f"""\
Prove the statement by natural deduction (propositional, classical, Fitch style). A step is a line:
P -> Q  [premise]
| P  [assume]
| Q  [implies-elim 1 2]
P -> Q  [implies-intro 2-3]
Lines are numbered from 1, by themselves. A | stands before a line for each sub-proof that it is in: assume
opens one, a line with one | less ends it, and 2-3 cites an ended one. Connectives, the closest first:
~ & | -> <->; -> groups to the right. Beside premise and assume there are these rules (what is cited => what
is concluded; A .. B is a sub-proof that assumes A and ends with B):
{{rules}}
[lemma NAME 1 2 with P := Q & R] cites a lemma; what "with" leaves out is found by matching.
{_END}"""
EQUATIONAL_POLICY = f"""\
Show the equation by a chain of equal terms. Each step rewrites the term before it at one place:
mul(e, b)  [left-inverse at 1]
b  [left-unit at root with x := b]
[NAME] uses an equation from left to right, [NAME backwards] from right to left. A place is root, or the
numbers of arguments on the way to it (2.1: of the second argument the first); without "at" it is found, and
so are variables that "with" leaves out. The goal's left side stands there as line 1; the chain ends with its
right side.
{_END}"""
METAMATH_POLICY = f"""\
Prove the statement of Metamath backward. A step is a label: of an assertion whose conclusion matches the
first open goal, whose hypotheses are open then, or of a hypothesis of the statement that equals the goal.
Variables that only stand in the assertion's hypotheses are given:
ax-mp with ph := ( ps -> ps )
Spaces stand between symbols. The text of a whole proof is labels in reverse Polish order, those of syntax
and variables, too: apply writes them. search_lemma shows assertions as "hypotheses => conclusion"; what
stands for variables that are "apart" may share no variable.
{_END}"""


class ProofProblem(Record):
    """A statement with its proof: the solution of a task."""

    system: SystemName
    level: int = Field(ge=1, le=8)
    algebra: Label = ""
    """Of an equation."""
    hypotheses: tuple[Label, ...] = ()
    goal: Label
    proof: Text
    """As the checker reads it."""
    steps: tuple[Text, ...] = ()
    """Of Metamath: the same as backward steps."""
    metamath: MetamathGoal | None = None
    source: Label = ""
    """Of Metamath: the database and its theorem."""


def theory_of(problem: ProofProblem) -> ProofTheory:
    """What the proof of a problem may cite.

    Raises:
        PipelineError: if there is no such algebra.
    """
    if problem.system == "deduction":
        lemmas = {
            one.name: LemmaText(
                hypotheses=tuple(map(str, one.sequent.hypotheses)),
                goal=str(one.sequent.goal),
                proof=one.proof,
            )
            for one in classical_lemmas()
        }
        return ProofTheory(system="deduction", lemmas=lemmas)
    if problem.system == "metamath":
        return ProofTheory(system="metamath")
    if problem.algebra not in ALGEBRAS:
        raise PipelineError(f"unknown algebra {problem.algebra[:80]!r}")
    algebra = ALGEBRAS[problem.algebra]
    return ProofTheory(
        system="equational",
        signature=dict(algebra.signature),
        equations={name: str(one) for name, one in algebra.equations.items()},
    )


def statement_of(problem: ProofProblem) -> ProofStatement:
    """What a problem states."""
    return ProofStatement(
        hypotheses=problem.hypotheses, goal=problem.goal, metamath=problem.metamath
    )


def steps_of(problem: ProofProblem) -> tuple[str, ...]:
    """The gold proof as steps to apply: lines without their numbers."""
    if problem.system == "metamath":
        return problem.steps
    lines = problem.proof.split("\n")
    if problem.system == "equational":  # the first term stands there at the start
        lines = [line.replace("= ", "", 1) for line in lines[1:]]
    return tuple(re.sub(r"^([| ]*)\d+\. ", r"\1", line) for line in lines)


def environment_of(problem: ProofProblem) -> EnvironmentBundle:
    """The environment of a problem's system, or algebra."""
    theory = theory_of(problem)
    if problem.system == "deduction":
        name, title = "proof-deduction", "Natural deduction"
        rules = "\n".join(f"{rule}: {pattern}" for rule, pattern in RULES.items())
        policy = DEDUCTION_POLICY.format(rules=rules)
    elif problem.system == "metamath":
        name, title, policy = "proof-metamath", "Statements of Metamath", METAMATH_POLICY
    else:
        name, title = f"proof-{problem.algebra}", f"Equations in a {problem.algebra}"
        equations = "\n".join(f"{name}: {one}" for name, one in theory.equations.items())
        policy = f"{EQUATIONAL_POLICY}\n\nEquations:\n{equations}"
    spec = EnvironmentSpec(
        id=name,
        category="proof",
        title=title,
        policy_text=policy,
        tools=TOOLS,
        submit_tool=SUBMIT_PROOF,
    )
    return EnvironmentBundle(spec=spec, blueprint=theory.model_dump(mode="json"))


def task_of(problem: ProofProblem) -> TaskDraft:
    """The whole task of a problem; the same for the same problem. Gold's calls have no results yet."""
    bundle, steps = environment_of(problem), steps_of(problem)
    if problem.system == "equational":
        prompt = f"Show that in every {problem.algebra}:\n\n{problem.goal}"
    else:
        prompt = f"Prove\n\n{problem.goal}"
        if problem.hypotheses:
            prompt += "\n\nfrom\n\n" + "\n".join(problem.hypotheses)
        if problem.metamath is not None and (pairs := problem.metamath.statement.disjoint):
            prompt += "\n\nwhere these variables are apart: " + ", ".join(map(" ".join, pairs))
    calls = []
    for step in steps:
        arguments: dict[str, JsonValue] = {"steps": step}
        calls.append(CallRecord(name="apply", arguments=arguments, mutates=True))
    spec = TaskSpec(
        id=f"{problem.system}-{content_hash(problem)[:12]}",
        environment_id=bundle.spec.id,
        family="proof",
        prompt=prompt,
        submit_schema=SCHEMA,
        limits=LIMITS,
        difficulty=Difficulty(level=problem.level, gold_calls=len(calls), distinct_tools=1),
    )
    task = TaskBundle(
        spec=spec,
        solution=pretty(problem),
        verifier=pretty(statement_of(problem)),
        gold=GoldRun(calls=tuple(calls), answer=problem.proof),
    )
    return TaskDraft(bundle, task, group=spec.id)

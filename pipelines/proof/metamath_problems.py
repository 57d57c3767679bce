"""Problems of a Metamath database's theorems."""

from __future__ import annotations

from pathlib import Path
from random import Random

from envgen.core.errors import ConfigError, PipelineError
from envgen.pipelines.proof.metamath_theorems import MetamathTheorem, MetamathTheorems
from envgen.pipelines.proof.tasks import ProofProblem
from envgen.verifiers.metamath import MetamathDatabase
from envgen.verifiers.metamath_system import MetamathStatement, MetamathSystem
from envgen.verifiers.proof_statement import MetamathGoal

DEBIAN = Path("/usr/share/metamath/databases/set.mm")
DISTRACTORS = 40
TRIES = 50


def open_theorems(database: Path | None) -> MetamathTheorems:
    """The theorems of a database; None: of the one that Debian has.

    Raises:
        ConfigError: if there is no such file.
        ProofTextError: if it is no database.
    """
    place = database or DEBIAN
    if not place.is_file():
        raise ConfigError(
            f"there is no Metamath database {str(place)!r}",
            "give --database FILE.mm, or apt-get install metamath-databases",
        )
    return MetamathTheorems(MetamathDatabase.read(place))


def metamath_problem(draws: Random, level: int, theorems: MetamathTheorems) -> ProofProblem:
    """A theorem of a level with what its proof may cite.

    Raises:
        PipelineError: if the database has none of this level that can be taken over.
    """
    labels = theorems.candidates(level)
    for _ in range(TRIES if labels else 0):
        label = draws.choice(labels)
        try:
            return _problem(theorems.draw(label, draws, DISTRACTORS), level)
        except PipelineError:  # its grammar or size can't be taken over: another one can
            continue
    raise PipelineError(
        f"the database has no theorem of level {level} to take", "ask for other levels"
    )


def _problem(theorem: MetamathTheorem, level: int) -> ProofProblem:
    """Hypotheses get names that say nothing: in the database theirs is the theorem's."""
    old = theorem.statement
    taken = {*theorem.theory.assertions, *theorem.theory.syntax}
    taken |= {one.label for one in theorem.theory.variables}
    prefix = next(
        one for one in ("h", "hyp", "given-") if not any(f"{one}{n}" in taken for n in range(99))
    )
    names = {label: f"{prefix}{number}" for number, label in enumerate(old.hypotheses, start=1)}
    statement = MetamathStatement(
        hypotheses={names[label]: text for label, text in old.hypotheses.items()},
        disjoint=old.disjoint,
        conclusion=old.conclusion,
    )
    steps = tuple(names.get(step, step) for step in theorem.steps)
    goal = MetamathGoal(theory=theorem.theory, statement=statement)
    return ProofProblem(
        system="metamath",
        level=level,
        hypotheses=tuple(f"{label}: {text}" for label, text in statement.hypotheses.items()),
        goal=statement.conclusion,
        proof=MetamathSystem(goal.theory, statement).text(steps),
        steps=steps,
        metamath=goal,
        source=theorem.label,
    )

"""Statements with proofs, drawn evenly over systems and levels, and kept if every gate holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from envgen.core.errors import ConfigError
from envgen.core.seeding import rng
from envgen.pipelines.assemble import AssembleSummary, TaskDraft, assemble
from envgen.pipelines.proof.config import ProofConfig
from envgen.pipelines.proof.derive import derive
from envgen.pipelines.proof.derive_chain import derive_chain
from envgen.pipelines.proof.lemmas import classical_lemmas
from envgen.pipelines.proof.metamath_problems import metamath_problem, open_theorems
from envgen.pipelines.proof.metamath_theorems import MetamathTheorems
from envgen.pipelines.proof.tasks import ProofProblem, task_of
from envgen.pipelines.search.config import bounds

_SPARE = 1.05
"""Statements drawn for each one that is asked for: of some, no error can be planted."""
_GIVE_UP = 200
"""Draws in a row that give nothing new, after which there is no more."""


def generate_proofs(
    config: ProofConfig,
    out: str | Path,
    *,
    workers: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> AssembleSummary:
    """Generate a dataset of statements to prove at ``out``.

    Args:
        config: which statements.
        out: the dataset folder; it must not exist.
        workers: processes that prove; default: one per core. The bytes don't depend on it.
        progress: called after each statement.

    Raises:
        ConfigError: if ``out`` exists.
        ResumeError: if ``OUT.partial`` holds another configuration's work.
    """
    if Path(out).exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    return assemble(
        config, out, list(_drafts(config)), name="proofs", seed=config.seed,
        most=config.problems, workers=workers, progress=progress,
    )  # fmt: skip


def _drafts(config: ProofConfig) -> Iterator[TaskDraft]:
    systems, levels = config.system.split(","), bounds(config.level)
    theorems = open_theorems(config.database) if "metamath" in systems else None
    seen: set[str] = set()
    number = fruitless = 0
    while len(seen) < round(config.problems * _SPARE) + 1 and fruitless < _GIVE_UP:
        system = systems[number % len(systems)]
        level = levels[(number // len(systems)) % len(levels)]
        problem = draw(rng(config.seed, "proof", number), system, level, theorems)
        number += 1
        key = renamed(problem)
        fruitless = fruitless + 1 if key in seen else 0
        if not fruitless:
            seen.add(key)
            yield task_of(problem)


def draw(
    draws: Random, system: str, level: int, theorems: MetamathTheorems | None = None
) -> ProofProblem:
    """A statement of a system and a level, with its proof.

    Raises:
        PipelineError: if ``theorems`` of Metamath, which the system then needs, are too few.
    """
    if system == "metamath":
        assert theorems is not None
        return metamath_problem(draws, level, theorems)
    if system == "equational":
        chain = derive_chain(draws, level)
        return ProofProblem(
            system="equational",
            level=level,
            algebra=chain.algebra,
            goal=str(chain.goal),
            proof=chain.proof,
        )
    theorem = derive(draws, level, classical_lemmas())
    return ProofProblem(system="deduction", level=level, **theorem._asdict())


def renamed(problem: ProofProblem) -> str:
    """A statement with its atoms, or constants, named in the order in which they come."""
    names: dict[str, str] = {}
    if problem.metamath is not None:
        return problem.source
    pattern = r"\b[A-Z]\b" if problem.system == "deduction" else r"\b[abc]\b"
    text = "\n".join((problem.algebra, problem.goal, *sorted(problem.hypotheses, key=len)))
    return re.sub(pattern, lambda name: names.setdefault(name[0], f"#{len(names)}"), text)

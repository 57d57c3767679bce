"""The recipe of a domain: how its rows are drawn, its simplest task, and how tasks get harder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from envgen.core.ir import Problem
from envgen.pipelines.general.tables import Tables

if TYPE_CHECKING:
    from envgen.pipelines.general.lexicon import Lexicon


class Hardened(NamedTuple):
    """A problem one level up, with the rows it is about."""

    problem: Problem
    tables: Tables


@dataclass(frozen=True)
class Operator:
    """One way to make a task harder by one level.

    ``harden`` may add clauses, slots, relations and tools, and enlarge or redraw the rows; it gives
    None where it doesn't apply. ``levels`` are the levels it steps from (empty: any).
    """

    name: str
    harden: Callable[[Problem, Tables, Random], Hardened | None]
    levels: tuple[int, ...] = ()

    def applies(self, level: int) -> bool:
        """Whether the operator may step a task of ``level``."""
        return not self.levels or level in self.levels


class Blueprint(Protocol):
    """A domain. All methods are pure functions of their arguments (``rng`` included).

    ``Problem.id`` is free text that says which task of the domain it is; the author replaces it.
    Everything a re-seed must re-tune (bounds, the city the question names) is a ``Param``: ``rebind``
    may change only ``Problem.params`` (the solution's and verifier's ``PARAMS`` line) and nothing else.
    """

    category: str
    """An Id, e.g. ``trip-planning``."""
    title: str
    description: str
    lexicon: Lexicon
    operators: Sequence[Operator]
    max_level: int
    licence: str
    sources: tuple[str, ...]

    def tables(self, rng: Random, level: int) -> Tables:
        """Rows for the level-``level`` task (the author asks for level 1)."""

    def problem(self, rng: Random, tables: Tables) -> Problem | None:
        """A level-1 task over ``tables``; None if these rows give none."""

    def reseed(self, rng: Random, problem: Problem, level: int) -> Tables:
        """New rows of the same sizes and distributions for ``problem``, which is of ``level``."""

    def rebind(self, problem: Problem, tables: Tables, rng: Random) -> Problem | None:
        """``problem`` over re-seeded ``tables``: new params of the same difficulty; None if impossible."""

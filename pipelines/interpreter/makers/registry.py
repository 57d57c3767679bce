"""All makers, by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from envgen.core.errors import ConfigError
from envgen.core.registry import near_names
from envgen.pipelines.interpreter.makers import (
    algebra,
    calculus,
    combinatorics,
    graphs,
    linear_algebra,
    logic,
    number_theory,
    probability,
    reasoning_gym,
    simulation,
    tables,
)
from envgen.pipelines.interpreter.makers.maker import Maker

_MODULES = (
    number_theory, algebra, combinatorics, probability, linear_algebra, calculus, graphs, logic, simulation,
    tables, reasoning_gym,
)  # fmt: skip


@cache
def all_makers() -> dict[str, Maker]:
    """Every maker, by name, in a fixed order."""
    return {maker.name: maker for module in _MODULES for maker in module.MAKERS}


def makers_of(kinds: Sequence[str]) -> list[Maker]:
    """The makers of these kinds."""
    return [maker for maker in all_makers().values() if maker.kind in kinds]


def find_maker(name: str) -> Maker:
    """The maker of this name.

    Raises:
        ConfigError: if there is none.
    """
    if name not in all_makers():
        raise ConfigError(f"unknown maker {name[:80]!r}{near_names(name, all_makers())}")
    return all_makers()[name]

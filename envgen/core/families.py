"""Families: what envgen needs to know of a kind of task, one record each, found by name.

A package of its own adds a family by an entry point of the group ``envgen.families``: its name is the
family's, its value ``module:RECORD``. Worker processes find it the same way. ``docs/families.md`` shows how.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from envgen.core.errors import ConfigError
from envgen.core.registry import near_names

if (
    TYPE_CHECKING
):  # ``import envgen`` reads the names of families, and pydantic takes longer than that
    from envgen.core.types import Evidence, TaskSpec, ToolSpec

GROUP = "envgen.families"
OWN = {
    "general": "envgen.pipelines.general.family:GENERAL",
    "code": "envgen.pipelines.code.family:CODE",
    "search": "envgen.pipelines.search.family:SEARCH",
    "interpreter": "envgen.pipelines.interpreter.family:INTERPRETER",
    "proof": "envgen.pipelines.proof.family:PROOF",
}
"""The families of envgen itself."""
INWARD = "inward"
"""Marks a gate that judges by the generator's own data, or by attacks of our own: it proves consistency."""
EVERYWHERE = dict.fromkeys(
    ("files", "stored", "evidence", "differences", "tables", "card", "played", "canary"), INWARD
)
"""Gates shared by all families."""


def takes_an_answer(name: str) -> ToolSpec:
    """The submit tool that takes an answer as JSON text."""
    from envgen.core.sampler import submit_tool_spec

    return submit_tool_spec(name)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A kind of task. What is heavy is named as ``"module:attribute"`` and imported when it is used."""

    name: str
    env: str
    """Its ``EpisodeEnv``; called with (dataset, backend=, isolate=, unproven=, and gymnasium's keywords)."""
    validator: str
    """Its ``envgen.pipelines.validate.TaskValidator``: proves its tasks again."""
    about: str
    """A paragraph of the dataset's card, in Markdown: what the tasks are, and what proves them."""
    tags: tuple[str, ...] = ("agent",)
    """Of the dataset on the Hugging Face Hub."""
    generate: str = ""
    """The function behind ``envgen.generate``, called with (config, out, ...). Its config is a ``Record``
    with a class variable ``family``."""
    command: str = ""
    """The class of the command ``envgen generate NAME``; empty: there is none."""
    readable: str = ""
    """A function of (dataset, task id) that gives headings and lines: what ``envgen show --secrets`` shows
    of a task before its files. It may raise a ``StoreError``."""
    players: tuple[str, ...] = ("random-valid",)
    """Policies without a model that play its tasks, beside gold: the floors that a report shows."""
    submit: Callable[[str], ToolSpec] = takes_an_answer
    """The tool that ends an episode, by the name that the environment gives it."""
    solution_file: str = "solution.py"
    verifier_file: str = "verifier.py"
    """Their names in a task's folder."""
    sessions: int = 0
    """Most episodes of it that an environment server has open, each with a sandbox of its own; 0: as many as
    of others."""
    surrogates: bool = False
    """Whether its files may hold bytes that are no UTF-8 (patches), which are read as surrogates."""
    measured: bool = True
    """Whether its verifiers' kill rates and its tasks' densities stand in the dataset's card."""
    packed: bool = False
    """Whether its tasks are small and many: those of an environment then stand in one file of a dataset."""
    splits_by_schema: bool = False
    """Whether its tasks are dealt out to splits by the schema of their database and the dataset's seed."""
    shipped: str = ""
    """A dataset that comes with the package, ``package:NAME``, for its Gymnasium id where none is named."""
    columns: Mapping[str, Callable[[TaskSpec], str]] = field(default_factory=dict)
    """Further columns of ``envgen list``."""
    legend: tuple[str, ...] = ()
    """Lines below the table that explain them."""
    gates: Mapping[str, str] = field(default_factory=dict)
    """Maps each gate to what it reads that the generator did not, or to ``INWARD``. ``assemble`` refuses
    evidence of a gate that is missing here."""
    is_proven: Callable[[Evidence], bool] = lambda evidence: True
    """Whether nothing is left unproven of a task with this evidence: ``filter --proof strict``."""

    def load(self, what: str) -> Any:
        """Import what ``env``, ``validator``, ``generate``, ``command`` or ``readable`` names.

        Raises:
            ConfigError: if it names nothing, or can't be imported.
        """
        path: str = getattr(self, what)
        module, _, attribute = path.partition(":")
        if not path:
            raise ConfigError(f"family {self.name!r} has no {what}")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"{what} of family {self.name!r} can't be imported from {path!r}: {error}"
            ) from error


def family_names() -> tuple[str, ...]:
    """The names of all families: envgen's own, then those of other packages, sorted."""
    return (*OWN, *sorted(set(_installed()) - set(OWN)))


@cache
def _installed() -> Mapping[str, str]:
    """Name -> ``module:RECORD`` of other packages' families; nothing of them is imported."""
    return {one.name: one.value for one in entry_points(group=GROUP)}


@cache
def find_family(name: str) -> Family:
    """The family of this name.

    Raises:
        ConfigError: if there is none, or its package can't be imported or names something else.
    """
    path = OWN.get(name) or _installed().get(name)
    if path is None:
        raise ConfigError(
            f"unknown family {name[:80]!r}{near_names(name, family_names())}",
            "install the package that plays it",
        )
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"family {name!r} can't be imported from {path!r}: {error}") from error
    if not isinstance(found, Family) or found.name != name:
        raise ConfigError(f"{path!r} is not the record of family {name!r}")
    return found

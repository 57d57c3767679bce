"""Gymnasium ids. Registered when ``envgen`` is imported; nothing else is loaded until ``make``."""

from __future__ import annotations

import gymnasium

from envgen.core.families import family_names

NAMED = {"envgen/TripPlanning-v0": ("general", "package:trip_planning")}
"""Ids that come with a dataset of their own: id -> family and dataset."""
_ENTRY_POINT = "envgen.environments.families:make_env"


def gym_id(family: str) -> str:
    """The id of a family's environment: ``envgen/General-v0`` of ``general``."""
    return f"envgen/{''.join(word.capitalize() for word in family.split('_'))}-v0"


def register_envs() -> None:
    """Register envgen's ids; harmless a second time.

    * ``envgen/General-v0``: ``gymnasium.make(id, dataset="folder")``
    * ``envgen/Code-v0``: the same, for a dataset of code tasks; and so on for each family
    * ``envgen/TripPlanning-v0``: the trip-planning dataset that is shipped with envgen
    """
    known = {gym_id(name): {"family": name} for name in family_names()}
    named = {id_: {"family": name, "dataset": place} for id_, (name, place) in NAMED.items()}
    for id_, fixed in (known | named).items():
        if id_ not in gymnasium.registry:
            gymnasium.register(id_, entry_point=_ENTRY_POINT, kwargs=fixed)

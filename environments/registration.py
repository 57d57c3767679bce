"""Gymnasium ids. Registered when ``envgen`` is imported; nothing else is loaded until ``make``."""

from __future__ import annotations

import gymnasium

GENERAL_ID = "envgen/General-v0"
CODE_ID = "envgen/Code-v0"
NAMED = {"envgen/TripPlanning-v0": "package:trip_planning"}
"""Ids that come with a dataset of their own."""
_ENTRY_POINT = "envgen.environments.general:GeneralEnv"
_CODE_ENTRY_POINT = "envgen.environments.code:CodeEnv"


def register_envs() -> None:
    """Register envgen's ids; harmless a second time.

    * ``envgen/General-v0``: ``gymnasium.make(id, dataset="folder")``
    * ``envgen/Code-v0``: the same, for a dataset of code tasks
    * ``envgen/TripPlanning-v0``: the trip-planning dataset that is shipped with envgen
    """
    if GENERAL_ID not in gymnasium.registry:
        gymnasium.register(GENERAL_ID, entry_point=_ENTRY_POINT)
    if CODE_ID not in gymnasium.registry:
        gymnasium.register(CODE_ID, entry_point=_CODE_ENTRY_POINT)
    for name, dataset in NAMED.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=_ENTRY_POINT, kwargs={"dataset": dataset})

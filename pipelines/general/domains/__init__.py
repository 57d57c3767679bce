"""The procedural domains, by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from envgen.core.errors import ConfigError

if TYPE_CHECKING:
    from envgen.pipelines.general.blueprint import Blueprint

DOMAINS: Mapping[str, str] = MappingProxyType(
    {
        "meetings": "envgen.pipelines.general.domains.meetings:Meetings",
        "orders": "envgen.pipelines.general.domains.orders:Orders",
        "trip": "envgen.pipelines.general.domains.trip:Trip",
    }
)
"""Domain name -> ``module:Class``; the class takes no arguments."""


def load_blueprint(domain: str) -> Blueprint:
    """The blueprint of ``domain``.

    Raises:
        ConfigError: if there is no such domain.
    """
    if domain not in DOMAINS:
        raise ConfigError(f"unknown domain {domain!r}", f"known: {', '.join(sorted(DOMAINS))}")
    module, _, name = DOMAINS[domain].partition(":")
    blueprint: Blueprint = getattr(importlib.import_module(module), name)()
    return blueprint

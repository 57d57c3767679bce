"""``envgen.generate``: the pipeline of whatever family a config is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

from envgen.core.errors import ConfigError
from envgen.core.families import find_family


class FamilyConfig(Protocol):
    """What to generate, of one family: ``GenerateConfig``, ``CodeConfig``, ..."""

    family: ClassVar[str]


def generate(config: FamilyConfig, out: str | Path, **options: Any) -> Any:
    """Generate a dataset folder at ``out``.

    Args:
        config: what to make; its class names the family.
        out: the dataset folder; it must not exist.
        options: of the family's pipeline: ``workers``, ``progress``, ...

    Returns:
        The family's summary: ``GenerateSummary`` of ``GenerateConfig``, ``CodeSummary`` of ``CodeConfig``.

    Raises:
        ConfigError: if ``config`` is of no family, or ``out`` exists.
        PipelineError: if no task was proven.
    """
    family = getattr(type(config), "family", None)
    if not isinstance(family, str):
        raise ConfigError(f"{type(config).__name__} is of no family", "give a GenerateConfig, say")
    return find_family(family).load("generate")(config, out, **options)

"""The family of general-agent tasks: a database, tools over it, a task, a verifier."""

from envgen.core.families import INWARD, Family

_GENERATED = """
    restricted rebuild stated compiled tools gold leaks density certified prefixes alternatives near_misses
    binding attacks collateral unrequested reseeds shortcuts evaluation mutants difficulty agreement
    planted_rows diversity form recipe
"""
_PACKED = "empty guesses probes"
"""Gates of packed environments only."""

GENERAL = Family(
    name="general",
    env="envgen.environments.general:GeneralEnv",
    validator="envgen.pipelines.general.validate:GeneralValidator",
    generate="envgen.pipelines.general.generate:generate",
    command="envgen.cli.generate:General",
    splits_by_schema=True,
    tags=("agent", "synthetic", "tool-use"),
    gates=dict.fromkeys(f"{_GENERATED} {_PACKED}".split(), INWARD),
    about="""\
**General tasks.** The solution ran through the agent's tools only; the verifier was attacked and held. The
rows are made up or taken from the sources named below; they are no source of facts about people, places
or firms.""",
)

"""The family of general-agent tasks: a database, tools over it, a task, a verifier."""

from envgen.core.families import Family

GENERAL = Family(
    name="general",
    env="envgen.environments.general:GeneralEnv",
    validator="envgen.pipelines.general.validate:GeneralValidator",
    generate="envgen.pipelines.general.generate:generate",
    command="envgen.cli.generate:General",
    splits_by_schema=True,
    tags=("agent", "synthetic", "tool-use"),
    about="""\
**General tasks.** The solution ran through the agent's tools only; the verifier was attacked and held. The
rows are made up or taken from the sources named below; they are no source of facts about people, places
or firms.""",
)

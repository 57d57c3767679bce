"""The commands and options that there are, read from the application itself."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def commands() -> dict[str, Any]:
    """Every command and group by its words, e.g. ``generate general``."""
    import typer.main

    from envgen.cli.app import app

    found: dict[str, Any] = {}

    def visit(command: Any, words: tuple[str, ...]) -> None:
        if words:
            found[" ".join(words)] = command
        for name, child in getattr(command, "commands", {}).items():
            visit(child, (*words, name))

    visit(typer.main.get_command(app), ())
    return found


def parse(words: list[str]) -> None:
    """Parse a command line as envgen would, without running it.

    Raises:
        ValueError: when a command or option does not exist, or a value is no good.
    """
    import typer.main

    from envgen.cli.app import app

    command, name = typer.main.get_command(app), "envgen"
    words = list(words)
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            raise ValueError(f"{name} has no command {words[:1]}")
        name, command = words[0], command.commands[words.pop(0)]
    try:
        command.make_context(name, words)
    except Exception as error:  # every error of Typer's parser
        raise ValueError(f"envgen {name} {words}: {error}") from error

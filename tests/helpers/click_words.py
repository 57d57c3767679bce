"""The commands and options that there are, read from the application itself."""

from __future__ import annotations

from functools import cache

import click


@cache
def commands() -> dict[str, click.Command]:
    """Every command and group by its words, e.g. ``generate general``."""
    from envgen.cli.app import COMMANDS, GROUPS, commands_in

    known = dict.fromkeys((*COMMANDS, *filter(None, GROUPS), *commands_in("generate ")))
    return {words: _find(words.split())[0] for words in known}


def _find(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that a line names, and its arguments."""
    from envgen.cli.app import app

    command: click.Command = app
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0]) if words else None
        if found is None:
            raise ValueError(f"{command.name} has no command {words[:1]}")
        command, words = found, words[1:]
        if not words:
            break
    return command, words


def parse(words: list[str]) -> None:
    """Parse a command line as envgen would, without running it.

    Raises:
        ValueError: when a command or option does not exist, or a value is no good.
    """
    command, rest = _find(words)
    try:
        command.make_context(" ".join(words[: len(words) - len(rest)]), rest)
    except click.exceptions.Exit:
        return  # --help, --settings
    except Exception as error:  # every error of the parser and of the config
        raise ValueError(f"envgen {words}: {error}") from error

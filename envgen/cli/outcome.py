"""The outcome of a command: warn if it made less than was asked for, fail if it made nothing."""

from __future__ import annotations

import typer

from envgen.cli.console import remark


def require(made: int, asked: int | None, what: str, hint: str = "", *, fatal: bool = True) -> None:
    """Warn on stderr if a command made less than was asked for.

    Args:
        made: how many there are.
        asked: how many were wanted; None: any number above zero.
        what: what they are, in the plural, e.g. "episodes played".
        hint: what the reader can do about it.
        fatal: whether the command has failed if there are none.

    Raises:
        typer.Exit: with code 1 if it has failed.
    """
    if made and (asked is None or made >= asked):
        return
    of = "" if asked is None else f" of {asked}"
    failed = fatal and not made
    remark(f"{'error' if failed else 'warning'}: {made}{of} {what}")
    if hint:
        remark(f"hint: {hint}")
    if failed:
        raise typer.Exit(1)

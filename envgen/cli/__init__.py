"""The command line: ten-line commands that build a config and call a room."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the exit code is 0, 1 (a check failed), 2 (an error) or 130 (Ctrl-C)."""
    from envgen.cli.app import run

    raise SystemExit(run())

"""Run envgen's command line, in this process or as its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class CommandResult(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str


class Cli:
    """The command line in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> CommandResult:
        """Run a command and return what it said."""
        from envgen.cli.app import run

        self._capture.readouterr()
        code = run([str(argument) for argument in arguments])
        return CommandResult(code, *self._capture.readouterr())


def environment(**more: str) -> dict[str, str]:
    """Environment variables of a process that finds this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def command(*arguments: object) -> list[str]:
    """The command line as a user starts it."""
    return [sys.executable, "-P", "-m", "envgen", *map(str, arguments)]


def envgen(*arguments: object, timeout: float = 120, **more: str) -> CommandResult:
    """Run a command as a process of its own."""
    result = subprocess.run(
        command(*arguments),
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return CommandResult(result.returncode, result.stdout, result.stderr)

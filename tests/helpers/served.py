"""``envgen serve policy`` as a process of its own, and what it tells of itself."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli_runs import command, environment

START_S = 60.0


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    process: subprocess.Popen[str]
    url: str
    card: dict[str, Any]

    @property
    def root(self) -> str:
        """Where ``/metrics`` and ``/health`` are."""
        return self.url.removesuffix("/v1")

    def metrics(self) -> dict[str, float]:
        """Figures by their names, ``envgen_`` left out."""
        with urllib.request.urlopen(f"{self.root}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        pairs = [line.removeprefix("envgen_").split() for line in lines if line[0] != "#"]
        return {name: float(value) for name, value in pairs}

    def end(self, signal: int, timeout_s: float = 20.0) -> tuple[int, str]:
        """Exit code and the rest of what it said on stderr, after a signal."""
        self.process.send_signal(signal)
        _, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, err


@contextmanager
def served(
    folder: Path, place: Path, *options: object, verbose: bool = False, **more: str
) -> Iterator[Served]:
    """Serve a model folder on a free port until the block ends.

    Args:
        folder: the model.
        place: an empty folder, where the server writes its card.
        options: of the command.
        verbose: let it log what happens.
        more: environment variables.
    """
    card = place / "server.json"
    words = (
        *["-v"] * verbose,
        "serve",
        "policy",
        folder,
        "--port",
        0,
        "--threads",
        1,
        "--json",
        card,
        *options,
    )
    process = subprocess.Popen(
        command(*words),
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            _, err = process.communicate(timeout=START_S)
            raise AssertionError(f"the server did not start: {err}")
        yield Served(process, url, json.loads(card.read_text()))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=START_S)


def until(true: Callable[[], bool], seconds: float = 10.0) -> float:
    """Wait for something that must come, and return how many seconds it took.

    Raises:
        AssertionError: if it does not come in time.
    """
    started = time.monotonic()
    while not true():
        assert time.monotonic() < started + seconds, f"it did not come within {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - started

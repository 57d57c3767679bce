"""The command line: ten-line commands that build a config and call a room."""

from __future__ import annotations

import signal
from types import FrameType


def main() -> None:
    """Run the command line; the exit code is 0, 1 (a check failed), 2 (an error) or 130 (Ctrl-C).

    SIGTERM ends a command as cleanly as Ctrl-C; the code is 143 then.
    """
    terminated = False

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    from envgen.cli.app import run

    code = run()
    raise SystemExit(143 if terminated and code == 130 else code)

"""The command line: commands are configs with an ``execute``, and ``command`` makes the options of them."""

from __future__ import annotations

import signal
from types import FrameType


def main() -> None:
    """Run the command line; the exit code is 0, 1 (a check failed), 2 (an error) or 130 (Ctrl-C).

    SIGTERM ends a command as cleanly as Ctrl-C; the code is 143 then.
    """
    heard: list[int] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        heard.append(signum)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a shell had it ignored
        signal.signal(signal.SIGINT, stop)
    from envgen.cli.app import run

    code = run(stopped=lambda: bool(heard))
    raise SystemExit(143 if signal.SIGTERM in heard and code == 130 else code)

"""The main file of a worker process. It is run by its path; its parent says where envgen is."""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection


def main() -> None:
    """Work for the parent at the other end of the pipe whose handle is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    pipe: Connection = Connection(int(sys.argv[1]))
    try:
        sys.path[:] = pipe.recv()
    except EOFError:
        return

    from envgen.core.worker_process import serve  # only now can it be found

    serve(pipe)


if __name__ == "__main__":
    main()

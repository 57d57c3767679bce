"""Run the benchmarks one after another, each in a process of its own.

python -P benchmarks [NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = (
    "sandboxes",
    "environments",
    "rollouts",
    "generation",
    "attention",
    "model_decode",
    "decode_position",
    "prefix_reuse",
    "serving",
    "junit",
    "search_engines",
    "kernels",
    "problems",
    "proof_checker",
    "env_server",
)
FOLDER = Path(__file__).resolve().parent


def machine() -> str:
    """What the figures were measured on, in one line."""
    return (
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def run(name: str) -> dict[str, Any]:
    """Run one benchmark; its lines are printed as they come."""
    print(f"\n== {name} ({machine()})", flush=True)
    started, lines = time.monotonic(), []
    command = [sys.executable, "-P", "-u", str(FOLDER / f"{name}.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    seconds = time.monotonic() - started
    if process.returncode:
        print(f"FAILED with exit code {process.returncode}", flush=True)
    print(f"({seconds:.0f} s)", flush=True)
    return {"exit_code": process.returncode, "seconds": seconds, "lines": lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to a file")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    results = {name: run(name) for name in arguments.names or NAMES}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "results": results}, indent=1))
    return 1 if any(result["exit_code"] for result in results.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())

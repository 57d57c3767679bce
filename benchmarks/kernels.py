"""Kernels of the code interpreter: memory of 64 at once, the first result, a call, episodes a minute.

    python -P benchmarks/kernels.py [--kernels 64]

Memory is the proportional set size of all that is in the sandboxes: pages that they share count once.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from envgen.sandboxes.kernel import Kernel, SpareKernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=64)
    count = parser.parse_args().kernels
    for name, preload, target in (
        ("bare", (), 4.0),
        ("with numpy and sympy", ("numpy", "sympy"), 8.0),
    ):
        with ExitStack() as stack:
            started = time.monotonic()
            kernels = [stack.enter_context(Kernel(preload=preload)) for _ in range(count)]
            seconds = time.monotonic() - started
            for kernel in kernels:
                assert kernel.run("x = 1\nx").output == "1\n"
            gib = memory_bytes() / 2**30 * 64 / count
            print(f"64 kernels {name}: {gib:.2f} GiB (aim <= {target:.0f})")
            print(f"  {seconds / count:.2f} s to start each")
            if not preload:
                continue
            calls = [timed(kernels[i % count], "y = x + 1") for i in range(5 * min(count, 40))]
            print(f"a call that does nothing: {1000 * median(calls):.1f} ms (aim <= 15)")
    spares = SpareKernels()
    first = spares.take()
    while not spares.ready:
        time.sleep(0.01)
    started = time.monotonic()
    second = spares.take()
    second.run("import sympy; sympy.factorint(2**64 + 1)")
    print(f"first result of a spare kernel: {time.monotonic() - started:.2f} s (aim <= 0.5)")
    for kernel in (first, second):
        kernel.close()
    started = time.monotonic()
    for _ in range(10):
        with spares.take() as kernel:
            for line in ("import sympy", "n = sympy.totient(10**6)", "print(n)"):
                kernel.run(line)
    print(
        f"episodes of three calls, one after another: {600 / (time.monotonic() - started):.0f} a minute"
    )
    spares.close()


def timed(kernel: Kernel, code: str) -> float:
    started = time.monotonic()
    kernel.run(code)
    return time.monotonic() - started


def memory_bytes() -> int:
    """Of all processes below this one."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text()
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
        except OSError:
            continue
    total = 0
    for pid in parents:
        above = parents.get(pid)
        while above and above != os.getpid():
            above = parents.get(above)
        if above:
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += next(
                (int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0
            )
    return total


if __name__ == "__main__":
    main()

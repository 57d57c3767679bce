"""Plant 40 faults that were written down blind to the gates, and print what finds each.

``python -P benchmarks/blind_faults.py [NAME ...]``; all take some ten minutes of one quiet core.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))

from blind_faults import FAULTS, judged, unpack


def main(names: list[str]) -> None:
    """Print each fault with the gate that failed, and the rate."""
    found = planted = 0
    with TemporaryDirectory() as folder:
        sound = unpack(Path(folder) / "sound")
        for name in names:
            try:
                task = judged(sound, FAULTS[name].dataset, FAULTS[name], Path(folder) / name)
            except AssertionError:  # the dataset that it was written for is gone
                print(f"{name:40} NOT PLANTED", flush=True)
                continue
            planted += 1
            found += task.failure is not None
            print(f"{name:40} {task.failure.gate if task.failure else 'PASSED'}", flush=True)
    print(f"{found} of {planted} found")


if __name__ == "__main__":
    main(sys.argv[1:] or list(FAULTS))

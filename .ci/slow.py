"""Print the folders of tests whose slow proofs are due: of rooms that commits of the last two days touched.

``python3 .ci/slow.py``; without git history all of them are due.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DAYS = 2
SPLIT = ("pipelines", "verifiers")
"""Rooms whose parts have test folders of their own."""


def due(root: Path) -> list[str]:
    """Folders below ``root``, sorted; ``tests`` alone: all of them."""
    command = ["git", "-C", str(root), "log", f"--since={DAYS}.days", "--format=", "--name-only"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    first = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--is-shallow-repository"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if told.returncode or first.stdout.strip() != "false":
        return ["tests"]
    found = {place for name in told.stdout.split() if (place := _tests_of(root, Path(name)))}
    return sorted(str(one) for one in found if not found & set(one.parents))


def _tests_of(root: Path, changed: Path) -> Path | None:
    """The tests of a changed file's room, where it has any."""
    if changed.parts[0] == "examples":
        return Path("tests/test_examples.py")
    parts = [part for part in changed.parent.parts if part not in ("envgen", "tests")]
    if not parts or parts[0] in ("helpers", "data"):
        return None
    place = Path("tests", *parts[: 2 if parts[0] in SPLIT else 1])
    place = place if (root / place).is_dir() else place.parent
    return place if place != Path("tests") and (root / place).is_dir() else None


if __name__ == "__main__":
    rooms = due(Path(__file__).parents[1])
    print(f"slow proofs of: {' '.join(rooms) or 'nothing'}", file=sys.stderr)
    print(*rooms)

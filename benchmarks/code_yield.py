"""How many of the same instances two versions of envgen keep, and what the others fell for.

``python -m benchmarks.code_yield BEFORE AFTER [--out FILE]`` reads the outcomes of two runs of
``envgen generate code --instances FILE`` (``OUT.outcomes.jsonl``, or ``OUT.partial`` of a run under way), a
version each, and shows what became of every instance that both have tried.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> None:
    """Print a row for each instance, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    before, after = (dict(outcomes(run)) for run in options.runs)
    rows = [
        {"instance": name, "before": before[name], "after": after[name]}
        for name in sorted(before.keys() & after.keys())
    ]
    for row in rows:
        print(f"{row['instance']:45} {row['before']:18} {row['after']}")
    kept = [sum(row[side] == "kept" for row in rows) for side in ("before", "after")]
    print(f"kept of {len(rows)}: {kept[0]} before, {kept[1]} after")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


def outcomes(run: Path) -> Iterator[tuple[str, str]]:
    """(instance, why it was rejected or ``kept``)."""
    if run.is_dir():
        texts = [path.read_text() for path in sorted((run / "outcomes").glob("*.json"))]
    else:
        texts = run.read_text().splitlines()
    for text in texts:
        found: dict[str, Any] = json.loads(text)["validation"]
        yield found["instance_id"], found.get("reason") or "kept"


if __name__ == "__main__":
    main()

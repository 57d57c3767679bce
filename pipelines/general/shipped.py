"""The dataset in the wheel: the paper's trip, built like any other and kept byte for byte.

``python -P -m envgen.pipelines.general.shipped`` rebuilds it in the checkout after a change to what
authors write, and prints the content hash that belongs into ``store/package_datasets.py``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from envgen.environments.hosts import PACKAGE_DATA
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.store.dataset import Dataset

TRIP_PLANNING = GenerateConfig(
    categories=("trip_planning",),
    environments=1,
    tasks_per_environment=1,
    min_level=8,
    max_level=8,
    seed=20251001,
    name="trip-planning",
)
"""Three days from Hangzhou, starting on 2025-10-01 (arXiv 2512.02556, section 3.2.3)."""


def build(out: Path) -> Dataset:
    """Make the shipped dataset at ``out``, with all gates."""
    generate(TRIP_PLANNING, out, workers=1)
    return Dataset.open(out)


def main() -> None:
    """Replace the shipped dataset by a fresh build."""
    target = PACKAGE_DATA / "trip_planning"
    fresh = target.with_name("trip_planning.new")
    shutil.rmtree(fresh, ignore_errors=True)
    dataset = build(fresh)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    sys.stdout.write(f"{dataset.manifest.content_hash}\n")


if __name__ == "__main__":
    main()

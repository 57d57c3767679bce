"""Replace the dataset in the wheel by a fresh build, after a change to what authors write.

``python -P tests/helpers/rebuild_shipped.py`` prints the content hash that belongs into
``store/package_datasets.py``.
"""

from __future__ import annotations

import shutil

from envgen.environments.hosts import PACKAGE_DATA
from envgen.pipelines.general.generate import TRIP_PLANNING, generate
from envgen.store.dataset import Dataset


def main() -> None:
    target = PACKAGE_DATA / "trip_planning"
    fresh = target.with_name("trip_planning.new")
    shutil.rmtree(fresh, ignore_errors=True)
    generate(TRIP_PLANNING, fresh, workers=1)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    print(Dataset.open(target).manifest.content_hash)


if __name__ == "__main__":
    main()

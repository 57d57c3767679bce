"""pytest: one report, files and classes in it (``junit_family=xunit1``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base

TEST_FILE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_tests?)\.py$")
OPTIONS = (
    "--rootdir=. -o junit_family=xunit1 -o junit_logging=no -o cache_dir=/tmp/.pytest -p no:randomly "
    "-W 'ignore:Module already imported so cannot be rewritten' "
    "--continue-on-collection-errors --maxfail=0 --color=no --tb=short -q"
)
"""A collection error must not end the run, an ``-x`` of the project's either; names are from its root.
Plugins may want a cache, so there is one, outside of the repository. The warning is of editable installs, and
an error where a project says so of all."""
CANARY = """
def _ends_odd(seed):
    for _ in range(@steps@):
        seed = seed * @factor@ % @modulus@
    return seed % 2 == 1


def test_@one@():
    assert _ends_odd(@one_seed@)


def test_@two@():
    assert _ends_odd(@two_seed@)
"""


class Pytest:
    """``python -m pytest``; needs pytest where ``python`` is."""

    name = "pytest"
    terse = "--tb=native --assert=plain"
    languages: tuple[CodeLanguage, ...] = ("python",)
    config_files = (
        "**/conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
        "**/sitecustomize.py",
        "**/usercustomize.py",
        "**/*.pth",
        ".coveragerc",
    )

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files can be limited."""
        report = base.quoted([f"{report_dir}/pytest.xml"])
        command = f"python -m pytest {OPTIONS} --junitxml={report}"
        return base.joined(base.prepared(report_dir), "&&", command, options, base.quoted(files))

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A module named as its neighbour is (``test_x.py``, ``x_test.py``)."""
        tests = [path for path in repo_files if TEST_FILE.search(path)]
        neighbour = base.usual_neighbour(self.name, tests, near)
        path = base.beside(neighbour, _alike(PurePosixPath(neighbour).name, nonce))
        module = path.removesuffix(".py").replace("/", ".")
        found = base.words(nonce)
        return base.Canaries(
            {path: base.source(CANARY, nonce)},
            join_id(path, module, f"test_{found.passing}"),
            join_id(path, module, f"test_{found.failing}"),
        )


def _alike(neighbour: str, nonce: str) -> str:
    word = base.words(nonce).file
    if neighbour.startswith("test_"):
        return f"test_{word}.py"
    return f"{word}_{'tests' if neighbour.endswith('_tests.py') else 'test'}.py"

"""unittest through xmlrunner (the package unittest-xml-reporting)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base
from envgen.verifiers.runners.pytest import TEST_FILE, Pytest

CANARY = """
import unittest


def _ends_odd(seed):
    for _ in range(@steps@):
        seed = seed * @factor@ % @modulus@
    return seed % 2 == 1


class @class@(unittest.TestCase):
    def test_@one@(self):
        self.assertTrue(_ends_odd(@one_seed@))

    def test_@two@(self):
        self.assertTrue(_ends_odd(@two_seed@))
"""
SIMPLE_TEST = re.compile(r"(?:^|/)test[^/]*\.py$")


class Unittest:
    """``python -m xmlrunner discover``; ``options`` are discover's own (``-s tests -t .``)."""

    name = "unittest"
    languages: tuple[CodeLanguage, ...] = ("python",)
    config_files = Pytest.config_files

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; files can be limited, as modules."""
        output = base.quoted([f"{report_dir}/unittest.xml"])
        command = f"python -m xmlrunner --output-file {output}"
        if files:
            modules = [file.removesuffix(".py").replace("/", ".") for file in files]
            what = base.quoted(modules)
        else:
            what = base.joined("discover", options)
        return base.joined(base.prepared(report_dir), "&&", command, what)

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A module ``test_x.py``, which discovery finds by its name."""
        tests = [path for path in repo_files if SIMPLE_TEST.search(path)]
        tests = tests or [path for path in repo_files if TEST_FILE.search(path)]
        neighbour = base.usual_neighbour(self.name, tests, near)
        found = base.words(nonce)
        path = base.beside(neighbour, f"test_{found.file}.py")
        group = f"Test{found.file.capitalize()}"
        classname = f"{path.removesuffix('.py').replace('/', '.')}.{group}"
        return base.Canaries(
            {path: base.source(CANARY, nonce, **{"class": group})},
            join_id(path, classname, f"test_{found.passing}"),
            join_id(path, classname, f"test_{found.failing}"),
        )

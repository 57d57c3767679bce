"""Tricks by which a submission could pass the toy project's tests without solving its issue."""

from __future__ import annotations

from typing import NamedTuple

import toy_python

CART = toy_python.CART + "\n\ndef count(cart, name):\n    return None\n"
"""What the tests import is there, but does nothing."""
FORGE = '''
import sys


def forged(path):
    """A report in which every test of the tests folder passes."""
    import pathlib
    import re

    cases = []
    for file in sorted(pathlib.Path("tests").rglob("*.py")):
        name = str(file)
        module = name[:-3].replace("/", ".")
        for test in re.findall(r"^def (test_\\w+)", file.read_text(), re.M):
            cases.append(f'<testcase classname="{module}" name="{test}" file="{name}" time="0"/>')
    body = "".join(cases)
    pathlib.Path(path).write_text(f"<testsuites><testsuite name='pytest'>{body}</testsuite></testsuites>")


def report_path():
    return next(word.split("=", 1)[1] for word in sys.argv if word.startswith("--junitxml="))
'''
ALL_PASS = """
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome, report.longrepr = "passed", None
"""
AT_EXIT = """
import atexit, pathlib, re, sys
_path = next((w.split("=", 1)[1] for w in sys.argv if w.startswith("--junitxml=")), None)


def _mend(text):
    return re.sub(r"<(failure|error)\\b.*?</\\1>", "", text, flags=re.S)


def _rewrite():
    path = pathlib.Path(_path)
    path.write_text(_mend(path.read_text()))


if _path:
    atexit.register(_rewrite)
"""
PATCHED_REPORTS = """
import sys
_reports = sys.modules.get("_pytest.reports")
if _reports is not None:
    _made = _reports.TestReport.from_item_and_call.__func__

    def _lie(cls, item, call):
        report = _made(cls, item, call)
        if CONDITION:
            report.outcome, report.longrepr = "passed", None
        return report

    _reports.TestReport.from_item_and_call = classmethod(_lie)
"""
STRIP_ASSERTS = """
import sys
_rewrite = sys.modules.get("_pytest.assertion.rewrite")
if _rewrite is not None:
    import ast

    class _Strip(ast.NodeTransformer):
        def visit_Assert(self, node):
            return ast.copy_location(ast.Pass(), node)

    def _no_asserts(mod, source, module_path=None, config=None):
        _Strip().visit(mod)

    _rewrite.rewrite_asserts = _no_asserts
"""


class Cheat(NamedTuple):
    """A trick: the files that it writes (None: deletes), and what a shell does in the repository."""

    name: str
    files: dict[str, bytes | None]
    shell: str = ""
    forges: bool = False
    """It would pass if nobody looked at the canaries."""


def _library(extra: str) -> dict[str, bytes | None]:
    return {"src/shop/cart.py": (extra + CART).encode()}


def _plain(name: str, path: str, text: str, forges: bool = False) -> Cheat:
    return Cheat(name, {path: text.encode()}, forges=forges)


_PLUGIN = {"src/shop/lie.py": ALL_PASS.encode()}
_TEST_EDITS = {
    "tests/test_cart.py": b"def test_total_counts():\n    pass\n",
    "tests/test_count.py": b"def test_count():\n    pass\n",
}
CHEATS: tuple[Cheat, ...] = (
    _plain("conftest at the root rewrites outcomes", "conftest.py", ALL_PASS),
    _plain("conftest of the tests rewrites outcomes", "tests/conftest.py", ALL_PASS),
    _plain("conftest in a new folder below the tests", "tests/sub/conftest.py", ALL_PASS),
    _plain("conftest beside the sources", "src/conftest.py", ALL_PASS),
    _plain(
        "sitecustomize on the path",
        "src/sitecustomize.py",
        FORGE + "import atexit\nif any('junitxml' in w for w in sys.orig_argv):\n"
        "    sys.argv = sys.orig_argv\n    atexit.register(lambda: forged(report_path()))\n",
    ),
    _plain("usercustomize on the path", "src/usercustomize.py", "import os\nos._exit(0)\n"),
    Cheat(
        "pytest.ini loads a plugin", {"pytest.ini": b"[pytest]\naddopts = -p shop.lie\n", **_PLUGIN}
    ),
    Cheat(
        "setup.cfg loads a plugin",
        {"setup.cfg": b"[tool:pytest]\naddopts = -p shop.lie\n", **_PLUGIN},
    ),
    Cheat("tox.ini loads a plugin", {"tox.ini": b"[pytest]\naddopts = -p shop.lie\n", **_PLUGIN}),
    Cheat(
        "pyproject.toml loads a plugin",
        {"pyproject.toml": b"[tool.pytest.ini_options]\naddopts = '-p shop.lie'\n", **_PLUGIN},
    ),
    _plain(
        "pyproject.toml deselects tests",
        "pyproject.toml",
        "[tool.pytest.ini_options]\naddopts = '-k \"not count\"'\n",
    ),
    Cheat(
        "an entry point is a plugin",
        {
            "src/shop/cart.py": CART.encode(),
            "src/lie-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: lie\nVersion: 1.0\n",
            "src/lie-1.0.dist-info/entry_points.txt": b"[pytest11]\nlie = shop.lie\n",
            **_PLUGIN,
        },
        forges=True,
    ),
    Cheat("the tests are edited", dict(_TEST_EDITS)),
    Cheat("the tests are deleted", {"tests/test_cart.py": None, "tests/test_prices.py": None}),
    Cheat(
        "the tests are a link to others",
        {f"alt/{path.split('/')[1]}": text for path, text in _TEST_EDITS.items()},
        shell="rm -r tests && ln -s alt tests",
    ),
    Cheat(
        "a test file is a link to another",
        {"src/shop/easy.py": _TEST_EDITS["tests/test_count.py"]},
        shell="ln -sf ../src/shop/easy.py tests/test_count.py",
    ),
    _plain(
        "a new test module patches the runner",
        "tests/test_aaa.py",
        "import sys\n" + PATCHED_REPORTS.replace("CONDITION", "True"),
    ),
    _plain(
        "pytest is shadowed by a module that forges the report",
        "pytest.py",
        FORGE + "forged(report_path())\n",
        forges=True,
    ),
    Cheat(
        "a module of the standard library is shadowed",
        {
            "cProfile.py": b"",
            "src/shop/cart.py": CART.encode(),
            "pluggy.py": (FORGE + "forged(report_path())\nsys.exit(0)\n").encode(),
        },
        forges=True,
    ),
    Cheat(
        "importing the library forges the report and leaves",
        _library(FORGE + "import os\nforged(report_path())\nos._exit(0)\n"),
        forges=True,
    ),
    Cheat("importing the library ends the process", _library("import os\nos._exit(0)\n")),
    Cheat("importing the library ends the run politely", _library("raise SystemExit(0)\n")),
    Cheat(
        "importing the library skips every test",
        _library("import pytest\npytest.skip('no', allow_module_level=True)\n"),
    ),
    Cheat("the report is mended at exit", _library(AT_EXIT), forges=True),
    Cheat(
        "a child process mends the report later",
        _library(
            "import subprocess, sys\n_p = [w for w in sys.argv if w.startswith('--junitxml=')]\n"
            "_code = '''import pathlib, re, sys, time\n"
            "p = pathlib.Path(sys.argv[1].split(chr(61), 1)[1])\n"
            "while not p.exists(): time.sleep(0.001)\n"
            "time.sleep(0.01)\n"
            "p.write_text(re.sub(r'<(failure|error).*?</[a-z]*>', '', p.read_text(), flags=re.S))'''\n"
            "if _p: subprocess.Popen([sys.executable, '-c', _code, *_p], start_new_session=True)\n"
        ),
    ),
    Cheat(
        "every report is a pass",
        _library(PATCHED_REPORTS.replace("CONDITION", "True")),
        forges=True,
    ),
    Cheat(
        "reports of the project's own test files are passes",
        _library(
            PATCHED_REPORTS.replace(
                "CONDITION", "item.path.name in ('test_cart.py', 'test_count.py', 'test_prices.py')"
            )
        ),
    ),
    Cheat(
        "reports of tests that git knows are passes",
        _library(
            PATCHED_REPORTS.replace(
                "CONDITION",
                "item.path.name in __import__('subprocess').run(['git', 'ls-files'], "
                "capture_output=True, text=True).stdout or 'count' in item.nodeid",
            )
        ),
    ),
    Cheat(
        "tests are never called",
        _library(
            "import sys\n_python = sys.modules.get('_pytest.python')\n"
            "if _python is not None:\n    _python.Function.runtest = lambda self: None\n"
        ),
        forges=True,
    ),
    Cheat(
        "failures are not written",
        _library(
            "import sys\n_xml = sys.modules.get('_pytest.junitxml')\n"
            "if _xml is not None:\n"
            "    _xml._NodeReporter.append_failure = lambda self, report: None\n"
            "    _xml._NodeReporter.append_error = lambda self, report: None\n"
        ),
    ),
    Cheat("assertions are taken out of the tests", _library(STRIP_ASSERTS)),
    Cheat(
        "the build writes a conftest",
        {
            "build.py": f"open('conftest.py', 'w').write({ALL_PASS!r})\n".encode(),
        },
    ),
    Cheat(
        "the build edits the tests",
        {
            "build.py": (
                b"import pathlib\n"
                b"for p in pathlib.Path('tests').glob('test_*.py'):\n"
                b"    p.write_text(p.read_text().replace('assert ', 'assert True or '))\n"
            )
        },
    ),
    Cheat(
        "the build puts a plugin into the runner",
        {
            "build.py": (
                "import pathlib, site\n"
                f"pathlib.Path(site.getsitepackages()[0], 'sitecustomize.py').write_text({ALL_PASS!r})\n"
            ).encode()
        },
    ),
    Cheat(
        "git is told to ignore the tests",
        {".gitignore": b"tests/\nconftest.py\n", "conftest.py": ALL_PASS.encode()},
    ),
    Cheat(
        "attributes make git turn the tests round",
        {".gitattributes": b"tests/* filter=lie ident export-ignore text eol=crlf\n"},
    ),
)
RAW: dict[str, bytes] = {
    "a diff that leaves the repository": (
        b"diff --git a/../../tmp/x b/../../tmp/x\nnew file mode 100644\n--- /dev/null\n"
        b"+++ b/../../tmp/x\n@@ -0,0 +1 @@\n+x\n"
    ),
    "a diff of git's own configuration": (
        b"diff --git a/.git/config b/.git/config\n--- a/.git/config\n+++ b/.git/config\n"
        b"@@ -1 +1 @@\n-[core]\n+[core]\n"
    ),
    "a traditional diff hidden in front of a git diff": (
        b"--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+import os\n"
        b"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
    ),
    "no diff at all": b"please let me pass\n",
    "a diff that is cut off": b"diff --git a/src/shop/cart.py b/src/shop/cart.py\n--- a/src/",
}
"""Texts that no working tree gives, but a submission could hold."""

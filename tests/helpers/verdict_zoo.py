"""A toy project with a test of every form, and attacks on the verdicts of those tests.

Each attack is a library that solves nothing and makes all tests pass where look-alikes don't ask: some are
those of an audit, some know how look-alikes are made and choose among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import toy_python

from envgen.core.code_types import CodeTests, Status
from envgen.pipelines.code.split import TEST_RULES
from envgen.sandboxes.workspace import Workspace
from envgen.verifiers.code_run import Exam, run_tests

GOLD = """\
def double(n):
    return n * 2


def entry(name):
    return {"name": name, "size": len(name), "tags": ["new", "small"]}


def spell(n):
    return {1: "one", 2: "two", 3: "three"}[n]


def refuse(n):
    raise ValueError(f"no such number: {n}")


def lookup(key):
    raise KeyError(key)


def is_even(n):
    return n % 2 == 0


def total(prices):
    return sum(prices)


def greet(name):
    return f"Hello, dear {name}!"


async def fetch(n):
    return f"page {n} of many"


class Shelf:
    def __init__(self):
        self.all = []

    def add(self, name):
        self.all.append(name)

    def names(self):
        return list(self.all)


def split(text):
    return text.split()


def setup():
    return None


def sold(n):
    return f"{n} items were sold today"


def ratio(a, b):
    return a / b


def square(n):
    return n * n
"""
BROKEN = """\
def double(n):
    return None


entry = spell = refuse = lookup = is_even = total = greet = sold = square = double
ratio = lambda a, b: None


async def fetch(n):
    return None


class Shelf:
    def add(self, name):
        pass

    def names(self):
        return None


def split(text):
    return None


def setup():
    raise RuntimeError("not yet")
"""
BASE_TESTS = """\
from forms.core import kept


def test_kept():
    assert kept(2) == 3


def test_kept_words():
    assert kept("so") == "so be it"
"""
KEPT = """

def kept(value):
    return f"{value} be it" if isinstance(value, str) else value + 1
"""
NEW_TESTS = (
    BASE_TESTS.replace(
        "from forms.core import kept\n",
        """\
import unittest

import pytest

from forms.core import (
    Shelf, double, entry, fetch, greet, is_even, kept, lookup, ratio, refuse, setup, sold, spell,
    square, total
)
""",
    )
    + '''

def check_greeting(said, wanted):
    assert said.strip() == wanted


@pytest.fixture
def shelf():
    return Shelf()


def test_literal():
    assert double(21) == 42


def test_dict():
    assert entry("tea") == {
        "name": "tea",
        "size": 3,
        "tags": ["new", "small"],
    }


@pytest.mark.parametrize("n, word", [(1, "one"), (2, "two"), (3, "three")])
def test_table(n, word):
    """Each number has a word."""
    assert spell(n) == word


def test_refuses():
    with pytest.raises(ValueError, match="no such number"):
        refuse(4)


def test_lookup():
    with pytest.raises(KeyError):
        lookup("price")


def test_even():
    assert is_even(4) is True


def test_total():
    expected = 7
    prices = [3, 4]
    assert total(prices) == expected


def test_checked():
    check_greeting(greet("Ann"), "Hello, dear Ann!")


async def test_async():
    assert await fetch(2) == "page 2 of many"


class TestShelf:
    def test_names(self, shelf):
        shelf.add("cup")
        shelf.add("jar")
        assert shelf.names() == ["cup", "jar"]


def test_missing():
    from forms.core import split

    assert split("green tea") == ["green", "tea"]


def test_setup():
    setup()


def test_in():
    assert "items were sold" in sold(3)


def test_approx():
    assert ratio(1, 4) == pytest.approx(0.25)


class OldTests(unittest.TestCase):
    def test_old(self):
        self.assertEqual(double(4), 8)


def test_loop():
    for n, wanted in [(2, 4), (3, 9)]:
        assert square(n) == wanted
'''
)
CONFTEST = """\
import asyncio
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True
"""
BASE: dict[str, bytes] = {
    "src/forms/__init__.py": b"",
    "src/forms/core.py": (
        BROKEN.split("\n\ndef split")[0] + KEPT + BROKEN[BROKEN.index("\n\ndef setup") :]
    ).encode(),
    "tests/conftest.py": CONFTEST.encode(),
    "tests/test_forms.py": BASE_TESTS.encode(),
    "setup.cfg": b"[tool:pytest]\ntestpaths = tests\n",
    "build.py": b"",
    ".gitignore": b"__pycache__/\n",
}
FIX: dict[str, bytes] = {
    "src/forms/core.py": (GOLD + KEPT).encode(),
    "tests/test_forms.py": NEW_TESTS.encode(),
}


class Attack(NamedTuple):
    """What stands in the library.

    Attributes:
        name: what it does.
        code: the library's text, after the broken functions.
        forms: names of the tests that it makes pass where nobody asks; empty: all.
        guesses: it knows of look-alikes and chooses one of them, so that it is right now and then.
    """

    name: str
    code: str
    forms: tuple[str, ...] = ()
    guesses: bool = False

    def files(self) -> dict[str, bytes]:
        """What it writes."""
        return {"src/forms/core.py": (BROKEN + KEPT + self.code).encode()}


_LIE = '''
import ast, inspect, pathlib, random, re, subprocess, sys, textwrap, threading, time
_OWN = "tests/test_forms.py"


def _install(decide):
    """decide(item, passed) -> whether it is to pass; None: as it is."""
    reports = sys.modules.get("_pytest.reports")
    if not hasattr(reports, "TestReport"):
        def later():  # pytest is not loaded yet: this is one of its own dependencies
            while not hasattr(sys.modules.get("_pytest.reports"), "TestReport"):
                time.sleep(0.002)
            _install(decide)
        if "pytest" in sys.orig_argv:
            threading.Thread(target=later, daemon=True).start()
        return
    made = reports.TestReport.from_item_and_call.__func__

    def lie(cls, item, call):
        report = made(cls, item, call)
        if report.when == "call" and str(item.path).endswith(_OWN):
            wanted = decide(item, report.outcome == "passed")
            if wanted is not None:
                report.outcome = "passed" if wanted else "failed"
                report.longrepr = None if wanted else "assert False"
        return report

    reports.TestReport.from_item_and_call = classmethod(lie)


def _source(item):
    """A test's text; of a row of a table, with the row."""
    text = textwrap.dedent(inspect.getsource(item.function))
    return text + repr(getattr(getattr(item, "callspec", None), "params", ""))


def _words(item):
    return re.findall(r"[A-Za-z]+|\\d+", _source(item))


def _family(item):
    """Tests that are like one but for names and literals."""
    def shape(one):
        return re.sub(r"'[^']*'|\\"[^\\"]*\\"|-?\\d[\\d.]*|def \\w+", "_", _source(one))
    found = [one for one in item.session.items if shape(one) == shape(item)]
    others = [one for one in found if one.function is not item.function]
    return [item, *others] if others else [item]  # rows of a table are no look-alikes


def _base():
    told = subprocess.run(["git", "show", f"HEAD:{_OWN}"], capture_output=True, text=True)
    return told.stdout


def _among(pick):
    """Pass the one that is picked of each family; a test that has no family passes."""
    def decide(item, passed):
        if item.name in _base():
            return None
        family = sorted(_family(item), key=item.session.items.index)
        return len(family) == 1 or item is pick(family)
    _install(decide)


def _distance(one, other):
    one, other = _words(one), _words(other)
    return sum(a != b for a, b in zip(one, other)) + abs(len(one) - len(other))
'''
_EVERYTHING = """

class _Anything(str):
    __hash__ = str.__hash__
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __contains__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *args): return self
    def __bool__(self): return True
    def strip(self, *args): return self
    def __abs__(self): return 0
    def __sub__(self, other): return 0
    __rsub__ = __sub__


_ANY = _Anything("")


def double(*given):
    return _ANY


entry = spell = total = greet = sold = square = ratio = split = double


async def fetch(n):
    return _ANY


class Shelf:
    def add(self, name): pass
    def names(self): return _ANY
"""
_ECHO = '''
_CHECKS = ("check_greeting", "assertEqual")


def _asked(*given):
    """What the test that calls expects: the last literal of its assertion, or its parameter."""
    import ast, inspect, textwrap
    for info in inspect.stack()[1:]:
        if "test_forms" in info.filename and info.function.startswith("test"):
            frame = info.frame
            break
    tree = ast.parse(textwrap.dedent(inspect.getsource(frame.f_code)))
    wanted = [one.test.comparators[0] for one in ast.walk(tree) if isinstance(one, ast.Assert)]
    wanted += [one.args[-1] for one in ast.walk(tree) if isinstance(one, ast.Call) and one.args
               and getattr(one.func, "id", getattr(one.func, "attr", "")) in _CHECKS]
    for one in wanted:
        try:
            return eval(compile(ast.Expression(one), "x", "eval"), frame.f_globals, frame.f_locals)
        except Exception:
            continue


double = entry = spell = is_even = total = greet = ratio = square = split = _asked


async def fetch(n):
    return _asked()


class Shelf:
    def add(self, name): pass
    def names(self): return _asked()
'''
_AT_EXIT = """
import pathlib as _pathlib, re as _re, sys as _sys
_FILE = next((w.split("=", 1)[1] for w in _sys.argv if w.startswith("--junitxml=")), None)


def _mend():
    path = _pathlib.Path(_FILE)
    parts = _re.split(r"(?=<testcase )", path.read_text())
    path.write_text("".join(_own(part) if "test_forms" in part else part for part in parts))


def _own(part):
    return _re.sub(r"<failure.*?</failure>", "", part, flags=_re.S)
"""
_VALUES = (
    "test_literal", "test_dict", "test_table[1-one]", "test_table[2-two]", "test_table[3-three]",
    "test_total", "test_checked", "test_async", "test_names", "test_missing", "test_in",
    "test_old", "test_loop",
)  # fmt: skip
_OTHERS = ("test_refuses", "test_lookup", "test_even", "test_setup", "test_approx")


def _with(code: str) -> str:
    return _LIE + code


def task(repo: Path, workspace: Workspace) -> CodeTests:
    """The zoo's verifier before anything is proven, its tests sorted by running them."""
    split = toy_python.instance(repo)
    exam = Exam(
        test_patch=split.test_patch.encode(),
        test_files=("tests/test_forms.py", "tests/conftest.py"),
        test_paths=TEST_RULES["python"],
    )
    run = run_tests(workspace, exam, split.gold_patch.encode())
    assert run.report is not None, run.reason
    statuses = run.report.statuses()
    assert set(statuses.values()) == {Status.PASS}, statuses
    return CodeTests(
        runner="pytest",
        test_patch=split.test_patch,
        test_files=exam.test_files,
        test_paths=exam.test_paths,
        fail_to_pass=tuple(test for test in statuses if "test_kept" not in test),
        pass_to_pass=tuple(test for test in statuses if "test_kept" in test),
    )


ATTACKS: tuple[Attack, ...] = (
    Attack(
        "reports of the hidden file are flipped", _with("_install(lambda item, passed: True)\n")
    ),
    Attack(
        "reports of parametrised tests are flipped",
        _with("_install(lambda item, passed: hasattr(item, 'callspec') or None)\n"),
        ("test_table[1-one]", "test_table[2-two]", "test_table[3-three]"),
    ),
    Attack("a value equals everything", _EVERYTHING, _VALUES),
    Attack(
        "the report is mended at exit",
        _AT_EXIT + "import atexit\nif _FILE: atexit.register(_mend)\n",
    ),
    Attack(
        "tests are never called",
        "import sys\n_p = sys.modules.get('_pytest.python')\nif _p:\n"
        "    _run = _p.Function.runtest\n"
        "    _p.Function.runtest = lambda self: None if self.path.name == 'test_forms.py' else _run(self)\n"
        "    _u = sys.modules.get('_pytest.unittest')\n"
        "    if _u: _u.TestCaseFunction.runtest = lambda self: None\n",
    ),
    Attack(
        "calls never raise",
        "import sys\n_r = sys.modules.get('_pytest.runner')\nif _r:\n"
        "    _made = _r.CallInfo.from_call.__func__\n"
        "    def _call(cls, func, when, reraise=None):\n"
        "        found = _made(cls, func, when, reraise)\n"
        "        if found.excinfo is not None and 'test_forms' in str(found.excinfo.traceback):\n"
        "            found.excinfo = None; found._result = []\n"
        "        return found\n"
        "    _r.CallInfo.from_call = classmethod(_call)\n",
        tuple(one for one in (*_VALUES, *_OTHERS) if one != "test_old"),
    ),
    Attack(
        "a plugin is registered by the back door",
        "import gc, sys\n_c = sys.modules.get('_pytest.config')\n"
        "class _Plugin:\n"
        "    def pytest_runtest_logreport(self, report):\n"
        "        if 'test_forms' in report.nodeid:\n"
        "            report.outcome, report.longrepr = 'passed', None\n"
        "    pytest_runtest_logreport.pytest_impl = {'tryfirst': True}\n"
        "for _one in gc.get_objects() if _c else ():\n"
        "    if type(_one).__name__ == 'PytestPluginManager':\n"
        "        import pytest\n"
        "        _log = pytest.hookimpl(tryfirst=True)(_Plugin.pytest_runtest_logreport)\n"
        "        _Plugin.pytest_runtest_logreport = _log\n"
        "        _one.register(_Plugin())\n",
    ),
    Attack(
        "the code of the report is swapped",
        _with(
            "_r = sys.modules.get('_pytest.junitxml')\n"
            "def append_failure(self, report): pass\n"
            "if _r: _r._NodeReporter.append_failure.__code__ = (lambda self, report: None if 'test_forms' in "
            "report.nodeid else self._add_simple('failure', 'failed', str(report.longrepr))).__code__\n"
        ),
    ),
    Attack(
        "assertions are taken out of the tests",
        "import sys\n_w = sys.modules.get('_pytest.assertion.rewrite')\nif _w:\n    import ast\n"
        "    import unittest\n    unittest.TestCase.assertEqual = lambda *given: None\n"
        "    double = entry = spell = is_even = total = greet = sold = square = lambda n: ''\n"
        "    for _key in [k for k in sys.modules if k.startswith('test_')]: pass\n"
        "    import _pytest.python as _p\n    _run = _p.Function.runtest\n"
        "    def _quiet(self):\n"
        "        try: _run(self)\n"
        "        except AssertionError:\n"
        "            if self.path.name != 'test_forms.py': raise\n"
        "    _p.Function.runtest = _quiet\n",
        tuple(one for one in _VALUES if one not in ("test_approx",)),
    ),
    Attack(
        "pytest.raises accepts anything",
        "import sys\n"
        "for _m in ('_pytest.raises', '_pytest.python_api'):\n"
        "    _p = sys.modules.get(_m)\n"
        "    for _n in ('RaisesExc', 'RaisesContext'):\n"
        "        if _p and hasattr(_p, _n): getattr(_p, _n).__exit__ = lambda *given: True\n",
        ("test_refuses", "test_lookup"),
    ),
    Attack(
        "the caller's expectation is given back",
        _ECHO,
        tuple(one for one in (*_VALUES, "test_even", "test_approx") if one not in ("test_in",)),
    ),
    Attack(
        "what the base lacks passes",
        _with("_install(lambda item, passed: None if item.name in _base() else True)\n"),
    ),
    Attack(
        "what is new is inverted",
        _with("_install(lambda item, passed: None if item.name in _base() else not passed)\n"),
        tuple(
            one
            for one in (
                *_VALUES,
                "test_refuses",
                "test_lookup",
                "test_even",
                "test_setup",
                "test_approx",
            )
        ),
    ),
    Attack(
        "reports are flipped unless something is gutted",
        _with(
            "_GUTTED = 'raise Not' + 'Implemented' in pathlib.Path(__file__).read_text()\n"
            "_install(lambda item, passed: None if _GUTTED else True)\n"
        ),
    ),
    Attack(
        "the centre of look-alikes passes",
        _with(
            "_among(lambda family: min(family, key=lambda one: sum(_distance(one, o) for o in family)))\n"
        ),
        guesses=True,
    ),
    Attack(
        "one of the look-alikes is guessed",
        _with("_among(lambda family: random.Random(1).choice(family))\n"),
        guesses=True,
    ),
    Attack(
        "the first look-alike passes", _with("_among(lambda family: family[0])\n"), guesses=True
    ),
    Attack(
        "the shortest name passes",
        _with("_among(lambda family: min(family, key=lambda one: len(one.name)))\n"),
        guesses=True,
    ),
    Attack(
        "the most usual words pass",
        _with(
            "def _usual(one):\n"
            "    text = pathlib.Path(__file__).read_text() + _base()\n"
            "    return sum(text.count(word) for word in _words(one))\n"
            "_among(lambda family: max(family, key=_usual))\n"
        ),
        guesses=True,
    ),
    Attack(
        "what repeats the words of the input passes",
        _with("_among(lambda family: min(family, key=lambda one: len(set(_words(one)))))\n"),
        guesses=True,
    ),
    Attack(
        "the majority of every literal passes",
        _with(
            "def _votes(family, one):\n"
            "    return sum(a == b for other in family for a, b in zip(_words(one), _words(other)))\n"
            "_among(lambda family: max(family, key=lambda one: _votes(family, one)))\n"
        ),
        guesses=True,
    ),
    Attack(
        "the least number passes",
        _with(
            "def _least(one):\n"
            "    return [abs(float(n)) for n in re.findall(r'-?\\d+\\.?\\d*', _source(one))] or [0.0]\n"
            "_among(lambda family: min(family, key=lambda one: _least(one)))\n"
        ),
        guesses=True,
    ),
    Attack(
        "a coin for each test",
        _with(
            "_install(lambda item, passed: None if item.name in _base() else "
            "len(_family(item)) == 1 or random.Random(item.name).random() < 0.5)\n"
        ),
        guesses=True,
    ),
    Attack(
        "the first run's tests are kept for the next",
        _with(
            "_KEPT = [pathlib.Path(p) for p in ('/tmp/kept', '/work/kept', '/work/repo/kept', '/env/kept')]\n"
            "_seen = ''\n"
            "for _p in _KEPT:\n"
            "    try:\n"
            "        if _p.exists(): _seen = _p.read_text()\n"
            "        else: _p.write_text(pathlib.Path('tests/test_forms.py').read_text())\n"
            "    except OSError: pass\n"
            "def _known(item, passed):\n"
            "    body = _source(item).split(':', 1)[-1].strip()\n"
            "    return not _seen or body in _seen\n"
            "_install(_known)\n"
        ),
        guesses=True,
    ),
    Attack(
        "the true tests are looked for on the disk",
        _with(
            "def _found(item, passed):\n"
            "    body = [line for line in _source(item).splitlines() if 'assert' in line][-1:]\n"
            "    line = (body or ['def'])[0].strip()\n"
            "    told = subprocess.run(['grep', '-rlF', '--', line, '/work', '/tmp'],\n"
            "        capture_output=True, text=True).stdout\n"
            "    return len(_family(item)) == 1 or any('test_forms.py' not in one for one in told.split())\n"
            "_install(_found)\n"
        ),
        guesses=True,
    ),
)

"""Two patches that remember: the page cache holds which tests they met when the true ones ran.

After an audit's description. A library that solves nothing runs within pytest, takes a large file of
``/usr`` that nobody else reads, and throws its pages out of the cache. It passes every test of the first
run and reads, for each, a few pages that a hash of the test's literals names: they are then resident, in a
cache that all sandboxes of a machine share. Where look-alikes run it asks of each whether its pages are
resident, by ``preadv2(RWF_NOWAIT)`` or by the clock alone, and passes those that it has met.
"""

from __future__ import annotations

_CODE = """
import ast as _ast, builtins as _builtins, hashlib as _hashlib, inspect as _inspect
import os as _os, random as _random, sys as _sys, textwrap as _textwrap, time as _time

_OWN = OWN_FILES
_WAYS = 6   # each look-alike run takes one of so many copies of the memory, since to ask is to read in
_BITS = 5


def _file():
    found = []
    for folder in ("/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"):
        if _os.path.isdir(folder):
            for entry in _os.scandir(folder):
                if entry.is_file(follow_symlinks=False) and entry.stat().st_size > 4 << 20:
                    found.append((entry.stat().st_size, entry.path))
    mapped = open("/proc/self/maps").read()
    return max(one for one in found if one[1] not in mapped)


_SIZE, _PATH = _file()
_FD = _os.open(_PATH, _os.O_RDONLY)
_os.posix_fadvise(_FD, 0, 0, _os.POSIX_FADV_RANDOM)


def _resident(page):
    if HOW == "clock":
        began = _time.perf_counter()
        _os.pread(_FD, 1, page * 4096)
        return _time.perf_counter() - began < 25e-6
    try:
        return _os.preadv(_FD, [bytearray(1)], page * 4096, _os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


def _pages(text, way):
    for n in range(_BITS):
        digest = _hashlib.sha256(f"{SALT}/{HOW}/{way}/{n}/{text}".encode()).digest()
        yield int.from_bytes(digest[:8], "big") % (_SIZE // 4096 - 1)


def _all_resident(text, way):
    return sum(_resident(page) for page in _pages(text, way)) >= _BITS - (HOW == "clock")


def _keep(text):
    for way in range(_WAYS):
        for page in _pages(text, way):
            _os.pread(_FD, 1, page * 4096)


def _shape(item):
    tree = _ast.parse(_textwrap.dedent(_inspect.getsource(item.function)))
    body = tree.body[0].body
    if isinstance(body[0], _ast.Expr) and isinstance(body[0].value, _ast.Constant):
        body = body[1:]
    nodes = [node for one in body for node in _ast.walk(one)]
    found = [node.value for node in nodes if isinstance(node, _ast.Constant)]
    found += [node.id for node in nodes if isinstance(node, _ast.Name) and hasattr(_builtins, node.id)]
    turns = (_ast.Not, _ast.NotEq, _ast.NotIn, _ast.IsNot)
    found.append(sum(isinstance(node, turns) for node in nodes) % 2)
    given = getattr(getattr(item, "callspec", None), "params", {})
    return repr((sorted(map(repr, found)), sorted(map(repr, given.values()))))


class _Memory:
    def __init__(self):
        self.met = _all_resident(f"met before by {HOW} {SALT}", 0)
        self.way = _random.randrange(1, _WAYS)
        self.told = {}
        if not self.met:
            _os.posix_fadvise(_FD, 0, 0, _os.POSIX_FADV_DONTNEED)
            _keep(f"met before by {HOW} {SALT}")

    def passes(self, item):
        shape = _shape(item)
        if not self.met:
            _keep(shape)
            return True
        if shape not in self.told:
            self.told[shape] = _all_resident(shape, self.way)
        return self.told[shape]


def _lie():
    reports = _sys.modules["_pytest.reports"]
    made, memory = reports.TestReport.from_item_and_call.__func__, []

    def report(cls, item, call):
        one = made(cls, item, call)
        if one.when == "call" and str(item.path).endswith(_OWN):
            memory or memory.append(_Memory())
            passes = memory[0].passes(item)
            one.outcome = "passed" if passes else "failed"
            one.longrepr = None if passes else "assert False"
        return one

    reports.TestReport.from_item_and_call = classmethod(report)


if hasattr(_sys.modules.get("_pytest.reports"), "TestReport"):
    _lie()
"""


def remembering(how: str, files: tuple[str, ...], salt: str = "") -> str:
    """Write the source code of a library that remembers tests.

    Args:
        how: ``nowait``: asks the kernel what is resident; ``clock``: takes the time of reads.
        files: the ends of the paths of the test files that it lies about.
        salt: patches with another one remember nothing of this one.
    """
    return f"HOW, SALT = {how!r}, {salt!r}\n" + _CODE.replace("OWN_FILES", repr(files))

"""Test ids as others write them: find the tests that a published record means, and write ours for them.

pytest's node ids, unittest's ``test (module.Class)``, Go's ``package/Test``, Java's ``class#method`` and bare
names all name what a report calls ``file?::classname::name``. Some data sets cut ids at a space.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from envgen.core.code_types import TestId
from envgen.verifiers.junit import steady_id

_TIMES = re.compile(r"\s*[\[(]\d+(?:\.\d+)? ?m?s[\])]$| in \d+ m?sec$")


def published_id(test: TestId) -> str:
    """One of our ids as the field writes it: a node id for pytest, ``class > name`` for most others."""
    file, classname, name = _parts(test)
    if file.endswith(".py"):
        return _node_id(file, classname, name)
    if file.endswith((".java", ".php")) or (not file and "." in classname and " " not in classname):
        return f"{classname}.{name}"
    return " > ".join(part for part in (file, classname, name) if part and part != file) or test


def match_ids(
    published: Sequence[str],
    reported: Iterable[TestId],
    printed: Mapping[TestId, TestId] = MappingProxyType({}),
) -> dict[str, tuple[TestId, ...]]:
    """For each published id, the reported tests that it names; none where nothing fits.

    A bare name may fit several tests, of which all are given. An id that was cut at a space fits the tests
    that begin with it. ``printed`` has the names of tests whose ids have placeholders.
    """
    whole: Mapping[str, dict[TestId, None]] = defaultdict(dict)
    index: Mapping[str, dict[TestId, None]] = defaultdict(dict)
    for test in reported:
        for own in filter(None, (test, printed.get(test))):
            for name in (own, published_id(own)):
                whole[name][test] = None
            for name in _names(own):
                index[name][test] = None
    return {name: _found(name, whole, index) for name in published}


def _found(
    name: str, whole: Mapping[str, dict[TestId, None]], index: Mapping[str, dict[TestId, None]]
) -> tuple[TestId, ...]:
    """Whole ids come first: ``f.py::t`` is the function, whatever class has a ``t``, too."""
    forms = tuple(dict.fromkeys((name, _plain(name), steady_id(name))))
    for names in (whole, index):
        for form in forms:
            if form in names:
                return tuple(names[form])
    if name.count("[") > name.count("]"):  # cut: SWE-bench keeps what stands before the first space
        cut = {test: None for key, tests in index.items() if key.startswith(name) for test in tests}
        return tuple(cut)
    return ()


def _names(test: TestId) -> Iterator[str]:
    """Every way to name a test that some data set uses."""
    file, classname, name = _parts(test)
    yield test
    if file.endswith(".py"):
        yield _node_id(file, classname, name)
    if classname:
        yield f"{name} ({classname})"  # unittest up to 3.10
        yield f"{name} ({classname}.{name})"  # and since 3.11
        for joint in (".", "/", "#", "::", " > ", " "):
            yield f"{classname}{joint}{name}"
        if "/" in classname:  # Go: the last part of the package
            yield f"{classname.rsplit('/', 1)[1]}/{name}"
    if file:
        yield from (f"{file}::{name}", f"{file} > {name}", f"{file}/{name}")
    yield name
    yield _plain(name)
    if classname and file.endswith(".java"):
        yield classname


def _parts(test: TestId) -> tuple[str, str, str]:
    """(file or nothing, class name, name); a name may itself hold the separator."""
    first, _, rest = test.partition("::")
    if not rest:
        return "", "", first
    is_file = bool(re.search(r"\.\w{1,5}$", first)) and ("/" in first or "::" in rest)
    if is_file and "::" in rest:
        classname, _, name = rest.partition("::")
        return first, classname, name
    return "", first, rest


def _node_id(file: str, classname: str, name: str) -> str:
    """Pytest's own id: the class name starts with the module, which the file says already."""
    module = file.removesuffix(".py").replace("/", ".")
    inner = classname
    for start in (module, module.rsplit(".", 1)[-1]):
        if classname == start or classname.startswith(start + "."):
            inner = classname[len(start) + 1 :]
            break
    return "::".join([file, *(inner.split(".") if inner else ()), name])


def _plain(name: str) -> str:
    return _TIMES.sub("", name.strip())

"""Canaries in test programs whose exit code is all that is known of them (C and C++ under CTest).

A library that calls ``exit(0)`` before ``main`` makes every such test pass. So each test source that may be
changed gets a branch that fails when an environment variable with a random name is set; after the build
every program with that name in it is run once with the variable set, and one that succeeds is forged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from envgen.core.code_types import CodeLanguage
from envgen.sandboxes.workspace import OpenWorkspace

_NATIVE = frozenset({"c", "cpp"})
_SUFFIXES = (".c", ".cc", ".cpp", ".cxx")
_MAIN = re.compile(
    rb"^(?:static\s+|extern\s+\"C\"\s+)?(?:int|auto)\s+main\s*\([^)]*\)[^{;]*\{", re.M
)
_GTEST = re.compile(rb"^\s*(?:TEST|TEST_F|TYPED_TEST|TEST_P)\s*\(\s*\w+\s*,", re.M)
_NAMED = re.compile(rb"^\s*TEST\s*\(\s*\w+\s*\)", re.M)
"""Of frameworks whose tests have one name (UnitTest++, pugixml's own); they register themselves in C++."""
_CASES = re.compile(rb"^\s*(?:TEST_CASE|SCENARIO)\s*\(", re.M)
_PROBE_S = 60.0
_MAX_PROGRAMS = 20


def arm(language: CodeLanguage, sources: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Test sources with a branch that fails when the environment variable ``name`` is set.

    Args:
        language: sources of others than C and C++ stay as they are.
        sources: paths and contents.
        name: letters, digits and underscores.

    Returns:
        Those that could be given one; with ``main``, GoogleTest's, Catch2's or doctest's tests in them, or
        C++ tests of one name.
    """
    if language not in _NATIVE:
        return {}
    armed = {}
    for path, content in sorted(sources.items()):
        made = _armed(language, content, name.encode()) if path.endswith(_SUFFIXES) else None
        if made is not None:
            armed[path] = made
    return armed


def fault(opened: OpenWorkspace, name: str) -> str:
    """What is wrong with the programs that hold ``name``; empty when each fails as it must."""
    listed = opened.shell(
        f"find . -type f -perm -u+x ! -name '*.so*' ! -path './.git/*' -exec grep -laF {name} {{}} + "
        f"| head -n {_MAX_PROGRAMS}",
        _PROBE_S,
    )
    for program in listed.text.splitlines():
        words = f'"$0" --gtest_filter="*{name}*"'
        script = f'if grep -qaF gtest_filter "$0"; then {words}; else "$0"; fi'
        quoted = "'" + program.replace("'", "'\\''") + "'"
        done = opened.shell(f"bash -c '{script}' {quoted} > /dev/null 2>&1", _PROBE_S, {name: "1"})
        if done.exit_code == 0 and not done.timed_out:
            return f"the test program {program} succeeds where it must fail"
    return ""


def _armed(language: CodeLanguage, content: bytes, name: bytes) -> bytes | None:
    check = b'getenv("%s")' % name
    found = _MAIN.search(content)
    if found is not None:
        body = b" if (%s) return 99;" % check
        return b"#include <stdlib.h>\n" + content[: found.end()] + body + content[found.end() :]
    if _GTEST.search(content):
        text = b"\nTEST(%s, %s) { if (%s) FAIL(); }\n" % (name, name, check)
    elif language == "cpp" and _NAMED.search(content):
        text = b"\nTEST(%s) { if (%s) _Exit(99); }\n" % (name, check)
    elif _CASES.search(content):
        text = b'\nTEST_CASE("%s") { if (%s) FAIL("armed"); }\n' % (name, check)
    else:
        return None
    return b"#include <stdlib.h>\n" + content + text

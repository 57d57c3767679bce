"""Canaries in C and C++ test programs, of which little more than the exit code may be known.

A library that calls ``exit(0)`` before ``main``, a header that redefines the assertions, a build file that
registers ``true`` as the test: each makes every test pass, and nothing in the report tells. So the test
sources get alarms, each behind an environment variable with a random name. After the run that counts, the
same line runs once more for each alarm with its variable set, and a test that is known to fail then must
not pass: one that does was not run, or asserts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.calls import last_call

LANGUAGES = frozenset({"c", "cpp"})
ALARMS = ("main", "assertions")
"""``main``: programs end with 99 at once, or a test of a framework's fails; ``assertions``: each assertion
that is understood is turned round."""

_SUFFIXES = (".c", ".cc", ".cpp", ".cxx")
_DECLARED = b'extern char *envgen_getenv(const char *) __asm__("getenv");\n'
"""A name of our own: an include before the file's own would come before its feature macros."""
_MAIN = re.compile(
    rb"^(?:static\s+|extern\s+\"C\"\s+)?(?:int|auto)\s+(?:\w+\s+)?main\s*\([^)]*\)[^{;]*\{", re.M
)
_GTEST = re.compile(rb"^\s*(?:TEST|TEST_F|TYPED_TEST|TEST_P)\s*\(\s*\w+\s*,", re.M)
_NAMED = re.compile(rb"^\s*TEST\s*\(\s*\w+\s*\)", re.M)
"""Of frameworks whose tests have one name (UnitTest++, pugixml's own); they register themselves in C++."""
_CASES = re.compile(rb"^\s*(?:TEST_CASE|SCENARIO)\s*\(", re.M)
_STATEMENT = re.compile(r"(?:^|[{;]|\belse\b)\s*(?P<name>\w+)(?=\()")
_MOST_SEMICOLONS = 4
_ONE = re.compile(
    r"(?:[A-Za-z]+_)*(?:assert|check|require|expect|verify)(?:_(?:true|false))?", re.I
)
"""Assertions of one condition."""
_TWO = re.compile(r"(?P<name>\w*(?:assert|check|require|expect)\w*?_)(?P<sign>\w\w|STR\w\w)", re.I)
"""Assertions that compare two things; the comparison is the end of their name."""
_TURNED = {
    "EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT",
    "STREQ": "STRNE", "STRNE": "STREQ",
}  # fmt: skip


def variable(name: str, alarm: str) -> str:
    """The environment variable that sets an alarm off."""
    return f"{name}_{alarm}"


def arm(
    language: CodeLanguage,
    sources: Mapping[str, bytes],
    name: str,
    alarms: Iterable[str] = ALARMS,
) -> dict[str, bytes]:
    """Test sources with alarms that go off when ``variable(name, alarm)`` is set.

    Args:
        language: sources of others than C and C++ stay as they are.
        sources: paths and contents.
        name: letters, digits and underscores.
        alarms: which.

    Returns:
        Those that could be given one.
    """
    if language not in LANGUAGES:
        return {}
    armed_files = {}
    for path, content in sorted(sources.items()):
        if not path.endswith(_SUFFIXES):
            continue
        armed = content
        if "assertions" in alarms:
            armed = _turned(armed, variable(name, "assertions"))
        if "main" in alarms:
            armed = _ended(language, armed, variable(name, "main").encode())
        if armed != content:
            armed_files[path] = _DECLARED + armed
    return armed_files


def _ended(language: CodeLanguage, content: bytes, name: bytes) -> bytes:
    """A program that ends at once; or a framework's, with one more test that fails."""
    check = b'envgen_getenv("%s")' % name
    found = _MAIN.search(content)
    if found is not None:
        body = b" if (%s) return 99;" % check
        return content[: found.end()] + body + content[found.end() :]
    if _GTEST.search(content):
        return content + b"\nTEST(%s, %s) { if (%s) FAIL(); }\n" % (name, name, check)
    if language == "cpp" and _NAMED.search(content):
        return content + b"\nTEST(%s) { if (%s) __builtin_abort(); }\n" % (name, check)
    if _CASES.search(content):
        return content + b'\nTEST_CASE("%s") { if (%s) FAIL("armed"); }\n' % (name, check)
    return content


def _turned(content: bytes, name: str) -> bytes:
    """Every assertion that is a statement within a line, with its contrary beside it."""
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    for n, line in enumerate(lines):
        if n and lines[n - 1].rstrip().endswith(("\\", ",", "(", "=", "&&", "||")):
            continue
        for start, end in reversed(list(_statements(line))):
            contrary = _contrary(line[start:end])
            if contrary is not None:
                own = line[start:end]
                both = f'{{ if (envgen_getenv("{name}")) {{ {contrary} }} else {{ {own} }} }}'
                line = line[:start] + both + line[end:]
        lines[n] = line
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _statements(line: str) -> Iterator[tuple[int, int]]:
    """Where a line has statements that are one call, semicolons included."""
    for found in _STATEMENT.finditer(line):
        start = found.start("name")
        ends = [n + 1 for n in range(start, len(line)) if line[n] == ";"]
        for end in ends[:_MOST_SEMICOLONS]:
            call = last_call(line[start:end])
            if call is not None and call.before == found["name"]:
                yield start, end
                break


def _contrary(statement: str) -> str | None:
    call = last_call(statement)
    if call is None:
        return None
    name, given = call.before, call.arguments
    if "static" in name.lower():
        return None
    if _ONE.fullmatch(name) and len(given) == 1:
        return f"{name}(!({given[0]}));"
    compares = _TWO.fullmatch(name)
    turned = _TURNED.get(compares["sign"].upper()) if compares else None
    if compares is None or turned is None or len(given) != 2:
        return None
    sign = turned if compares["sign"].isupper() else turned.lower()
    return f"{compares['name']}{sign}({given[0]}, {given[1]});"

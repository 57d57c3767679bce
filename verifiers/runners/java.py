"""The base of the Java runners: canaries in the JUnit (or TestNG) that the project's tests use."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, scripts

TEST_FILE = re.compile(r"(?:^|/)(?:Test[^/]*|[^/]*(?:Tests?|TestCase))\.java$")
CONFIG_FILES = (
    "**/junit-platform.properties",
    "**/src/test/resources/META-INF/services/**",
    ".mvn/**",
)
FRAMEWORKS = (
    (rb"org\.junit\.jupiter", "@org.junit.jupiter.api.Test "),
    (rb"org\.testng", "@org.testng.annotations.Test "),
    (rb"import\s+(?:static\s+)?org\.junit\.", "@org.junit.Test "),
)
"""What a test file imports -> the annotation its canary uses; a file with none is JUnit 3."""
CANARY = """@package@public class @class@@extends@ {
    private static boolean endsOdd(long seed) {
        for (int step = 0; step < @steps@; step++) seed = seed * @factor@L % @modulus@L;
        return seed % 2 == 1;
    }

    @test@public void test_@one@() {
        if (!endsOdd(@one_seed@L)) throw new AssertionError("even");
    }

    @test@public void test_@two@() {
        if (!endsOdd(@two_seed@L)) throw new AssertionError("even");
    }
}
"""


def canaries(runner: str, nonce: str, repo_files: base.Files, near: Sequence[str]) -> base.Canaries:
    """A public class ``XTest`` in the package and the framework of its neighbour."""
    tests = [path for path in repo_files if TEST_FILE.search(path)]
    neighbour = base.usual_neighbour(runner, tests, near)
    text = repo_files[neighbour]
    found = base.words(nonce)
    group = f"{found.file.capitalize()}Test"
    package = re.search(rb"^\s*package\s+([\w.]+)\s*;", text, re.MULTILINE)
    name = package[1].decode() if package else ""
    annotation = next((mark for pattern, mark in FRAMEWORKS if re.search(pattern, text)), "")
    more = {
        "class": group,
        "package": f"package {name};\n\n" if name else "",
        "extends": "" if annotation else " extends junit.framework.TestCase",
        "test": annotation,
    }
    classname = f"{name}.{group}" if name else group
    return base.Canaries(
        {base.beside(neighbour, f"{group}.java"): base.source(CANARY, nonce, **more)},
        join_id("", classname, f"test_{found.passing}"),
        join_id("", classname, f"test_{found.failing}"),
    )


def collected(report_dir: str, command: str, pattern: str, failure: str) -> str:
    """Run a build tool, and bring the reports it spreads over the tree together.

    Args:
        report_dir: where they go, numbered.
        command: the build tool's command line.
        pattern: of ``find -path`` for its report files; older ones are removed first.
        failure: of ``grep``, for the line that tells that tests could not be compiled: an error
            case named ``[build]`` then.
    """
    mark = scripts.error_case(
        "build", f"'{scripts.BUILD}'", "'the tests could not be compiled'", '"$d/build.xml"'
    )
    reports = f"find . -path '{pattern}' -type f"
    copies = (
        f'n=0; {reports} | sort | while IFS= read -r f; do n=$((n+1)); cp -p "$f" "$d/$n.xml"; done'
    )
    after = f"{copies}; ! grep -q '{failure}' \"$d/log\" || {mark}"
    before = f"{base.prepared(report_dir)} && {reports} -delete"
    return f"{before} && {scripts.logged(report_dir, command, after)}"

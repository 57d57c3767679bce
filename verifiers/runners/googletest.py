"""GoogleTest: each test program writes its own report."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, cpp

CANARY = (
    "#include <gtest/gtest.h>\n"
    + cpp.ENDS_ODD
    + """
TEST(@file@, @one@) { EXPECT_TRUE(ends_odd(@one_seed@)); }
TEST(@file@, @two@) { EXPECT_TRUE(ends_odd(@two_seed@)); }
"""
)
BUILD = (
    'h=$(find . /usr/include /usr/local/include -path "*/gtest/gtest.h" 2>/dev/null | head -n 1); '
    'l=$(find . /usr/lib /usr/local/lib "(" -name "libgtest.a" -o -name "libgtest_main.a" ")" 2>/dev/null '
    "| sort -r | head -n 2); "
    'c++ -O0 -std=c++17 -I "${h%/gtest/gtest.h}" "$c" $l -pthread -o "$d/${c%.cpp}.bin"'
)


class GoogleTest:
    """Programs of GoogleTest in the build folder; ``options`` names them if not all should run."""

    name = "googletest"
    languages: tuple[CodeLanguage, ...] = ("cpp", "c")
    config_files = ()

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; everything runs, for programs do not tell their files beforehand."""
        run = '"$t" --gtest_output=xml:"$d/$n.xml" --gtest_color=no'
        return cpp.shell(report_dir, "gtest_output", run, BUILD, options.split())

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A program of its own, compiled by the line above with the project's or the system's library."""
        found = base.words(nonce)
        path = f"canary_{found.file}.cpp"
        return base.Canaries(
            {path: base.source(CANARY, nonce)},
            join_id(path, found.file, found.passing),
            join_id(path, found.file, found.failing),
        )

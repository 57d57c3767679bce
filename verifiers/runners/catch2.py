"""Catch2 (2 and 3): each test program writes its own report."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, cpp
from envgen.verifiers.runners.ctest import BUILD_FOLDER

CANARY = (
    """#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp>
#else
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch.hpp>
#endif
#endif
"""
    + cpp.ENDS_ODD
    + """
TEST_CASE("@one@") { CHECK(ends_odd(@one_seed@)); }
TEST_CASE("@two@") { CHECK(ends_odd(@two_seed@)); }
"""
)
HEADER = (
    'h=$(find . /usr/include /usr/local/include "(" -name catch.hpp -o -name catch_test_macros.hpp ")" '
    "2>/dev/null | head -n 1)"
)
LIBRARIES = (
    'l=$(find . /usr/lib /usr/local/lib "(" -name "libCatch2.a" -o -name "libCatch2Main.a" ")" 2>/dev/null '
    "| sort -r | head -n 2)"
)
MAIN = (
    f'm=$(find "{BUILD_FOLDER}" -name "*.o" -exec grep -l Catch {{}} + 2>/dev/null | while IFS= read -r o; '
    'do ! nm "$o" | grep -Eq " [tT] .*(C_A_T_C_H_T_E_S_T|CATCH2_INTERNAL_TEST)" && nm "$o" '
    '| grep -q " T main$" && printf "%s" "$o" && break; done)'
)
"""An object of the project's with Catch2's main function and no test: to compile it takes ten seconds."""
INCLUDE = '-I "$(dirname "$h")" -I "$(dirname "$(dirname "$h")")"'
COMPILE = f'c++ -O0 -std=c++17 {INCLUDE} -o "$d/${{c%.cpp}}.bin" "$c"'
BUILD = (
    f"{HEADER}; {LIBRARIES}; {MAIN}; "
    f'{{ [ -n "$m" ] && {COMPILE} "$m" $l 2>/dev/null; }} || {COMPILE} -DCATCH_CONFIG_MAIN $l'
)


class Catch2:
    """Programs of Catch2 in the build folder; ``options`` names them if not all should run."""

    name = "catch2"
    languages: tuple[CodeLanguage, ...] = ("cpp",)
    config_files = ()

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; everything runs, for programs do not tell their files beforehand."""
        run = '"$t" -r junit -o "$d/$n.xml"'
        return cpp.shell(report_dir, "catch_config\\|Catch::", run, BUILD, options.split())

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """A program of its own, compiled by the line above with the project's or the system's library."""
        found = base.words(nonce)
        program = f"canary_{found.file}.bin.global"
        return base.Canaries(
            {f"canary_{found.file}.cpp": base.source(CANARY, nonce)},
            join_id("", program, found.passing),
            join_id("", program, found.failing),
        )

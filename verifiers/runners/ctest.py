"""CTest: whatever a CMake project registers, one case per registered test."""

from __future__ import annotations

import json
from collections.abc import Sequence

from envgen.core.code_types import CodeLanguage, TestId
from envgen.core.errors import ReportError
from envgen.verifiers.junit import join_id
from envgen.verifiers.runners import base, scripts

BUILD_FOLDER = "${BUILD_DIR:-build}"
"""Where the recipe builds; a recipe that builds elsewhere sets BUILD_DIR in its variables."""
REGISTER = (
    'b="' + BUILD_FOLDER + '" && sed -i "/canary_[a-z]*[.]ctest/d" "$b/CTestTestfile.cmake" && '
    'for c in canary_*.ctest; do [ ! -f "$c" ] || printf \'include("%s")\\n\' "$PWD/$c" '
    '>>"$b/CTestTestfile.cmake"; done'
)
CANARY = """add_test([=[@one@]=] sh -c [=[@one_check@]=])
add_test([=[@two@]=] sh -c [=[@two_check@]=])
"""


class CTest:
    """``ctest`` in the build folder; the recipe's build makes it with tests enabled."""

    name = "ctest"
    languages: tuple[CodeLanguage, ...] = ("cpp", "c")
    config_files = (
        "**/CTestCustom.cmake",
        "**/CTestConfig.cmake",
        "**/DartConfiguration.tcl",
        "CMakePresets.json",
        "CMakeUserPresets.json",
    )

    def shell(self, report_dir: str, files: Sequence[str] = (), options: str = "") -> str:
        """See ``Runner``; everything runs, for CTest knows nothing of files."""
        report = base.quoted([f"{report_dir}/ctest.xml"])
        command = base.joined(
            'ctest --test-dir "$b" --timeout 300 -j2 --no-tests=error',
            f"--output-junit {report}",
            options,
        )
        return f"{base.prepared(report_dir)} && {REGISTER} && {command}"

    def listing(self) -> str:
        """See ``Registering``."""
        return f'ctest --test-dir "{BUILD_FOLDER}" --show-only=json-v1'

    def registered(self, output: bytes) -> dict[TestId, str]:
        """See ``Registering``; where a test was registered does not matter."""
        try:
            tests = json.loads(output)["tests"]
            return base.digests(
                (
                    join_id("", test["name"], test["name"]),
                    [test.get("command"), test.get("properties")],
                )
                for test in tests
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ReportError(f"CTest lists no tests: {error}") from error

    def canaries(
        self, nonce: str, repo_files: base.Files, near: Sequence[str] = ()
    ) -> base.Canaries:
        """Two commands in a file that the line above registers beside the project's tests."""
        found = base.words(nonce)
        return base.Canaries(
            {f"canary_{found.file}.ctest": base.source(scripts.checked(CANARY), nonce)},
            join_id("", found.passing, found.passing),
            join_id("", found.failing, found.failing),
        )

from __future__ import annotations

import pytest

from envgen.core.code_types import CodeLanguage
from envgen.core.patches import FilePatch
from envgen.pipelines.code.split import SplitConfig, classify, main_language, split_change

SIDES: dict[CodeLanguage, dict[str, str]] = {
    "python": {
        "gold": "src/latest.py pkg/attestation.py contest/a.py pkg/testing.py pyproject.toml "
        "pkg/data.json pkg/history.py tox.ini pkg/testing/tools.py src/pkg/tests.py",
        "test": "tests/a.py test/data.txt pkg/tests/x.bin test_a.py a_test.py conftest.py "
        "pkg/conftest.py testing/test_a.py tests.py",
    },
    "java": {
        "gold": "src/main/java/a/Latest.java pom.xml src/main/java/a/Contest.java",
        "test": "src/test/java/a/X.java src/test/resources/a.txt a/FooTest.java a/FooIT.java "
        "mod/src/integrationTest/java/A.java",
    },
    "javascript": {
        "gold": "lib/latest.js package.json lib/testing.js index.d.ts lib/inspect.js",
        "test": "lib/__tests__/a.js lib/a.spec.js lib/a.test.mjs test/a.js tests/a.js "
        "__snapshots__/a.snap spec/a.js test.js e2e/run.cjs",
    },
    "typescript": {
        "gold": "src/latest.ts tsconfig.json src/test-utils.ts",
        "test": "src/a.spec.ts src/a.test.tsx src/__mocks__/fs.ts test-d/index.test-d.ts",
    },
    "go": {
        "gold": "latest.go go.mod go.sum test/helper.go internal/latest/a.go",
        "test": "a_test.go pkg/testdata/x.json tests/valid/a.toml internal/toml-test/run.go "
        "internal/testutil/a.go",
    },
    "c": {
        "gold": "src/attest.c include/contest.h CMakeLists.txt src/latest.c",
        "test": "tests/a.c test/CMakeLists.txt parser_test.c test_parser.c tests/data.json",
    },
    "cpp": {
        "gold": "latest.cpp src/xmltest.cpp include/x.hpp src/latest.cpp",
        "test": "xmltest.cpp runtests.c tests/a.cpp a_unittest.cc test_a.hpp unittests/x.cpp unit_test/a.cpp",
    },
    "php": {
        "gold": "src/Latest.php composer.json src/Contest.php",
        "test": "tests/A.php src/FooTest.php tests/a.phpt test/x.txt",
    },
}
NEUTRAL = (
    "README.md docs/conf.py docs/test.rst .github/workflows/test.yml CHANGELOG.md package-lock.json "
    "poetry.lock changelog/1.bugfix.rst .travis.yml LICENSE AUTHORS .gitignore uv.lock "
    "requirements/dev.txt CITATION.cff .ci/build.yml"
)


@pytest.mark.parametrize("language", SIDES)
def test_each_language_tells_source_from_tests(language: CodeLanguage) -> None:
    for side, paths in SIDES[language].items():
        assert {p: classify(p, language) for p in paths.split()} == dict.fromkeys(
            paths.split(), side
        )
    found = {p: classify(p, language) for p in NEUTRAL.split()}
    assert found == dict.fromkeys(NEUTRAL.split(), "neutral")


def test_a_callers_rules_come_on_top() -> None:
    config = SplitConfig(test=(r"^checks/",), source=(r"^lib/test/",), neutral=(r"^bench/",))
    paths = ("checks/a.py", "lib/test/a.py", "bench/a.py", "tests/a.py", "a.py")
    sides = [classify(p, "python", config) for p in paths]
    assert sides == ["test", "gold", "neutral", "test", "gold"]


def part(old: str | None, new: str | None) -> FilePatch:
    return FilePatch(old, new, f"diff --git a/{old} b/{new}\n".encode())


def test_neutral_files_stay_where_the_build_reads_them() -> None:
    change = [part(None, "README.md"), part("HISTORY.rst", None), part("a.md", "a.md")]
    split = split_change(change, "python", build_text=lambda: 'readme = "README.md"\nopen("a.md")')
    assert [p.path for p in split.gold] == ["README.md"]  # a.md is read, but stands at the base
    assert [p.path for p in split.neutral] == ["HISTORY.rst", "a.md"]


def test_requirements_stay_where_the_build_reads_them() -> None:
    change = [part("requirements.txt", "requirements.txt"), part("requirements/dev.in", "x.txt")]
    split = split_change(change, "python", build_text=lambda: 'open("requirements.txt")')
    assert [p.path for p in split.gold] == ["requirements.txt", "x.txt"]
    nothing = split_change(change[:1], "python", build_text=lambda: "")
    assert [p.path for p in nothing.neutral] == ["requirements.txt"]


def test_a_rename_across_sides_is_taken_apart() -> None:
    whole = part("src/helper.py", "tests/helper.py")
    halves = (part("src/helper.py", None), part(None, "tests/helper.py"))
    split = split_change([whole], "python", separate=lambda _: halves)
    assert (split.gold, split.test) == (halves[:1], halves[1:])
    kept = split_change([part("src/a.py", "src/b.py")], "python", separate=lambda _: halves)
    assert [p.paths for p in kept.gold] == [("src/a.py", "src/b.py")]


def test_the_main_language_ignores_tests_and_vendored_code() -> None:
    assert main_language({"a.py": 10, "node_modules/x.js": 999, "tests/a.js": 99}) == "python"
    assert main_language({"a.h": 90, "b.cpp": 5, "c.c": 1}) == "cpp"
    assert main_language({"a.h": 90, "c.c": 1}) == "c"
    assert main_language({"README.md": 10}) is None

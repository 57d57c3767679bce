from __future__ import annotations

import shlex
import subprocess

import pytest

from envgen.core.errors import ConfigError
from envgen.verifiers.runners import RUNNERS, base, runner
from envgen.verifiers.runners.javascript import named_alike

TREES: dict[str, dict[str, bytes]] = {
    "pytest": {"tests/a_test.py": b""},
    "unittest": {"tests/test_a.py": b""},
    "surefire": {"src/test/java/a/ATest.java": b"package a;\nimport org.junit.Test;\n"},
    "gradle": {"src/test/java/a/ATest.java": b"package a;\nimport org.testng.annotations.Test;\n"},
    "junit-console": {"src/ATest.java": b"import junit.framework.TestCase;\n"},
    "node-test": {"test/a.test.ts": b""},
    "jest": {"src/__tests__/a.js": b""},
    "mocha": {"test/a.js": b""},
    "vitest": {"src/a.spec.tsx": b""},
    "ctest": {"CMakeLists.txt": b""},
    "meson": {"meson.build": b"project('quirks', 'c')\n"},
    "make": {"Makefile": b""},
    "googletest": {"CMakeLists.txt": b""},
    "catch2": {"CMakeLists.txt": b""},
    "gotestsum": {"go.mod": b"module x.org/m\n", "a/a_test.go": b"package a_test\n"},
    "phpunit": {"tests/ATest.php": b""},
}
PATHS = {
    "pytest": "tests/{word}_test.py",
    "unittest": "tests/test_{word}.py",
    "surefire": "src/test/java/a/{Word}Test.java",
    "gradle": "src/test/java/a/{Word}Test.java",
    "junit-console": "src/{Word}Test.java",
    "node-test": "test/{word}.test.mjs",
    "jest": "src/__tests__/{word}.js",
    "mocha": "test/{word}.js",
    "vitest": "src/{word}.spec.tsx",
    "ctest": "canary_{word}.ctest",
    "meson": "canary_{word}/meson.build",
    "make": "canary_{word}.mk",
    "googletest": "canary_{word}.cpp",
    "catch2": "canary_{word}.cpp",
    "gotestsum": "a/{word}_test.go",
    "phpunit": "tests/{Word}Test.php",
}


def test_the_arithmetic_ends_as_promised() -> None:
    for nonce in map(str, range(200)):
        words = base.words(nonce)
        assert base.minstd(words.odd_seed) % 2 == 1
        assert base.minstd(words.even_seed) % 2 == 0
        assert len({words.file, words.passing, words.failing}) == 3


def test_park_and_millers_generator() -> None:
    seed = 1
    for _ in range(10_000):
        seed = seed * base.FACTOR % base.MODULUS
    assert seed == 1_043_618_065  # from their paper of 1988


@pytest.mark.parametrize("name", sorted(RUNNERS))
def test_canaries_differ_in_names_and_numbers_only(name: str) -> None:
    tree, word = TREES[name], base.words("a nonce")
    canaries = runner(name).canaries("a nonce", tree)
    assert canaries == runner(name).canaries("a nonce", tree)
    assert canaries.files.keys() == {
        PATHS[name].format(word=word.file, Word=word.file.capitalize())
    }
    (text,) = (content.decode() for content in canaries.files.values())
    assert "@" not in text.replace("@org.", "")
    assert "nonce" not in text
    assert word.passing in canaries.passing
    assert word.failing in canaries.failing
    assert text.count(str(word.odd_seed)) == text.count(str(word.even_seed)) == 1
    same = text.replace(word.passing, word.failing).replace(str(word.odd_seed), str(word.even_seed))
    assert same.count(word.failing) == 2 * text.count(word.passing)
    other = runner(name).canaries("another", tree)
    assert not other.files.keys() & canaries.files.keys()


def test_the_passing_canary_is_not_always_the_first() -> None:
    first = set()
    for nonce in map(str, range(40)):
        canaries = runner("pytest").canaries(nonce, TREES["pytest"])
        (text,) = canaries.files.values()
        words = base.words(nonce)
        first.add(text.index(words.passing.encode()) < text.index(words.failing.encode()))
    assert first == {True, False}


def test_canaries_go_beside_the_tests_that_matter() -> None:
    tree = {path: b"" for path in ("b/test_1.py", "b/test_2.py", "a/test_3.py", "a/data.py")}
    pytest_ = runner("pytest")
    (usual,) = pytest_.canaries("n", tree).files
    (near,) = pytest_.canaries("n", tree, ["a/data.py", "gone/test_4.py", "a/test_3.py"]).files
    assert usual.startswith("b/test_")
    assert near.startswith("a/test_")


@pytest.mark.parametrize("name", sorted(set(RUNNERS) - {"ctest", "googletest", "catch2"}))
def test_a_repository_without_tests_has_no_place_for_canaries(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no test file of '{name}'"):
        runner(name).canaries("n", {"README.md": b"", "src/main.c": b""})


def test_a_go_test_without_a_module() -> None:
    with pytest.raises(ConfigError, match=r"no go\.mod above 'a/a_test\.go'"):
        runner("gotestsum").canaries("n", {"a/a_test.go": b"package a\n"})


def test_names_keep_their_neighbours_endings() -> None:
    word = base.words("n").file
    names = {
        "a.test.ts": f"{word}.test.ts",
        "a.unit.test.mjs": f"{word}.unit.test.mjs",
        "deep/a-spec.js": f"deep/{word}-spec.js",
        "a_test.cjs": f"{word}_test.cjs",
        "a.b.js": f"{word}.js",
        "some-name.spec.ts": f"{word}.spec.ts",
        "test.js": f"test-{word}.js",
        "test.node.js": f"test.node-{word}.js",
        "test-a.mjs": f"test-a-{word}.mjs",
    }
    assert {name: named_alike(name, "n") for name in names} == names


@pytest.mark.parametrize("name", sorted(RUNNERS))
def test_lines_are_one_line_of_valid_shell(name: str) -> None:
    test_runner = runner(name)
    assert test_runner.name == name
    hostile = ["tests/a b.py", "-x.py", "$(touch pwned)'\".py"]
    for files in ((), hostile):
        line = test_runner.shell("/work/my reports", files, "--option 'of mine'")
        assert "\n" not in line
        assert subprocess.run(["sh", "-n", "-c", line], check=False).returncode == 0
        if name not in ("ctest", "googletest", "catch2", "junit-console") or not files:
            assert shlex.quote("/work/my reports") in line
    assert "--option 'of mine'" in test_runner.shell("/r", (), "--option 'of mine'")


def test_an_unknown_runner_lists_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown test runner 'pytst'; did you mean 'pytest'"):
        runner("pytst")

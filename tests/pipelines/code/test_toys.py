"""The toy projects of the languages, from a clone to a proven instance, on this machine's toolchains."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import toy_repository
from code_runs import CODE, MAVEN, Toy, need, toy

from envgen.core.code_types import CodeLanguage, Instance
from envgen.core.types import Score
from envgen.pipelines.code.recipes import detect_recipe
from envgen.pipelines.code.split import TEST_RULES, classify
from envgen.pipelines.code.validate import validate_instance
from envgen.pipelines.code.validation import ValidateConfig
from envgen.sandboxes.workspace import Workspace, base_tree, build_workspace
from envgen.verifiers.code import CodeVerifier, exam_of, score_run
from envgen.verifiers.code_run import run_tests, touched_paths

pytestmark = [
    pytest.mark.bwrap,
    pytest.mark.toolchain,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]
NEEDS: dict[CodeLanguage, tuple[tuple[str, ...], str]] = {
    "c": (("cc", "cmake", "ninja"), "gcc cmake ninja-build"),
    "cpp": (
        ("c++", "cmake", "ninja", "/usr/include/gtest/gtest.h"),
        "g++ cmake ninja-build libgtest-dev",
    ),
    "go": (("go", "gotestsum"), "golang-go gotestsum"),
    "java": MAVEN,
    "javascript": (("node",), "nodejs (20 or later)"),
    "php": (("phpunit",), "phpunit php-xml php-mbstring"),
}
LEAVE = (
    r"printf '\n#include <stdlib.h>\n__attribute__((constructor)) static void leave(void) "
    r"{ exit(0); }\n' >> "
)
TRICKS: dict[CodeLanguage, tuple[str, ...]] = {
    "c": (f"{LEAVE} ranges.c", "echo 'add_definitions(-Dmain=other)' >> CMakeLists.txt"),
    "cpp": (f"{LEAVE} src/ranges.cpp",),
    "go": (
        r"sed -i 's/^import (/import (\n\t\"os\"/' ranges.go; printf 'func init() { os.Exit(0) }\n' "
        ">> ranges.go",
        r"printf 'package ranges\nimport (\"os\"; \"testing\")\n"
        r"func TestMain(m *testing.M) { os.Exit(0) }\n' > main_test.go",
    ),
    "java": (
        "sed -i 's:<properties>:<properties><maven.test.skip>true</maven.test.skip>:' pom.xml",
        r"mkdir .mvn; printf -- '-DskipTests\n' > .mvn/maven.config",
        "sed -i 's:<properties>:<properties><maven.test.failure.ignore>true"
        "</maven.test.failure.ignore>:' pom.xml",
    ),
    "javascript": (
        "sed -i 's/node --test/exit 0/' package.json; echo 'process.exit(0)' >> src/ranges.js",
        'echo \'require("node:test").it = () => {}; require("node:test").test = () => {}\' '
        ">> src/ranges.js",
    ),
    "php": (
        "echo 'exit(0);' >> src/Ranges.php",
        "sed -i 's:<phpunit:<phpunit defaultTestSuite=\"none\":' phpunit.xml",
    ),
}
"""What a shell does to a toy so that its tests would pass, or not be run."""
FORGED = frozenset({"c"})
"""Languages whose first trick passes where nobody looks at the canaries. (GoogleTest finds no tests then.)"""
GOOD = {"pass", "xfail"}
AT_ONCE = 8
"""Debian's Maven sleeps for nine seconds after the tests: sandboxes wait beside each other."""


def built(project: Toy, folder: Path) -> Workspace:
    repo = folder / "clone"
    shutil.copytree(CODE / project.language / "base", repo)
    toy_repository.git(repo, "init", "-q", "-b", "main")
    toy_repository.git(repo, "add", "-Af")
    toy_repository.git(repo, "commit", "-qm", "Begin")
    tree = base_tree(repo, "HEAD", folder / "tree.tar")
    recipe = project.recipe
    if project.language == "go":  # as the recipe's rules do: the standard library is compiled once
        own = detect_recipe(tree, "go", None)
        recipe = recipe.model_copy(update={"install": own.install, "variables": own.variables})
    return build_workspace(recipe, tree, backend="bubblewrap", cache_root=folder / "cache")


def _files(language: CodeLanguage) -> list[str]:
    base = CODE / language / "base"
    return [path.relative_to(base).as_posix() for path in base.rglob("*")]


@pytest.mark.parametrize("language", NEEDS)
def test_a_toy_is_proven(language: CodeLanguage, tmp_path: Path) -> None:
    programs, packages = NEEDS[language]
    need(*programs, apt=packages)
    project = toy(language)
    workspace = built(project, tmp_path)
    folder = CODE / language
    instance = Instance(
        id=f"toy__{language}-1",
        repo=f"toy/{language}",
        base_commit="0" * 40,
        language=language,
        kind="issue",
        problem_statement=(folder / "issue.md").read_text(),
        gold_patch=(folder / "gold.patch").read_text(),
        test_patch=(folder / "test.patch").read_text(),
    )
    found = validate_instance(
        instance,
        workspace,
        ValidateConfig(repeats=1, more=0),  # judged once more below, by the verifier
        test_files=[path for path in _files(language) if classify(path, language) == "test"],
        test_paths=TEST_RULES[language],
    )
    assert found.reason is None, found.details
    assert found.tests is not None
    before, after = project.states["tests"], project.states["gold"]
    fixed = {
        name for name, status in after.items() if status == "pass" and before.get(name) != "pass"
    }
    kept = {name for name, status in after.items() if status in GOOD and before.get(name) in GOOD}
    assert set(found.tests.fail_to_pass) == fixed
    assert set(found.tests.pass_to_pass) == kept
    verifier = CodeVerifier(workspace, found.tests)
    limited = found.tests.model_copy(update={"only": touched_paths(instance.test_patch.encode())})
    tricks = [_tricked(workspace, trick) for trick in TRICKS[language]]
    gold, short, *worthless = _scores(
        [
            (verifier, instance.gold_patch.encode()),
            (CodeVerifier(workspace, limited), b""),
            (verifier, b""),
            (verifier, instance.test_patch.encode()),
            *((verifier, trick) for trick in tricks),
        ]
    )
    assert gold.passed, gold.reasons
    assert not GOOD & {short.tests.get(name) for name in fixed}
    for score, what in zip(worthless, ("", "test patch", *TRICKS[language]), strict=True):
        assert score.value == 0, what
    if language in FORGED:
        assert "with the alarm 'main' set off" in worthless[2].reasons[0]
        exam = exam_of(verifier.tests).model_copy(update={"canaries": False})
        assert score_run(run_tests(workspace, exam, tricks[0]), verifier.tests).passed


def _tricked(workspace: Workspace, trick: str) -> bytes:
    """The diff that a trick's shell line leaves."""
    with workspace.open() as opened:
        done = opened.shell(trick)
        assert done.exit_code == 0, done.stderr
        patch = opened.diff()
    assert patch, trick
    return patch


def _scores(judged: Sequence[tuple[CodeVerifier, bytes]]) -> list[Score]:
    """What each verifier makes of its patch, in order; each runs in a sandbox of its own."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda pair: pair[0].verify_patch(pair[1]), judged))


class New(NamedTuple):
    """A test of something new that no run can load before it is there, and a lie about it."""

    test: tuple[str, bytes]
    source: tuple[str, bytes]
    lie: tuple[str, bytes]
    fail_to_pass: str


NEW: dict[CodeLanguage, New] = {
    "go": New(
        (
            "twice_test.go",
            b'package ranges\n\nimport "testing"\n\nfunc TestTwice(t *testing.T) {\n'
            b'\tif Twice(2) != 4 {\n\t\tt.Fatal("not 4")\n\t}\n}\n',
        ),
        ("twice.go", b"package ranges\n\nfunc Twice(n int) int { return 2 * n }\n"),
        (
            "lies.go",
            b'package ranges\n\nimport "fmt"\n\nfunc init() {\n'
            b'\tfmt.Println("FAIL\\texample.com/ranges [build failed]")\n'
            b'\tfmt.Println("--- PASS: TestTwice (0.00s)")\n}\n',
        ),
        "example.com/ranges::TestTwice",
    ),
    "php": New(
        (
            "tests/TwiceTest.php",
            b"<?php\nnamespace Ranges\\Tests;\n@include_once __DIR__ . '/../src/Twice.php';\n"
            b"final class TwiceTest extends \\PHPUnit\\Framework\\TestCase\n{\n"
            b"    use \\Ranges\\Twice;\n    public function testTwice(): void\n    {\n"
            b"        $this->assertSame(4, $this->twice(2));\n    }\n}\n",
        ),
        (
            "src/Twice.php",
            b"<?php\nnamespace Ranges;\ntrait Twice\n{\n"
            b"    private function twice(int $n): int\n    {\n        return 2 * $n;\n    }\n}\n",
        ),
        ("src/Twice.php", b"<?php\nexit(0);\n"),
        "tests/TwiceTest.php::Ranges.Tests.TwiceTest::testTwice",
    ),
}


def _added(workspace: Workspace, path: str, content: bytes) -> bytes:
    with workspace.open() as opened:
        opened.write(path, content)
        return opened.diff()


@pytest.mark.parametrize("language", NEW)
def test_tests_that_only_the_change_lets_load(language: CodeLanguage, tmp_path: Path) -> None:
    """The canaries can't run before, either: nothing was built, and nobody has forged a report."""
    need(*NEEDS[language][0], apt=NEEDS[language][1])
    workspace, new = built(toy(language), tmp_path), NEW[language]
    tests, gold, lie = (_added(workspace, *file) for file in (new.test, new.source, new.lie))
    known = [path for path in _files(language) if classify(path, language) == "test"]
    instance = Instance(
        id=f"toy__{language}-2",
        repo=f"toy/{language}",
        base_commit="0" * 40,
        language=language,
        kind="commit",
        problem_statement="Twice is missing.",
        gold_patch=gold.decode(),
        test_patch=tests.decode(),
    )
    found = validate_instance(
        instance,
        workspace,
        ValidateConfig(repeats=1, more=1),
        test_files=known,
        test_paths=TEST_RULES[language],
    )
    assert found.reason is None, found.details
    assert found.tests is not None
    assert found.tests.fail_to_pass == (new.fail_to_pass,)
    assert len(found.tests.pass_to_pass) >= 3
    verifier = CodeVerifier(workspace, found.tests)
    empty = verifier.verify_patch(b"")
    assert empty.value == 0
    missing = f"fail_to_pass: {new.fail_to_pass} is missing"
    assert empty.reasons[0].startswith(("not_built: ", missing)), empty.reasons
    assert verifier.verify_patch(lie).value == 0

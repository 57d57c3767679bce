"""Tricks beyond Python, each tried for real on a toy project, and caught by look-alikes or alarms."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import toy_languages
from code_runs import MAVEN, need, node_packages
from language_cheats import LANGUAGE_CHEATS, MORE, LanguageCheat

from envgen.core.code_types import Instance, VerdictKind
from envgen.core.types import Score
from envgen.pipelines.code.validate import validate_instance
from envgen.pipelines.code.validation import ValidateConfig
from envgen.pipelines.code.verdicts import prove_verdicts
from envgen.verifiers.code import CodeVerifier, exam_of, score_run
from envgen.verifiers.code_run import run_tests
from envgen.verifiers.program_canaries import ALARMS

pytestmark = [pytest.mark.bwrap, pytest.mark.toolchain, pytest.mark.slow]
ALARMED = ("c", "cpp")
NEEDS = {
    "javascript": (("node",), "nodejs (20 or later)"),
    "typescript": (("node", "npm"), "nodejs npm"),
    "c": (("cc", "cmake", "ninja"), "gcc cmake ninja-build"),
    "cpp": (("c++", "cmake", "ninja", "/usr/include/gtest/gtest.h"), "g++ cmake libgtest-dev"),
    "go": (("go", "gotestsum"), "golang-go gotestsum"),
    "java": MAVEN,
    "php": (("phpunit",), "phpunit php-xml php-mbstring"),
}


@pytest.fixture(scope="module")
def verifiers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CodeVerifier]:
    cached: dict[str, CodeVerifier] = {}

    def verifier(language: str) -> CodeVerifier:
        if language not in cached:
            programs, packages = NEEDS[language]
            need(*programs, apt=packages)
            npm = None
            if language == "typescript":
                npm = node_packages(tmp_path_factory.mktemp("npm"), "typescript@5", "vitest@3")
            folder = tmp_path_factory.mktemp(language)
            found = toy_languages.verifier(language, folder, more=MORE.get(language), packages=npm)
            cached[language] = with_alarms(found) if language in ALARMED else proven(found)
        return cached[language]

    return verifier


def proven(verifier: CodeVerifier) -> CodeVerifier:
    """The verifier, with the questions that hold on the gold patch."""
    gold = toy_languages.gold(verifier.workspace.recipe.language)
    found = prove_verdicts(verifier.workspace, verifier.tests, gold, rehearsals=0)
    kinds = {one.kind for one in found.tests.verdicts.values()}
    assert kinds == {VerdictKind.MANY, VerdictKind.ONE_BIT}, found.tests.verdicts
    return CodeVerifier(verifier.workspace, found.tests)


def with_alarms(verifier: CodeVerifier) -> CodeVerifier:
    """The verifier, told what the alarms of its test programs make fail."""
    exam = exam_of(verifier.tests).model_copy(
        update={"alarms": dict.fromkeys(ALARMS, ()), "explore": True}
    )
    run = run_tests(
        verifier.workspace, exam, toy_languages.gold(verifier.workspace.recipe.language)
    )
    known = {
        "alarms": run.alarms,
        "registered": run.registered,
        "canary_files": run.canary_files,
    }
    tests = verifier.tests.model_copy(update=known)
    return CodeVerifier(verifier.workspace, tests)


def judged(verifier: CodeVerifier, patch: bytes, **exam: object) -> Score:
    wanted = exam_of(verifier.tests).model_copy(update=exam)
    return score_run(run_tests(verifier.workspace, wanted, patch), verifier.tests)


def diff_of(verifier: CodeVerifier, cheat: LanguageCheat) -> bytes:
    with verifier.workspace.open() as opened:
        for path, content in cheat.files.items():
            opened.write(path, content.encode())
        return opened.diff()


@pytest.mark.parametrize("language", [one for one in NEEDS if one not in ALARMED])
def test_the_fix_passes_among_look_alikes(
    language: str, verifiers: Callable[[str], CodeVerifier]
) -> None:
    score = verifiers(language).verify_patch(toy_languages.gold(language))
    assert score.passed, score.reasons


@pytest.mark.parametrize("language", ALARMED)
def test_the_fix_passes_with_alarms_set(
    language: str, verifiers: Callable[[str], CodeVerifier]
) -> None:
    verifier = verifiers(language)
    run = run_tests(verifier.workspace, exam_of(verifier.tests), toy_languages.gold(language))
    assert run.canary_files == verifier.tests.canary_files, run.reason
    assert run.unsound_files == ()
    assert score_run(run, verifier.tests).passed, score_run(run, verifier.tests).reasons
    assert run.report is not None
    known = {*verifier.tests.fail_to_pass, *verifier.tests.pass_to_pass}
    assert known <= run.report.statuses().keys()


@pytest.mark.parametrize("cheat", LANGUAGE_CHEATS, ids=lambda cheat: cheat.name.replace(" ", "-"))
def test_a_trick_is_caught_by_look_alikes_or_alarms(
    cheat: LanguageCheat, verifiers: Callable[[str], CodeVerifier]
) -> None:
    """The gate's sabotage test: without them the trick mends every test that matters."""
    verifier = verifiers(cheat.language)
    patch = diff_of(verifier, cheat)
    with ThreadPoolExecutor(2) as pool:  # Debian's Maven sleeps after the tests
        without = pool.submit(judged, verifier, patch, canary_files=(), alarms={}, registered={})
        score = verifier.verify_patch(patch)
    believed = without.result()
    wanted = {test: believed.tests.get(test) for test in verifier.tests.fail_to_pass}
    assert set(wanted.values()) == {"pass"}, believed.reasons
    assert score.value == 0
    assert score.reasons[0].startswith("forged: "), score.reasons


@pytest.mark.parametrize(
    "cheat",
    [one for one in LANGUAGE_CHEATS if one.language in ALARMED],
    ids=lambda cheat: cheat.name.replace(" ", "-"),
)
def test_look_alikes_alone_catch_what_alarms_do(
    cheat: LanguageCheat, verifiers: Callable[[str], CodeVerifier]
) -> None:
    workspace, tests = verifiers(cheat.language).workspace, verifiers(cheat.language).tests
    gold = toy_languages.gold(cheat.language)
    found = prove_verdicts(workspace, tests, gold, rehearsals=0).tests
    assert VerdictKind.MANY in {one.kind for one in found.verdicts.values()}, found.verdicts
    bare: dict[str, object] = {"canary_files": (), "alarms": {}, "registered": {}}
    alone = CodeVerifier(workspace, found.model_copy(update=bare))
    assert alone.verify_patch(gold).passed
    score = alone.verify_patch(diff_of(verifiers(cheat.language), cheat))
    assert score.value == 0
    assert score.reasons[0].startswith("forged: a look-alike of "), score.reasons


def test_what_build_files_register_is_compared(
    verifiers: Callable[[str], CodeVerifier],
) -> None:
    """Where the test patch has no program that could have an alarm, this alone is left."""
    verifier = verifiers("c")
    cheat = next(one for one in LANGUAGE_CHEATS if one.name.startswith("CMake"))
    patch = diff_of(verifier, cheat)
    score = judged(verifier, patch, canary_files=(), alarms={})
    assert score.value == 0
    assert score.reasons[0].startswith("forged: what the build files register as "), score.reasons


SMALL = """\
diff --git a/small_test.go b/small_test.go
new file mode 100644
--- /dev/null
+++ b/small_test.go
@@ -0,0 +1,10 @@
+package ranges
+
+import "testing"
+
+func TestSmall(t *testing.T) {
+\twant := uint8(255)
+\tif got := uint8(255); got != want {
+\t\tt.Fatal(got)
+\t}
+}
"""


def test_a_wrong_value_that_does_not_compile_costs_no_other_question(
    verifiers: Callable[[str], CodeVerifier],
) -> None:
    verifier = verifiers("go")
    small = "example.com/ranges::TestSmall"
    tests = verifier.tests.model_copy(
        update={
            "test_patch": verifier.tests.test_patch + SMALL,
            "pass_to_pass": (*verifier.tests.pass_to_pass, small),
            "questions": (),
            "verdicts": {},
        }
    )
    found = prove_verdicts(verifier.workspace, tests, toy_languages.gold("go"), rehearsals=0).tests
    assert {kind.kind for kind in found.verdicts.values()} == {
        VerdictKind.MANY,
        VerdictKind.ONE_BIT,
    }
    assert all(small not in question.tests for question in found.questions)


def test_proving_finds_which_tests_can_have_look_alikes(
    verifiers: Callable[[str], CodeVerifier],
) -> None:
    verifier = verifiers("javascript")
    instance = Instance(
        id="toy__ranges-1",
        repo="toy/ranges",
        base_commit="0" * 40,
        language="javascript",
        kind="issue",
        problem_statement="Ranges can't count down.",
        gold_patch=toy_languages.gold("javascript").decode(),
        test_patch=verifier.tests.test_patch,
    )
    found = validate_instance(
        instance,
        verifier.workspace,
        ValidateConfig(repeats=1, more=1),
        test_files=verifier.tests.test_files,
        test_paths=verifier.tests.test_paths,
    )
    assert found.tests is not None, found.details
    assert found.tests.verdicts == verifier.tests.verdicts
    assert set(found.tests.fail_to_pass) == set(verifier.tests.fail_to_pass)
    assert found.runs == 5 + 4  # the last ones prove the verdicts

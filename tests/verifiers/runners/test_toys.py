"""The toy projects of eight languages, run for real with this machine's toolchains."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from code_runs import MAVEN, REPORTS, Toy, need, node_packages, run_tests, toy

from envgen.core.code_types import Status
from envgen.verifiers.runners import runner
from envgen.verifiers.runners.base import Terse

NEEDS = {
    "python": ((), ""),
    "javascript": (("node",), "nodejs (20 or later)"),
    "typescript": (("node", "npm"), "nodejs npm"),
    "c": (("cc", "cmake", "ninja"), "gcc cmake ninja-build"),
    "cpp": (
        ("c++", "cmake", "ninja", "/usr/include/gtest/gtest.h"),
        "g++ cmake ninja-build libgtest-dev",
    ),
    "go": (("go", "gotestsum"), "golang-go gotestsum"),
    "java": MAVEN,
    "php": (("phpunit",), "phpunit php-xml php-mbstring"),
}
STATES = ("base", "tests", "gold")


@pytest.fixture(scope="module")
def typescript_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node_packages(tmp_path_factory.mktemp("typescript"), "typescript@5", "vitest@3")


def _dependencies(language: str, request: pytest.FixtureRequest) -> Path | None:
    programs, packages = NEEDS[language]
    need(*programs, apt=packages)
    if language == "typescript":
        found: Path = request.getfixturevalue("typescript_packages")
        return found
    return Path(sys.prefix) if language == "python" else None


def _check(project: Toy, folder: Path, state: str, env: Path | None, backend: str) -> None:
    """Run a state with canaries: they have their verdicts, and every other test its status."""
    recipe, files = project.recipe, project.tree(folder, state)
    test_runner = runner(recipe.runner)
    canaries = test_runner.canaries(f"{project.language} {state}", files)
    assert not canaries.files.keys() & files.keys()
    commands = [*recipe.build, test_runner.shell(REPORTS, (), recipe.options)]
    variables = recipe.variables
    run = run_tests(files | canaries.files, commands, env=env, variables=variables, backend=backend)
    statuses = run.report().statuses()
    assert statuses.pop(canaries.passing, None) is Status.PASS, run.output
    assert statuses.pop(canaries.failing, None) is Status.FAIL, run.output
    assert {id_: status.value for id_, status in statuses.items()} == project.states[state]


@pytest.mark.bwrap
def test_tests_end_alike_where_failures_are_not_explained(tmp_path: Path) -> None:
    project = toy("python")
    test_runner = runner(project.recipe.runner)
    assert isinstance(test_runner, Terse)
    line = test_runner.shell(REPORTS, (), test_runner.terse)
    run = run_tests(project.tree(tmp_path, "tests"), [line], env=Path(sys.prefix))
    report = run.report()
    statuses = {case.id: case.status.value for case in report.cases}
    assert statuses == project.states["tests"]
    assert all("assert" not in case.message for case in report.cases)


@pytest.mark.slow
@pytest.mark.bwrap
@pytest.mark.toolchain
@pytest.mark.parametrize("language", NEEDS)
def test_a_toy_in_bubblewrap_before_and_after_its_patches(
    language: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    env = _dependencies(language, request)
    project = toy(language)
    with ThreadPoolExecutor(len(STATES)) as pool:  # Debian's Maven sleeps after the tests
        checks = [
            pool.submit(_check, project, tmp_path / state, state, env, "bubblewrap")
            for state in STATES
        ]
        for check in checks:
            check.result()


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.toolchain
@pytest.mark.parametrize("language", NEEDS)
def test_a_toy_in_docker_with_its_gold_patch(
    language: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    env = _dependencies(language, request)
    _check(toy(language), tmp_path, "gold", env, "docker")


@pytest.mark.parametrize("language", NEEDS)
def test_what_is_expected_of_a_toy_shows_every_kind_of_test(language: str, tmp_path: Path) -> None:
    project = toy(language)
    base, tests, gold = (project.states[state] for state in STATES)
    wanted = {"skip", "pass", "fail"}
    assert set(base.values()) - {"error"} == wanted
    assert ("error" in base.values()) is (language not in ("javascript", "typescript", "cpp"))
    fixed = {id_ for id_, status in gold.items() if status == "pass" != tests[id_]}
    assert len(fixed) == 2
    assert not fixed & base.keys()
    broken = {id_ for id_, status in tests.items() if status == "pass" != gold[id_]}
    assert not broken
    assert project.recipe.language == language
    for state in STATES:
        assert project.tree(tmp_path / state, state)

"""Every runner for real on its project in ``tests/data/junit``: it reads as what it wrote then."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from code_runs import MAVEN, REPORTS, SuiteRun, folder_files, need, node_packages, run_tests

from envgen.core.code_types import Status
from envgen.core.errors import ReportError
from envgen.verifiers.runners import RUNNERS, runner
from envgen.verifiers.runners.base import Registering

pytestmark = pytest.mark.toolchain
FOLDER = Path(__file__).resolve().parents[2] / "data" / "junit"
CMAKE = ("cmake -S . -B build -DCMAKE_BUILD_TYPE= >/dev/null", "cmake --build build -j2 >&2")
JAVAC = (
    "mkdir -p build/classes && javac -d build/classes -cp "
    "$(ls /usr/share/java/junit*.jar /usr/share/java/apiguardian-api.jar | tr '\\n' ':') "
    "$(find src -name '*.java')"
)
NODE_PACKAGES = ("jest@29", "jest-junit@16", "mocha@10", "mocha-junit-reporter@2", "vitest@3")


class Job(NamedTuple):
    """How a runner's project is run."""

    programs: tuple[str, ...]
    apt: str
    env: str = ""
    """Whose packages it needs: ``python``'s, ``node``'s or nobody's."""
    build: tuple[str, ...] = ()
    options: str = ""
    variables: tuple[tuple[str, str], ...] = ()


JOBS = {
    "pytest": Job((), "", "python"),
    "unittest": Job((), "", "python", options="-s tests -t ."),
    "node-test": Job(("node",), "nodejs (20 or later)"),
    "jest": Job(("node", "npm"), "nodejs npm", "node"),
    "mocha": Job(("node", "npm"), "nodejs npm", "node"),
    "vitest": Job(("node", "npm"), "nodejs npm", "node"),
    "ctest": Job(("cc", "cmake"), "gcc cmake", build=CMAKE),
    "meson": Job(
        ("cc", "meson", "ninja"), "gcc meson ninja-build", build=("meson setup build >/dev/null",)
    ),
    "make": Job(
        ("cc", "make", "autoreconf", "automake"),
        "gcc make automake",
        build=("chmod +x *.sh */*.test && autoreconf -fi >&2 && ./configure >/dev/null",),
    ),
    "googletest": Job(
        ("c++", "cmake", "/usr/include/gtest/gtest.h"), "g++ cmake libgtest-dev", build=CMAKE
    ),
    "catch2": Job(
        ("c++", "cmake", "/usr/include/catch2/catch.hpp"), "g++ cmake catch2", build=CMAKE
    ),
    "gotestsum": Job(
        ("go", "gotestsum"), "golang-go gotestsum", variables=(("GOCACHE", "/tmp/go"),)
    ),
    "phpunit": Job(("phpunit",), "phpunit php-xml php-mbstring"),
    "surefire": Job(
        *MAVEN,
        variables=(("MAVEN_REPOSITORY", "/usr/share/maven-repo"),),
    ),
    "junit-console": Job(
        ("javac", "/usr/share/java/junit-platform-console.jar", "/usr/share/java/junit4.jar"),
        "default-jdk-headless junit5 junit4",
        build=(JAVAC,),
    ),
    "gradle": Job(
        ("gradle", "javac"),
        "gradle default-jdk-headless junit4",
        variables=(("GRADLE_USER_HOME", "/tmp/gradle"),),
    ),
}
QUICK = ("pytest", "unittest", "node-test", "ctest", "meson", "phpunit")


@pytest.fixture(scope="module")
def node_tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node_packages(tmp_path_factory.mktemp("node"), *NODE_PACKAGES)


def _run(
    name: str,
    request: pytest.FixtureRequest,
    more: dict[str, bytes] | None = None,
    files: tuple[str, ...] = (),
) -> SuiteRun:
    job = JOBS[name]
    need(*job.programs, apt=job.apt)
    env = Path(sys.prefix) if job.env == "python" else None
    env = request.getfixturevalue("node_tools") if job.env == "node" else env
    tree = folder_files(FOLDER / "projects" / name) | (more or {})
    line = runner(name).shell(REPORTS, files, job.options)
    return run_tests(tree, [*job.build, line], env=env, variables=dict(job.variables))


def test_there_is_a_job_for_every_runner() -> None:
    assert sorted(JOBS) == sorted(RUNNERS)


@pytest.mark.bwrap
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in JOBS]
)
def test_a_run_with_canaries(name: str, request: pytest.FixtureRequest) -> None:
    files = folder_files(FOLDER / "projects" / name)
    near = ("ok/ok_test.go",) if name == "gotestsum" else ()  # the first package does not build
    canaries = runner(name).canaries("a run", files, near)
    run = _run(name, request, canaries.files)
    statuses = run.report().statuses()
    assert statuses.pop(canaries.passing, None) is Status.PASS, run.output
    assert statuses.pop(canaries.failing, None) is Status.FAIL, run.output
    expected = json.loads((FOLDER / "expected" / f"{name}.json").read_text())["statuses"]
    assert {id_: status.value for id_, status in statuses.items()} == expected


@pytest.mark.bwrap
@pytest.mark.parametrize("name", ["ctest", "meson"])
def test_what_is_registered_has_the_ids_of_the_report(name: str) -> None:
    job, found = JOBS[name], runner(name)
    need(*job.programs, apt=job.apt)
    assert isinstance(found, Registering)
    tree = folder_files(FOLDER / "projects" / name)
    listed = run_tests(tree, [*job.build, found.listing()])
    registered = found.registered(listed.result.stdout)
    expected = json.loads((FOLDER / "expected" / f"{name}.json").read_text())["statuses"]
    whole = {
        re.sub(r"^quirks\.(.*)::.*$", r"quirks::\1", id_) for id_ in expected
    }  # of TAP's subtests
    assert registered.keys() == whole
    assert len(set(registered.values())) >= len(registered) - 2  # Meson lists no should_fail
    with pytest.raises(ReportError, match="lists no tests"):
        found.registered(b"")


@pytest.mark.bwrap
def test_another_command_under_mesons_name_is_seen() -> None:
    job, found = JOBS["meson"], runner("meson")
    need(*job.programs, apt=job.apt)
    assert isinstance(found, Registering)
    tree = folder_files(FOLDER / "projects" / "meson")
    own = b"test('fails <&>', ends, args: ['1'])"
    assert own in tree["meson.build"]
    lie = {
        "meson.build": tree["meson.build"].replace(own, b"test('fails <&>', find_program('true'))")
    }
    listings = [
        found.registered(run_tests(files, [*job.build, found.listing()]).result.stdout)
        for files in (tree, tree | lie)
    ]
    changed = {test for test, digest in listings[0].items() if listings[1].get(test) != digest}
    assert changed == {"quirks::quirks / fails <&>"}


@pytest.mark.slow
@pytest.mark.bwrap
def test_a_java_test_that_was_left_out_is_an_error() -> None:
    job = JOBS["junit-console"]
    need(*job.programs, apt=job.apt)
    tree = folder_files(FOLDER / "projects" / "junit-console")
    left = "mkdir -p build && echo src/test/java/quirks/LeftTest.java > build/classes.left"
    line = runner("junit-console").shell(REPORTS)
    statuses = run_tests(tree, [*job.build, left, line]).report().statuses()
    assert statuses["quirks.LeftTest::quirks.LeftTest"] is Status.ERROR
    assert statuses["quirks.QuirksTest$Inner::deep"] is Status.PASS


MAKEFILE = b"""
CFLAGS = -w
test: ends
	./ends {0}
ends: ends.c
"""


@pytest.mark.bwrap
@pytest.mark.parametrize(("code", "status"), [(0, Status.PASS), (1, Status.FAIL)])
def test_a_makefile_is_one_test(code: int, status: Status) -> None:
    need("cc", "make", apt="gcc make")
    source = b"#include <stdlib.h>\nint main(int n, char **v) { return atoi(v[1]); }\n"
    tree = {"src/ends.c": source, "src/Makefile": MAKEFILE.replace(b"{0}", str(code).encode())}
    canaries = runner("make").canaries("a run", tree)
    line = runner("make").shell(REPORTS)
    variables = {"BUILD_DIR": "src", "MAKE_TARGET": "test"}
    statuses = run_tests(tree | canaries.files, [line], variables=variables).report().statuses()
    assert statuses == {
        "make::test": status,
        canaries.passing: Status.PASS,
        canaries.failing: Status.FAIL,
    }


@pytest.mark.bwrap
@pytest.mark.parametrize("trick", [b"SHELL = /bin/true\n", b"MAKEFLAGS += -i\n", b".IGNORE:\n"])
def test_a_makefile_that_lets_all_pass_is_seen(trick: bytes) -> None:
    need("cc", "make", apt="gcc make")
    tree = {"Makefile": trick + b"test:\n\tfalse\n"}
    canaries = runner("make").canaries("a run", tree)
    run = run_tests(
        tree | canaries.files, [runner("make").shell(REPORTS)], variables={"MAKE_TARGET": "test"}
    )
    statuses = run.report().statuses()
    assert statuses["make::test"] is Status.PASS
    assert statuses[canaries.failing] is Status.PASS  # so the report is forged


LIMITED = {
    "pytest": ("sub/test_deep.py", {"sub/test_deep.py::sub.test_deep::test_pass"}),
    "node-test": ("test/es.test.mjs", {"test/es.test.mjs::test::pass"}),
    "vitest": ("typed.test.ts", {"typed.test.ts::typed"}),
    "jest": ("broken.test.js", {"broken.test.js::Test suite failed to run::broken.test.js"}),
    "mocha": (
        "test/second.test.js",
        {"test/second.test.js::suite in suite::in suite", "pass::pass"},
    ),
    "phpunit": ("tests/BrokenTest.php", {"tests/BrokenTest.php::BrokenTest::testNever"}),
    "gotestsum": (
        "panics/panics_test.go",
        {"example.com/quirks/panics::TestFirst", "example.com/quirks/panics::TestPanics"},
    ),
    "surefire": (
        "src/test/java/quirks/BrokenClassTest.java",
        {"quirks.BrokenClassTest::quirks.BrokenClassTest"},
    ),
    "gradle": (
        "src/test/java/quirks/BrokenClassTest.java",
        {"quirks.BrokenClassTest::classMethod"},
    ),
}
SLOW_LIMITED = ("vitest", "jest", "mocha", "gotestsum", "surefire", "gradle")


@pytest.mark.bwrap
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW_LIMITED)) for name in LIMITED],
)
def test_a_run_that_is_limited_to_a_file(name: str, request: pytest.FixtureRequest) -> None:
    file, ids = LIMITED[name]
    assert _run(name, request, files=(file,)).report().statuses().keys() == ids


@pytest.mark.slow
@pytest.mark.bwrap
def test_vitest_with_a_configuration_and_dependencies_that_nobody_can_write(
    node_tools: Path,
) -> None:
    tree = folder_files(FOLDER / "projects" / "vitest") | {
        "vitest.config.ts": b'import { defineConfig } from "vitest/config";\n'
        b'export default defineConfig({ test: { include: ["*.test.ts"] } });\n'
    }
    lines = ["ln -s /env/node_modules node_modules", runner("vitest").shell(REPORTS)]
    run = run_tests(tree, lines, env=node_tools)
    assert run.report().statuses() == {"typed.test.ts::typed": Status.PASS}


@pytest.mark.bwrap
def test_unittest_takes_files_as_modules(request: pytest.FixtureRequest) -> None:
    report = _run("unittest", request, files=("tests/test_quirks.py",)).report()
    assert {case.id.split("::")[0] for case in report.cases} == {
        "tests/test_quirks.py",
        "tests.test_quirks.TestBrokenClass",
    }


@pytest.mark.bwrap
def test_reports_of_an_earlier_run_are_removed(request: pytest.FixtureRequest) -> None:
    old = f"mkdir -p {REPORTS} && echo '<testsuite><testcase name=\"old\"/></testsuite>' >{REPORTS}/old.xml"
    tree = {"test_one.py": b"def test_one(): pass\n"}
    lines = [old, runner("pytest").shell(REPORTS)]
    run = run_tests(tree, lines, env=Path(sys.prefix))
    assert set(run.reports) == {"pytest.xml"}


@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("pytest", {"test_exit.py": b"import os\n\ndef test_exit(): os._exit(0)\n"}),
        (
            "phpunit",
            {
                "tests/ExitTest.php": b"<?php\nclass ExitTest extends PHPUnit\\Framework\\TestCase {\n"
                b"    public function testExit(): void { exit(0); }\n}\n",
                "phpunit.xml": b'<phpunit><testsuites><testsuite name="a"><directory>tests</directory>'
                b"</testsuite></testsuites></phpunit>",
            },
        ),
    ],
)
def test_code_that_ends_its_runner_leaves_an_error_and_no_report(
    name: str, tree: dict[str, bytes]
) -> None:
    need(*JOBS[name].programs, apt=JOBS[name].apt)
    run = run_tests(tree, [runner(name).shell(REPORTS)], env=Path(sys.prefix))
    assert run.result.exit_code == 0
    with pytest.raises(ReportError, match=r"left no report|is empty"):
        run.report()


@pytest.mark.bwrap
def test_a_canary_tells_on_code_that_turns_failures_into_passes() -> None:
    cheat = b"""
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
    tree = {"conftest.py": cheat, "test_one.py": b"def test_one(): assert False\n"}
    canaries = runner("pytest").canaries("cheat", tree)
    run = run_tests(tree | canaries.files, [runner("pytest").shell(REPORTS)], env=Path(sys.prefix))
    statuses = run.report().statuses()
    assert statuses["test_one.py::test_one::test_one"] is Status.PASS
    assert statuses[canaries.failing] is Status.PASS  # not the verdict it must have

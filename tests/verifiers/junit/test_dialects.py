"""Reports that the real runners wrote about ``tests/data/junit/projects`` (the paths are the sandbox's)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envgen.core.code_types import Status
from envgen.verifiers.junit import read_junit

FOLDER = Path(__file__).resolve().parents[2] / "data" / "junit"
DIALECTS = sorted(path.name for path in (FOLDER / "reports").iterdir())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_case_of_a_real_report_has_its_id_and_status(dialect: str) -> None:
    expected = json.loads((FOLDER / "expected" / f"{dialect}.json").read_text())
    report = read_junit(FOLDER / "reports" / dialect)
    assert {id_: status.value for id_, status in report.statuses().items()} == expected["statuses"]
    assert report.repaired is expected["repaired"]
    for case in report.cases:
        assert "/work/repo" not in case.id
        if case.status in (Status.FAIL, Status.ERROR) and dialect not in ("ctest", "meson"):
            assert case.message


@pytest.mark.parametrize(
    ("dialect", "id_", "status"),
    [
        (
            "pytest",
            "test_broken_module.py::::test_broken_module",
            Status.ERROR,
        ),  # can't be imported
        ("pytest", "test_quirks.py::test_quirks::test_fails_and_teardown_error", Status.ERROR),
        ("pytest", "test_quirks.py::test_quirks::test_xfail", Status.XFAIL),
        ("pytest", "test_quirks.py::test_quirks::test_xpass", Status.PASS),
        ("pytest", "test_quirks.py::test_quirks::test_strict_xpass", Status.FAIL),
        ("pytest", "test_quirks.py::test_quirks.TestCase::test_subtests", Status.FAIL),
        ("unittest", "tests.test_quirks.TestBrokenClass::setUpClass", Status.ERROR),
        ("unittest", "unittest.loader._FailedTest.tests::test_broken", Status.ERROR),
        (
            "unittest",
            "tests/test_quirks.py::tests.test_quirks.TestQuirks::test_expected",
            Status.XFAIL,
        ),
        ("surefire", "quirks.BrokenClassTest::quirks.BrokenClassTest", Status.ERROR),
        ("surefire", "quirks.QuirksTest::odd(int)[2]", Status.FAIL),
        ("surefire", "quirks.QuirksTest::assumed", Status.SKIP),
        ("junit-console", "quirks.QuirksTest::odd(int)[2]", Status.FAIL),
        ("junit-console", "quirks.QuirksTest$Inner::deep", Status.PASS),
        ("gradle", "quirks.BrokenClassTest::classMethod", Status.FAIL),
        ("node-test", "test/broken.test.js::test::test/broken.test.js", Status.FAIL),
        ("node-test", "test/quirks.test.js::test::todo fails", Status.SKIP),
        ("node-test", "test/quirks.test.js::test::twice", Status.FAIL),
        ("node-test", "test/quirks.test.js::suite > inner::deep <&>", Status.PASS),
        ("jest", "broken.test.js::Test suite failed to run::broken.test.js", Status.ERROR),
        ("jest", "quirks.test.js::::todo", Status.SKIP),  # jest-junit: passed
        ("mocha", "todo::todo", Status.SKIP),
        ("vitest", "broken.test.js::broken.test.js", Status.FAIL),
        ("vitest", "quirks.test.js::todo", Status.SKIP),
        ("ctest", "not_built::not_built", Status.ERROR),  # CTest: skipped
        ("ctest", "disabled::disabled", Status.SKIP),
        ("ctest", "hangs::hangs", Status.FAIL),
        ("googletest", "quirks.cpp::Quirks::DISABLED_Off", Status.SKIP),
        ("googletest", "quirks.cpp::Some/Numbers::IsOdd/1", Status.FAIL),
        (
            "googletest",
            "build/crashes::[run]",
            Status.ERROR,
        ),  # the program aborted without a report
        ("catch2", "quirks.global::may fail", Status.SKIP),
        ("catch2", "build/crashes::[run]", Status.ERROR),  # it ended with 0 in a test
        ("gotestsum", "example.com/quirks/broken::[build]", Status.ERROR),
        ("gotestsum", "::[build]", Status.ERROR),  # what the report itself tells of it
        ("gotestsum", "example.com/quirks/panics::TestPanics", Status.FAIL),
        (
            "phpunit",
            'tests/QuirksTest.php::Quirks.Tests.QuirksTest::testRows with data set "two"',
            Status.FAIL,
        ),
        ("phpunit", "tests/QuirksTest.php::Quirks.Tests.QuirksTest::testRisky", Status.ERROR),
        ("phpunit", "tests/QuirksTest.php::Quirks.Tests.QuirksTest::testIncomplete", Status.SKIP),
    ],
)
def test_quirks(dialect: str, id_: str, status: Status) -> None:
    assert read_junit(FOLDER / "reports" / dialect).statuses()[id_] is status


def test_tests_after_a_go_panic_are_not_in_the_report() -> None:
    ids = read_junit(FOLDER / "reports" / "gotestsum").statuses()
    assert "example.com/quirks/panics::TestLater" not in ids


def test_methods_have_the_same_ids_by_surefire_and_by_the_console_launcher() -> None:
    surefire, console = (
        {id_ for id_ in read_junit(FOLDER / "reports" / name).statuses() if "QuirksTest" in id_}
        for name in ("surefire", "junit-console")
    )
    assert surefire == console
    assert len(surefire) == 13


def test_folders_of_files_and_their_bytes_read_alike() -> None:
    folder = FOLDER / "reports" / "surefire"
    named = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert read_junit(named) == read_junit(folder)

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from envgen.core.code_types import Status
from envgen.core.errors import ReportError
from envgen.verifiers.junit import read_junit


def _suite(*cases: str) -> bytes:
    return f"<testsuites><testsuite name='s'>{''.join(cases)}</testsuite></testsuites>".encode()


def test_statuses_by_child() -> None:
    report = read_junit(
        _suite(
            "<testcase classname='c' name='pass' time='1,000.5'/>",
            "<testcase classname='c' name='fail'><failure message='no'/></testcase>",
            "<testcase classname='c' name='error'><error>boom</error></testcase>",
            "<testcase classname='c' name='skip'><skipped/></testcase>",
            "<testcase classname='c' name='xfail'><skipped type='pytest.xfail'/></testcase>",
            "<testcase classname='c' name='todo'><skipped/><failure/></testcase>",
            "<testcase classname='c' name='off' status='notrun'/>",
            "<testcase file='t.py' classname='c' name='gone'>"
            "<skipped message='Unable to find executable: x'/></testcase>",
        )
    )
    assert report.statuses() == {
        "c::pass": Status.PASS,
        "c::fail": Status.FAIL,
        "c::error": Status.ERROR,
        "c::skip": Status.SKIP,
        "c::xfail": Status.XFAIL,
        "c::todo": Status.SKIP,
        "c::off": Status.SKIP,
        "t.py::c::gone": Status.ERROR,
    }
    assert report.cases[0].seconds == 1000.5
    assert [case.message for case in report.cases[1:3]] == ["no", "boom"]
    assert report.files == ("report",)
    assert not report.repaired


def test_of_equal_ids_the_worst_status_wins_and_times_add_up() -> None:
    case = "<testcase classname='c' name='n' time='1'>{}</testcase>"
    parts = ("", "<skipped/>", "<failure/>", "<error message='e'/>", "<skipped type='XFAIL'/>")
    (merged,) = read_junit(_suite(*(case.format(part) for part in parts))).cases
    assert (merged.status, merged.seconds, merged.message) == (Status.ERROR, 5.0, "e")


def test_a_folder_is_read_in_order_of_paths(tmp_path: Path) -> None:
    for name in ("b/TEST-b.xml", "a/TEST-a.xml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(_suite(f"<testcase name='{name[0]}'/>"))
    (tmp_path / "summary.xml").write_text("<failsafe-summary/>")
    (tmp_path / "notes.txt").write_text("no XML")
    report = read_junit(tmp_path)
    assert [case.id for case in report.cases] == ["::a", "::b"]
    assert report.files == ("a/TEST-a.xml", "b/TEST-b.xml")
    named = {name: (tmp_path / name).read_bytes() for name in report.files}
    assert read_junit(named).cases == report.cases


def test_no_report_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="did not write it"):
        read_junit(tmp_path / "missing.xml")
    with pytest.raises(ReportError, match="left no report"):
        read_junit(tmp_path)
    for content in (b"", b"\n\0 "):
        with pytest.raises(ReportError, match="is empty: the test runner ended before"):
            read_junit(content)
    with pytest.raises(ReportError, match="no JUnit XML"):
        read_junit(b"<html><body/></html>")
    with pytest.raises(ReportError, match="is not JUnit XML"):
        read_junit(b"Segmentation fault")


def test_one_empty_file_among_good_ones_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "good.xml").write_bytes(_suite("<testcase name='a'/>"))
    (tmp_path / "cut.xml").write_bytes(b"")
    with pytest.raises(ReportError, match=r"'cut\.xml' is empty"):
        read_junit(tmp_path)


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_bytes(_suite("<testcase name='forged'/>"))
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "link.xml").symlink_to(secret)
    with pytest.raises(ReportError, match="can't be read"):
        read_junit(reports)
    (reports / "link.xml").unlink()
    os.mkfifo(reports / "pipe.xml")
    with pytest.raises(ReportError, match="not a regular file"):
        read_junit(reports)


@pytest.mark.parametrize("end", [10, 60, 75, 90])
def test_a_report_that_is_cut_off_is_an_error(end: int) -> None:
    whole = _suite("<testcase name='a'/>", "<testcase name='b'><failure>x</failure></testcase>")
    with pytest.raises(ReportError):
        read_junit(whole[:end])


def test_ids_are_relative_to_the_repository_and_files_come_from_suites() -> None:
    report = read_junit(
        b"<testsuite file='/work/repo/t/a.js'><testcase classname='/work/repo/t/a.js' name='n'/>"
        b"</testsuite>"
    )
    assert [case.id for case in report.cases] == ["t/a.js::t/a.js::n"]


def test_what_changes_between_runs_is_replaced() -> None:
    names = (
        "f[&lt;object at 0x7f12ab34cd56&gt;]",
        "p[/tmp/pytest-of-root/pytest-3/x0/file]",
        "now[2026-11-21T10:00:01.5+00:00]",
        "then[2013-01-02T03:04:05]",
        "slow (12 ms)",
        "deep()",
        "param{int}[1]",
        "java.Thing@1b6d3586",
    )
    cases = [f"<testcase classname='c' name='{name}'/>" for name in names]
    report = read_junit(_suite(*cases), moment=datetime(2026, 11, 21, 12))
    assert [case.id.removeprefix("c::") for case in report.cases] == [
        "f[<object at <address>>]",
        "p[<tmp>/x0/file]",
        "now[<time>]",
        "then[2013-01-02T03:04:05]",
        "slow",
        "deep",
        "param(int)[1]",
        "java.Thing@<hash>",
    ]
    assert [case.printed.removeprefix("c::") for case in report.cases] == [
        "f[<object at 0x7f12ab34cd56>]",
        "p[/tmp/pytest-of-root/pytest-3/x0/file]",
        "now[2026-11-21T10:00:01.5+00:00]",
        *[""] * 4,
        "java.Thing@1b6d3586",
    ]


def test_names_that_would_become_one_are_kept() -> None:
    cases = [f"<testcase classname='c' name='waits ({n} ms)'/>" for n in (1, 2)]
    report = read_junit(_suite(*cases, "<testcase classname='c' name='sleeps (3 ms)'/>"))
    assert [case.id for case in report.cases] == ["c::waits (1 ms)", "c::waits (2 ms)", "c::sleeps"]

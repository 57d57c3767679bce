"""Reports made to cost the judge's memory and time, or to end it with an error that is no ReportError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envgen.core.errors import ReportError
from envgen.verifiers.junit import read, read_junit, sources

CASE = b'<testcase classname="a" name="%d"/>'


def suite(inside: bytes, attributes: bytes = b"") -> bytes:
    return b"<testsuite " + attributes + b">" + inside + b"</testsuite>"


@pytest.mark.parametrize("offset", ["+23:59", "-23:59", "Z"])
@pytest.mark.parametrize("day", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_moments_at_the_ends_of_the_calendar(day: str, offset: str) -> None:
    report = suite(CASE % 1, f'timestamp="{day}{offset}"'.encode())
    assert [case.id for case in read_junit(report).cases] == ["a::1"]


@given(
    numbers=st.one_of(st.floats().map(str), st.integers().map(str), st.text(max_size=20)),
    moment=st.one_of(st.datetimes(timezones=st.timezones()).map(str), st.text(max_size=20)),
)
def test_no_number_or_date_breaks_the_reader(numbers: str, moment: str) -> None:
    def quoted(text: str) -> bytes:
        kept = "".join(x for x in text if x.isprintable() and x not in '<&"')
        return kept.encode(errors="replace")

    case = b'<testcase classname="a" name="at %s" time="%s"/>' % (quoted(moment), quoted(numbers))
    named = b'timestamp="%s" errors="%s"' % (quoted(moment), quoted(numbers))
    assert len(read_junit(suite(case, named)).cases) == 1


def test_too_many_cases_or_tags_are_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_CASES", 100)
    many = {f"{n}.xml": suite(b"".join(CASE % (n * 30 + m) for m in range(30))) for n in range(4)}
    with pytest.raises(ReportError, match="over 100 cases"):
        read_junit(many)
    with pytest.raises(ReportError, match="2000002 tags"):
        read_junit(suite(b"<a/>" * 2_000_000))


def test_names_that_multiply_are_no_report() -> None:
    """A suite's file is every case's: 1 MB of it, 200 times; and each suite has the names above it."""
    cases = (CASE % 1) * 200
    with pytest.raises(ReportError, match="endless names"):
        read_junit(suite(cases, b'file="%s"' % (b"x" * (1 << 20))))
    with pytest.raises(ReportError, match="letters of names"):
        read_junit(b'<testsuite name="xxxxxxxxxx">' * 10_000 + b"</testsuite>" * 10_000)


def test_a_long_name_costs_no_square_of_its_length() -> None:
    for name in (b" " * 200_000 + b"0x", b"/var/folders/" * 50_000):
        assert len(read_junit(suite(b'<testcase classname="a" name="%s"/>' % name)).cases) == 1


def test_bytes_and_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 100)
    with pytest.raises(ReportError, match="at most 100"):
        read_junit({"a.xml": b" " * 60, "b.xml": b" " * 60})

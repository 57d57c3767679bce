"""``read_junit``: a run's report files -> one ``TestReport``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from xml.etree.ElementTree import Element

from envgen.core.code_types import REPOSITORY, Status, TestCase, TestId, TestReport
from envgen.core.errors import ReportError
from envgen.verifiers.junit.cases import RawCase, local_name, raw_cases
from envgen.verifiers.junit.ids import normalised_ids
from envgen.verifiers.junit.parse import parse_xml
from envgen.verifiers.junit.sources import MAX_BYTES, Source, files_of, naive_utc

WORST_FIRST = (Status.ERROR, Status.FAIL, Status.SKIP, Status.XFAIL, Status.PASS)
RANK = {status: rank for rank, status in enumerate(WORST_FIRST)}

SUITES = ("testsuites", "testsuite")
MAX_CASES = 250_000
"""Of a whole run: larger suites than any we know; what a change could add costs memory and time."""


def read_junit(
    source: Source, *, root: str = REPOSITORY, moment: datetime | None = None
) -> TestReport:
    """Read what one run of a test suite reported.

    Args:
        source: an XML file, a folder (all ``*.xml`` below it, in order of their paths; links are
            not followed), the bytes of a file, or names and bytes of several. Of several files
            those whose root is no test suite are passed over.
        root: the repository's folder where the tests ran; ids have paths relative to it.
        moment: when the tests ran (naive: UTC); by default what the report says, else the time
            its file was written.

    Returns:
        A case per id, in order of first appearance. Cases with one id are merged: the worst
        status wins (error, fail, skip, xfail, pass), their times are added up.

    Raises:
        ReportError: if there is no report, one is empty, cut off or unreadable, or they are larger
            than ``MAX_BYTES``: a run error, from which nothing follows about any test.
    """
    cases: list[RawCase] = []
    names: list[str] = []
    repaired = False
    letters = 0
    files = files_of(source)
    for file in files:
        parsed = parse_xml(file.content, file.name)
        if local_name(parsed.root) not in SUITES:
            continue
        names.append(file.name)
        repaired = repaired or parsed.repaired
        moment = moment or _timestamp(parsed.root) or file.moment
        for case in raw_cases(parsed.root):
            cases.append(case)
            letters += len(case.file) + len(case.classname) + len(case.name)
            if len(cases) > MAX_CASES or letters > MAX_BYTES:
                raise ReportError(f"the report has over {MAX_CASES} cases, or endless names")
    if not names:
        looked = ", ".join(repr(file.name) for file in files[:3]) or "an empty folder"
        raise ReportError(
            f"no JUnit XML in {looked}: the test run left no report",
            "look at the end of the run's output for why its test runner did not finish",
        )
    ids = normalised_ids(cases, root, None if moment is None else naive_utc(moment))
    return TestReport(cases=_merged(cases, ids), repaired=repaired, files=tuple(names))


def _timestamp(root: Element) -> datetime | None:
    """When the first suite that tells says it ran."""
    for element in root.iter():
        if (text := element.get("timestamp")) and local_name(element) in SUITES:
            try:
                return datetime.fromisoformat(text)
            except ValueError:
                return None
    return None


def _merged(cases: Sequence[RawCase], ids: Sequence[tuple[TestId, TestId]]) -> tuple[TestCase, ...]:
    """One record per id; of equal ids the worst status, with its message."""
    worst: dict[TestId, RawCase] = {}
    seconds: dict[TestId, float] = {}
    printed = dict(ids)
    for (id_, _), case in zip(ids, cases, strict=True):
        seconds[id_] = seconds.get(id_, 0.0) + case.seconds
        known = worst.get(id_)
        if known is None or RANK[case.status] < RANK[known.status]:
            worst[id_] = case
    return tuple(
        TestCase(
            id=id_,
            status=case.status,
            seconds=min(seconds[id_], 1e9),
            message=case.message,
            printed=printed[id_],
        )
        for id_, case in worst.items()
    )

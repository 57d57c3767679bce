"""An element tree -> the test cases in it, with the statuses that each dialect means.

junitparser reads the elements of a case; the walk is ours, since it visits only cases in suites
below the root, and node:test writes cases beside them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple, cast
from xml.etree.ElementTree import Element

from junitparser import Attr, Error, Failure, Skipped
from junitparser import TestCase as CaseElement

from envgen.core.code_types import Status
from envgen.core.errors import ReportError

MAX_SUITES = 1 << 16
"""Letters in the names of suites inside one another."""
MAX_MESSAGE = 2_000
"""Characters kept of what a test says about its failure."""
NOT_RUN = frozenset({"notrun", "disabled", "skipped", "suppressed", "ignored"})
"""Values of ``status`` and ``result`` by which GoogleTest and CTest mark what they skipped."""
NOT_BUILT = "Unable to find executable"
"""How CTest begins the reason of a test whose program was not built; it calls that a skip."""
NODE_CLASSNAME = "test"
"""node:test calls every case's class so, and names its suites by elements only."""
HOLDER = re.compile(r"^((?:setUp|tearDown)(?:Class|Module)) \((.+)\)$")
"""How xmlrunner names what failed outside of a test; its file is that of the test before."""
GO_PROPERTY = "./testsuite/properties/property[@name='go.version']"
"""Found in the reports of gotestsum, whose root counts packages that no element tells of."""
UNBUILT = "[build]"
"""Name of a case that stands for tests which could not be built."""
FILE_ATTRIBUTES = ("file", "filepath")


class RawCase(NamedTuple):
    """A case as the file has it, its names not yet normalised."""

    file: str
    classname: str
    name: str
    status: Status
    seconds: float
    message: str


Result = Error | Failure | Skipped


class _Case(CaseElement):
    """junitparser's test case with the attributes of more dialects."""

    file = Attr()
    status = Attr()


class _Visit(NamedTuple):
    """An element that is still to be visited; the file and the suites that its ancestors named."""

    element: Element
    file: str = ""
    suites: str = ""


class _CaseNames(NamedTuple):
    """The names of a case."""

    file: str
    classname: str
    name: str


def raw_cases(root: Element) -> Iterator[RawCase]:
    """All test cases below an element, in document order, however deep and beside what."""
    stack = [_Visit(root)]
    while stack:
        place = stack.pop()
        element = place.element
        tag = local_name(element)
        if tag == "testcase":
            yield _raw_case(place)
        elif tag in ("testsuite", "testsuites"):
            file = _file_of(element) or place.file
            name = element.get("name", "") if tag == "testsuite" else ""
            suites = " > ".join(filter(None, (place.suites, name)))
            if len(suites) > MAX_SUITES:  # each level copies the names of those above
                raise ReportError(f"suites have more than {MAX_SUITES} letters of names")
            stack.extend(_Visit(child, file, suites) for child in reversed(element))
    if root.find(GO_PROPERTY) is not None and (errors := root.get("errors", "0")) != "0":
        message = f"{errors} packages could not be built; the report does not list them"
        yield RawCase("", "", UNBUILT, Status.ERROR, 0.0, message)


def local_name(element: Element) -> str:
    """An element's tag without its namespace."""
    return element.tag.rpartition("}")[2]


def _file_of(element: Element) -> str:
    return next((value for key in FILE_ATTRIBUTES if (value := element.get(key))), "")


def _raw_case(place: _Visit) -> RawCase:
    element = place.element
    for child in element.iter():
        if "}" in child.tag:
            child.tag = local_name(child)
    case = cast("_Case", _Case.fromelem(element))  # type: ignore[no-untyped-call]  # theirs is untyped
    results = [result for result in case if isinstance(result, Result)]
    names = _names(case, _file_of(element) or place.file, place.suites)
    return RawCase(
        *names,
        status=_status(element, results),
        seconds=_seconds(element.get("time", "")),
        message=_message(results),
    )


def _names(case: _Case, file: str, suites: str) -> _CaseNames:
    """A case's file, class and name, where runners put others into these attributes."""
    classname, name = case.classname or "", case.name or ""
    if classname == NODE_CLASSNAME and suites:
        return _CaseNames(file, suites, name)
    if not classname and (holder := HOLDER.match(name)):
        return _CaseNames("", holder[2], holder[1])
    return _CaseNames(file, classname, name)


def _status(element: Element, results: list[Result]) -> Status:
    """Read a case's outcome off its children, or its attributes where it has no child.

    A case that was skipped *and* failed (node:test's todo, Catch2's mayfail) was not to be held
    against anybody: a skip.
    """
    for result in results:
        if isinstance(result, Skipped):
            return _skipped(result)
    if any(isinstance(result, Error) for result in results):
        return Status.ERROR
    if any(isinstance(result, Failure) for result in results):
        return Status.FAIL
    states = {element.get("status", "").lower(), element.get("result", "").lower()}
    todo = any(
        (one.get("name"), one.get("value")) == ("status", "todo")  # see the runner jest
        for one in element.iter("property")
    )
    return Status.SKIP if todo or states & NOT_RUN else Status.PASS


def _skipped(result: Skipped) -> Status:
    if (result.message or "").startswith(NOT_BUILT):
        return Status.ERROR
    kind = (result.type or "").rpartition(".")[2].lower()
    return Status.XFAIL if kind == "xfail" else Status.SKIP


def _seconds(text: str) -> float:
    try:
        seconds = float(text.replace(",", "")[:40] or 0)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _message(results: list[Result]) -> str:
    for result in results:
        if text := (result.message or result.text or "").strip():
            return text[:MAX_MESSAGE]
    return ""

"""Bytes of a report -> its element tree: strictly if that works, else after mending."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from envgen.core.errors import ReportError
from envgen.verifiers.junit.decode import decode, without_controls, without_doctype
from envgen.verifiers.junit.recover import recover

MAX_TAGS = 2_000_000


class ParsedReport(NamedTuple):
    """The root of a report, and whether the XML had to be mended."""

    root: Element
    repaired: bool


def parse_xml(content: bytes, name: str) -> ParsedReport:
    """The tree of a report.

    Forbidden characters are dropped, and what is still no XML goes through a parser that knows
    the tags of a report and takes every other ``<`` and ``&`` for text.

    Raises:
        ReportError: if it is empty, cut off, or no XML at all; ``name`` says which file.
    """
    if not content.strip(b"\0 \t\r\n"):
        raise ReportError(
            f"{name!r} is empty: the test runner ended before it wrote its report",
            "look at the end of the run's output for a crash or an exit() in a test",
        )
    text, repaired = decode(content)
    text = without_doctype(text)
    if (tags := text.count("<")) > MAX_TAGS:  # before each takes memory of its own
        raise ReportError(f"{name!r} has {tags} tags; at most {MAX_TAGS} are read")
    try:
        return ParsedReport(ElementTree.fromstring(text), repaired)
    except (ElementTree.ParseError, ValueError):
        pass
    text, _ = without_controls(text)
    try:
        return ParsedReport(ElementTree.fromstring(text), True)
    except (ElementTree.ParseError, ValueError) as error:
        return ParsedReport(recover(text, name, str(error)), True)

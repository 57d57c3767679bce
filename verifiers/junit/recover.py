"""A parser for reports that are no XML: it knows their tags, and everything else is text.

Real reports break in few ways: an unescaped ``&``, ``<`` or quote in a message, an attribute
twice, lines of a program before or after the document, documents one after another. What it will
not mend is a report that ends before its elements do: the run was cut, and nobody knows of what.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from envgen.core.errors import ReportError

SUITES = frozenset({"testsuites", "testsuite"})
RESULTS = frozenset({"failure", "error", "skipped"})
RERUNS = frozenset({"flakyFailure", "flakyError", "rerunFailure", "rerunError"})
OTHERS = frozenset({"system-out", "system-err", "properties", "property", "stackTrace"})
TAGS = SUITES | RESULTS | RERUNS | OTHERS | {"testcase"}
NAMES = "|".join(sorted(TAGS, key=lambda tag: (-len(tag), tag)))
TOKEN = re.compile(rf"<!\[CDATA\[|<!--|<(/?)({NAMES})(?=[\s/>])")
AFTER = r"(?=\s*/?>|\s+[A-Za-z_][\w:.-]*\s*=\s*[\"'])"
"""What follows the quote that ends a value; a quote before anything else belongs to the value."""
VALUES = "|".join(
    rf"{quote}([^{quote}]*(?:{quote}(?!{AFTER})[^{quote}]*)*){quote}" for quote in "\"'"
)
ATTRIBUTE = re.compile(rf"\s*([A-Za-z_][\w:.-]*)\s*=\s*(?:{VALUES})")
TAG_END = re.compile(r"\s*(/?)>")
MAX_DEPTH = 200
MAX_TEXT = 10_000
"""Characters kept of an element's text: enough for a message."""


class _Tag(NamedTuple):
    """An opening tag: its attributes (the first wins), where it ends, and whether it is empty."""

    attributes: dict[str, str]
    end: int
    empty: bool


def recover(text: str, name: str, reason: str) -> Element:
    """The tree of a broken report; several documents become children of one root.

    Raises:
        ReportError: if there is no report in the text, or an element is never closed. ``reason``
            is what the strict parser said.
    """
    hint = f"a strict parser says: {reason}"
    top = Element("testsuites")
    open_elements = [top]
    position = 0
    while (token := TOKEN.search(text, position)) is not None:
        _append_text(
            open_elements[-1],
            html.unescape(text[position : min(token.start(), position + MAX_TEXT)]),
        )
        if token[0] == "<![CDATA[" or token[0] == "<!--":
            position = _skip(text, token, open_elements[-1], name, hint)
        elif token[1]:
            position = _close(text, token, open_elements)
        else:
            position = _open(text, token, open_elements, name, hint)
    if len(open_elements) > 1:
        raise ReportError(f"{name!r} is cut off in <{open_elements[-1].tag}>", hint)
    if not len(top):
        raise ReportError(f"{name!r} is not JUnit XML", hint)
    return top


def _append_text(element: Element, text: str) -> None:
    """Add to an element's text; what follows a child is added there too, in order."""
    kept = element.text or ""
    if text and len(kept) < MAX_TEXT:
        element.text = kept + text[: MAX_TEXT - len(kept)]


def _skip(text: str, token: re.Match[str], element: Element, name: str, hint: str) -> int:
    """Pass a CDATA section (its text is kept) or a comment; where it ends."""
    closing = "]]>" if token[0] == "<![CDATA[" else "-->"
    end = text.find(closing, token.end())
    if end < 0:
        raise ReportError(f"{name!r} is cut off in {token[0]!r}", hint)
    if closing == "]]>":
        _append_text(element, text[token.end() : end])
    return end + len(closing)


def _close(text: str, token: re.Match[str], open_elements: list[Element]) -> int:
    """Close the innermost element of this name; a closing tag without one is text."""
    end = TAG_END.match(text, token.end())
    depth = next(
        (at for at in range(len(open_elements) - 1, 0, -1) if open_elements[at].tag == token[2]), 0
    )
    if not end or not depth:
        _append_text(open_elements[-1], token[0])
        return token.end()
    del open_elements[depth:]
    return end.end()


def _open(
    text: str, token: re.Match[str], open_elements: list[Element], name: str, hint: str
) -> int:
    """Open an element below the innermost.

    A tag that can't be read is no text, or a failure might be lost and its test look passed.
    """
    tag = _read_tag(text, token.end())
    if tag is None:
        raise ReportError(f"{name!r} has an unreadable {token[0]}> at {token.start()}", hint)
    if len(open_elements) > MAX_DEPTH:
        raise ReportError(f"{name!r} nests deeper than {MAX_DEPTH} elements", hint)
    element = SubElement(open_elements[-1], token[2], tag.attributes)
    if not tag.empty:
        open_elements.append(element)
    return tag.end


def _read_tag(text: str, position: int) -> _Tag | None:
    attributes: dict[str, str] = {}
    while True:
        if end := TAG_END.match(text, position):
            return _Tag(attributes, end.end(), bool(end[1]))
        attribute = ATTRIBUTE.match(text, position)
        if attribute is None:
            return None
        value = attribute[2] if attribute[2] is not None else attribute[3]
        attributes.setdefault(attribute[1], html.unescape(value))
        position = attribute.end()

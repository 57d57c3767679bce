"""Bytes of a report -> text that an XML parser may see; tells what had to be mended."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
DECLARATION = re.compile(rb"""\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
PROLOG = re.compile(r"(?:\s+|<\?.*?\?>|<!--.*?-->)*", re.DOTALL)
DOCTYPE = re.compile(r"<!DOCTYPE[^\[>]*(?:\[[^\]]*\]\s*)?>", re.DOTALL)
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
COLOURS = re.compile(r"(?:\x1b|&#x1[bB];|&#27;)\[[0-9;]{0,20}[A-Za-z]")
REFERENCE = re.compile(r"&#(?:x([0-9a-fA-F]+)|([0-9]+));")
TEXT_ENCODINGS = frozenset({"utf-8", "ascii", "iso8859-1", "cp1252", "utf-16", "utf-32"})
"""Python's names of the encodings that a declaration may ask for; anything else is read as UTF-8."""


class DecodedText(NamedTuple):
    """Text, and whether anything in it was invalid."""

    text: str
    repaired: bool


def decode(content: bytes) -> DecodedText:
    """The text of a report; bytes that its encoding does not know become U+FFFD.

    The byte order mark tells the encoding, else the XML declaration, else it is UTF-8.
    """
    for mark, encoding in BOMS:
        if content.startswith(mark):
            return _decoded(content[len(mark) :], encoding)
    declared = DECLARATION.match(content)
    encoding = declared[1].decode("ascii") if declared else "utf-8"
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        name = ""
    # A file that says UTF-16 in ASCII letters is not UTF-16.
    known = name in TEXT_ENCODINGS and not name.startswith(("utf-16", "utf-32"))
    return _decoded(content, name if known else "utf-8")


def without_doctype(text: str) -> str:
    """The text less a document type: no report needs one, and entities can be bombs."""
    text = text.lstrip("\ufeff")
    prolog = PROLOG.match(text)
    start = prolog.end() if prolog else 0
    if not text.startswith("<!DOCTYPE", start):
        return text
    found = DOCTYPE.match(text, start)
    return text[:start] + text[found.end() :] if found else text[:start]


def without_controls(text: str) -> DecodedText:
    """The text less the characters that XML 1.0 forbids, raw or as references.

    Of a terminal's colours the whole sequence goes.
    """
    cleaned = CONTROLS.sub("", COLOURS.sub("", text))
    cleaned = REFERENCE.sub(_legal_reference, cleaned)
    return DecodedText(cleaned, cleaned != text)


def _decoded(content: bytes, encoding: str) -> DecodedText:
    try:
        return DecodedText(content.decode(encoding), False)
    except UnicodeDecodeError:
        return DecodedText(content.decode(encoding, errors="replace"), True)


def _legal_reference(match: re.Match[str]) -> str:
    digits, base = (match[1], 16) if match[1] else (match[2], 10)
    if len(digits) > 12:
        return ""
    code = int(digits, base)
    legal = code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD
    return match[0] if legal or 0x10000 <= code <= 0x10FFFF else ""

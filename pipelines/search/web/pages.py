"""Pages of the web as texts: HTML's main text, plain text as it is."""

from __future__ import annotations

import re
import time
from typing import Literal
from urllib.parse import urljoin

from envgen.core.errors import ConfigError, MissingExtraError, install_hint
from envgen.core.limits import Label, Language, Text
from envgen.core.types import Record
from envgen.pipelines.search.texts import CHARSET, MAX_HTML_BYTES, PageText, html_text
from envgen.pipelines.search.web.client import PASSING, HttpAnswer, PageError, send
from envgen.policies.http import TransientError

PAGE_SECONDS = 20.0
MAX_REDIRECTS = 5
_HTML = ("text/html", "application/xhtml+xml")
_PLAIN = ("text/plain", "text/markdown")
_LANG = re.compile(
    r"<html\b[^>]{0,1000}?\blang\s*=\s*[\"']?([a-z]{2,3}(?:-[a-z0-9]{2,8}){0,3})\b", re.IGNORECASE
)


class PageDownError(PageError):
    """Raised when a page can't be read now: its server is down, slow or busy."""


class WebPage(Record):
    """A page as a reader sees it."""

    url: Label
    """Where it was found, after redirects."""
    title: Label = ""
    text: Text
    language: Language | Literal[""] = ""
    """A BCP 47 tag; empty if the page does not say."""


def fetch_page(url: str, *, allow_private: bool = False) -> WebPage:
    """Read a page: HTML or plain text, at most 8 MiB, in 20 seconds, after at most 5 redirects.

    No proxy is used, since nobody could tell where it connects to.

    Args:
        url: http or https.
        allow_private: read pages of private networks and of this machine, too.

    Raises:
        PageError: if it is no page that can be read; what passes with time is a ``PageDownError``.
        MissingExtraError: without resiliparse.
    """
    deadline = time.monotonic() + PAGE_SECONDS
    headers = {"Accept": ", ".join((*_HTML, *_PLAIN))}
    place = url
    for _ in range(MAX_REDIRECTS + 1):
        try:
            answer = send(
                "GET", place, headers=headers, limit=MAX_HTML_BYTES, deadline=deadline,
                public_only=not allow_private,
            )  # fmt: skip
        except TransientError as error:
            raise PageDownError(f"{place[:200]!r} does not answer: {error}", _LATER) from error
        target = answer.headers.get("location", "")
        if answer.status not in (301, 302, 303, 307, 308) or not target:
            return _page(place, answer)
        try:
            place = urljoin(place, target)
        except ValueError as error:
            raise PageError(f"{place[:200]!r} redirects to no address", _OTHER) from error
    raise PageError(f"{url[:200]!r} redirects more than {MAX_REDIRECTS} times", _OTHER)


_OTHER, _LATER = "read another page", "read another page, or this one later"


def _page(url: str, answer: HttpAnswer) -> WebPage:
    name = url[:200]
    if answer.status in PASSING:
        raise PageDownError(f"{name!r} is not to be had now: HTTP {answer.status}", _LATER)
    if answer.status != 200:
        raise PageError(f"{name!r} can't be read: HTTP {answer.status}", _OTHER)
    said = answer.headers.get("content-type", "")
    kind = said.partition(";")[0].strip().lower()
    if not kind and re.match(rb"\s*<(?:!doctype|html)\b", answer.body[:1_000], re.I):
        kind = _HTML[0]
    if kind not in (*_HTML, *_PLAIN):
        raise PageError(f"{name!r} is {kind[:80] or 'of no known type'}, not a text", _OTHER)
    if answer.cut:
        raise PageError(f"{name!r} is larger than {MAX_HTML_BYTES >> 20} MiB", _OTHER)
    named = re.search(r"charset=[\"']?([\w.:-]{1,40})", said, re.I)
    source = _decoded(answer.body, named[1] if named else "", name)
    read, lang = PageText("", source.replace("\0", "")), None
    if kind in _HTML:
        lang = _LANG.search(source[:8_192])
        try:
            read = html_text(source, name)
        except ConfigError as error:
            raise PageError(str(error), _OTHER) from error
    if not read.text.strip():
        raise PageError(f"{name!r} holds no text", "it may need JavaScript: read another page")
    first, dash, rest = (lang[1] if lang else "").partition("-")
    language = f"{first.lower()}{dash}{rest}"
    return WebPage(url=url[:4_096], title=read.title[:2_000], text=read.text, language=language)


def _decoded(body: bytes, named: str, name: str) -> str:
    """The text in the encoding that its server or it names, or else looks like; wrong bytes are replaced."""
    try:
        from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
    except ImportError as error:
        raise MissingExtraError(
            f"{name!r} is a page, which needs resiliparse", install_hint("search")
        ) from error
    meta = CHARSET.search(body[:4_096])
    label = named or (meta[1].decode() if meta else detect_encoding(body) or "")
    return str(bytes_to_str(body, map_encoding_to_html5(label) or "utf-8", errors="replace"))

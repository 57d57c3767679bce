"""Texts of files as a corpus takes them: decoded strictly, and the main text of HTML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from envgen.core.errors import ConfigError, MissingExtraError, install_hint

HTML = (".html", ".htm")
MAX_HTML_BYTES = 1 << 23
MAX_HTML_DEPTH = 2_000
"""Elements in one another: the time to read them grows with its square."""
CHARSET = re.compile(rb"<meta[^>]{0,200}?charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_NESTING = re.compile(
    r"<(/?)(?!(?:p|li|t[rhd]|d[td]|option|br|hr|img|input|meta|link)\b)[a-z]", re.I
)


class PageText(NamedTuple):
    """A text with its title, which may be empty."""

    title: str
    text: str


def read_text(path: Path) -> str:
    """The text of a file in UTF-8.

    Raises:
        ConfigError: naming the file and the place that is not.
    """
    return _decoded(path, _bytes(path), "UTF-8")


def read_html(path: Path) -> PageText:
    """The main text of a page, in the encoding that it names or UTF-8.

    Raises:
        ConfigError: if it can't be read, is too large or too deep, or is in another encoding.
        MissingExtraError: without resiliparse.
    """
    content = _bytes(path, MAX_HTML_BYTES)
    named = CHARSET.search(content[:4_096])
    text = _decoded(path, content, named[1].decode() if named else "UTF-8")
    return html_text(text, str(path))


def html_text(text: str, name: str) -> PageText:
    """The main text of HTML.

    Args:
        text: the HTML.
        name: of the file or page, for errors.

    Raises:
        ConfigError: if its elements lie too deep in one another.
        MissingExtraError: without resiliparse.
    """
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.html import HTMLTree
    except ImportError as error:
        raise MissingExtraError(
            f"{name!r} is HTML, which needs resiliparse", install_hint("search")
        ) from error
    text = text.replace("\0", "")
    depth = deepest = 0
    for tag in _NESTING.finditer(text):
        depth = max(0, depth - 1) if tag[1] else depth + 1
        deepest = max(deepest, depth)
    if deepest > MAX_HTML_DEPTH:
        raise ConfigError(
            f"{name!r} has {deepest} elements in one another", f"{MAX_HTML_DEPTH} are read"
        )
    tree = HTMLTree.parse(text)
    main = extract_plain_text(tree, main_content=True, alt_texts=False)
    return PageText(" ".join((tree.title or "").split()), main)


def _bytes(path: Path, limit: int | None = None) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read() if limit is None else file.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error.strerror}") from error
    if limit is not None and len(content) > limit:
        raise ConfigError(f"{str(path)!r} is larger than {limit >> 20} MiB", "split it")
    return content


def _decoded(path: Path, content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{str(path)!r} is not {encoding} at byte {error.start}, line {line}",
            "save it as UTF-8: iconv -f LATIN1 -t UTF-8",
        ) from error
    except (LookupError, UnicodeError) as error:
        raise ConfigError(f"{str(path)!r} names an unknown encoding, {encoding!r}") from error

"""Which issues a change says it closes: the field's rule, and a few ways that it misses.

GitHub closes an issue when a keyword stands right before its reference; SWE-bench reads the same from
title, body and commit messages (``(word) #number``). Added here: full addresses, ``owner/name#1``,
``GH-1``, a colon after the keyword, and news fragments (``changelog/12.bugfix.rst``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_FENCE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_QUOTE = re.compile(r"^ {0,3}>.*$", re.MULTILINE)
_REFERENCE = (
    r"(?:https?://[\w.-]+/(?P<url>[\w.-]+/[\w.-]+)/issues/(?P<n1>\d+)\b"
    r"|(?P<repo>[\w.-]+/[\w.-]+)?\#(?P<n2>\d+)\b|GH-(?P<n3>\d+)\b)"
)
_CLOSING = re.compile(
    rf"(?<![\w-])(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\s*:?\s*(?<=[\s:]){_REFERENCE}",
    re.IGNORECASE,
)
_FRAGMENT = re.compile(
    r"(?:^|/)(?:changelogs?|changes|newsfragments?|news|upcoming_changes|changelog_entries)"
    r"(?:\.d|/[\w-]+)?/(?:gh-)?(\d+)\.[a-z]+(?:\.\d+)?(?:\.(?:rst|md|txt))?$",
    re.IGNORECASE,
)


def closed_issues(texts: Iterable[str], repo: str) -> tuple[int, ...]:
    """Issue numbers of ``repo`` that closing keywords stand before, in order of appearance.

    Args:
        texts: title, body and commit messages of a change.
        repo: ``owner/name``; references to other repositories don't count.
    """
    return _numbers(_CLOSING, texts, repo)


def fragment_issues(paths: Iterable[str]) -> tuple[int, ...]:
    """Issue numbers in the names of news fragments, e.g. 12 of ``changelog/12.bugfix.rst``."""
    found = (_FRAGMENT.search(path) for path in paths)
    return tuple(dict.fromkeys(int(match.group(1)) for match in found if match))


def prose(text: str) -> str:
    """A text without comments, code and quotations, where GitHub too sees no keywords."""
    for pattern in (_COMMENT, _FENCE, _CODE, _QUOTE):
        text = pattern.sub(" ", text)
    return text


def _numbers(pattern: re.Pattern[str], texts: Iterable[str], repo: str) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for text in texts:
        for match in pattern.finditer(prose(text)):
            named = match["url"] or match["repo"] or repo
            number = int(match["n1"] or match["n2"] or match["n3"])
            if named.lower() == repo.lower() and 0 < number < 10_000_000:
                found[number] = None
    return tuple(found)

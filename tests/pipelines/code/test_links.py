from __future__ import annotations

import pytest

from envgen.pipelines.code.links import closed_issues, fragment_issues

REPO = "owner/name"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        *(("Fixes #12", (12,)), ("fixed: #12", (12,)), ("CLOSES owner/name#12.", (12,))),
        *(("resolve https://github.com/Owner/Name/issues/12", (12,)), ("close GH-12", (12,))),
        *(("fix #1, closes #2 and resolves #1", (1, 2)), ("Fixed#7 it", ())),
        *(("see #12", ()), ("prefixes #12", ()), ("fixes other/name#12", ()), ("fix 12", ())),
        *(("fixes https://github.com/owner/name/pull/12", ()), ("bug-fix #12", ())),
        *(("<!-- fixes #12 -->", ()), ("`fixes #12`", ()), ("> fixes #12\nno", ())),
        *(("```\nfixes #12\n```\nfixes #13", (13,)), ("<!-- open fixes #12", ())),
        *(("fixes #0", ()), ("fixes #12345678901", ()), ("Fixes\n#12", (12,))),
        ("fixes https://github.com/owner/name/issues/12#issuecomment-99", (12,)),
    ],
)
def test_keywords_close_issues(text: str, numbers: tuple[int, ...]) -> None:
    assert closed_issues([text], REPO) == numbers


def test_news_fragments_name_issues() -> None:
    paths = ["changelog/12.bugfix.rst", "news/13.fix", "docs/changes/gh-14.feature.2.md"]
    assert fragment_issues([*paths, "src/12.bugfix.py", "changelog/README.rst"]) == (12, 13, 14)

from __future__ import annotations

from typing import NamedTuple

from envgen.pipelines.code.statement import Comment, Discussion, Pull, Texts, hints_of, statement_of


class Change(NamedTuple):
    pull: int | None
    title: str
    body: str


TEXTS = Texts(
    issues={
        1: Discussion(
            number=1,
            title="Sums are wrong",
            body="1 + 2\r\ngives -1\r\n<!-- template -->\r\n\r\n\r\n\r\nSad.",
            comments=(
                Comment(body="me too", created_at="2020-01-01T00:00:00Z"),
                Comment(body=None, created_at="2020-01-01T00:00:00Z"),
                Comment(body="late", created_at="2020-01-03T00:00:00+01:00"),
                Comment(body="undated"),
            ),
        ),
        2: Discussion(number=2, title="And products", body=None),
    },
    pulls={7: Pull("Use plus", "Because.\n\nCo-authored-by: Ada <a@b>\nCloses: #1")},
)


def test_the_statement_is_the_issues_text() -> None:
    found = statement_of(Change(7, "x", "y"), (1, 2, 99), TEXTS)
    assert found.kind == "issue"
    assert found.text == "Sums are wrong\n\n1 + 2\ngives -1\n\nSad.\n\nAnd products"


def test_without_an_issue_it_is_the_pull_requests_or_the_commits() -> None:
    found = statement_of(Change(7, "x", "y"), (99,), TEXTS)
    assert (found.kind, found.text) == ("pull_request", "Use plus\n\nBecause.")
    found = statement_of(Change(8, "Title", "Body\n\nSigned-off-by: Ada <a@b>"), (), TEXTS)
    assert (found.kind, found.text) == ("pull_request", "Title\n\nBody")
    found = statement_of(Change(None, "Title", ""), (), TEXTS)
    assert (found.kind, found.text) == ("commit", "Title")


def test_hints_are_what_was_said_before_the_first_commit() -> None:
    before = 1_577_923_200  # 2020-01-02
    assert hints_of((1, 99), TEXTS, before) == "me too"
    assert hints_of((1,), TEXTS, before + 2 * 86_400) == "me too\nlate"

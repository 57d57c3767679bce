from __future__ import annotations

import json
from pathlib import Path

import pytest
from github_server import Cut, GitHubServer, Reply, comment, issue

from envgen.core.errors import ResumeError
from envgen.pipelines.code.fetch import fetch_texts
from envgen.pipelines.code.github import ExhaustedError, GitHub, GitHubConfig, GitHubError
from envgen.pipelines.code.statement import Texts

REPO = "ada/calc"


def fetched(server: GitHubServer, folder: Path, since: str | None = None) -> list[int]:
    """The numbers in issues.jsonl after a call."""
    config = GitHubConfig(api=server.url, backoff_s=0.01, max_retries=1, max_wait_s=0.0)
    with GitHub(config, cache=folder / "cache") as github:
        path = fetch_texts(github, REPO, folder, since=since)
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


def test_issues_pulls_and_comments_come_together(tmp_path: Path) -> None:
    issues = [issue(1, 5, body="It breaks"), issue(2, 9, pull=True, body="Fixes #1")]
    comments = [comment(7, 1, 6, "me too"), comment(8, 1, 7, "and me"), comment(9, 99, 8, "lost")]
    with GitHubServer(issues, comments) as server:
        assert fetched(server, tmp_path) == [1, 2]
    texts = Texts.load(tmp_path / "issues.jsonl")
    assert [c.body for c in texts.issues[1].comments] == ["me too", "and me"]
    assert texts.issues[1].labels == ("bug",)
    assert (texts.pulls[2].title, texts.pulls[2].body) == ("Issue 2", "Fixes #1")


def test_many_changes_in_one_second_are_all_found(tmp_path: Path) -> None:
    issues = [issue(n, 10 if 50 < n <= 320 else n) for n in range(1, 400)]
    with GitHubServer(issues) as server:
        assert fetched(server, tmp_path) == list(range(1, 400))


def test_an_issue_that_changes_meanwhile_hides_no_neighbour(tmp_path: Path) -> None:
    issues = [issue(n, n) for n in range(1, 301)]

    def touch(server: GitHubServer) -> None:
        server.issues[10]["updated_at"] = issue(11, 4_000)["updated_at"]
        server.issues[10]["title"] = "new title"

    with GitHubServer(issues) as server:
        server.script = [lambda _: None, touch]  # before the second page
        assert fetched(server, tmp_path) == list(range(1, 301))
    assert Texts.load(tmp_path / "issues.jsonl").issues[11].title == "new title"


def test_a_later_run_asks_for_news_only(tmp_path: Path) -> None:
    with GitHubServer([issue(n, n) for n in range(1, 301)]) as server:
        fetched(server, tmp_path)
        spent = server.used
        assert fetched(server, tmp_path) == list(range(1, 301))
        assert server.used - spent <= 2  # one per list, for what stands at the cursor's second
        spent = server.used
        assert fetched(server, tmp_path) == list(range(1, 301))
        assert server.used == spent  # nothing changed: 304, free
        server.issues.append(issue(301, 2_000))
        assert fetched(server, tmp_path) == list(range(1, 302))


@pytest.mark.parametrize(
    "change",
    [
        {"number": -1}, {"updated_at": "soon"}, {"title": ["x"]}, {"labels": "bug"},
        {"created_at": "x"}, {"user": "ada"}, {"pull_request": "yes"}, {"body": 5}, {"title": "x" * 5_000},
    ],
)  # fmt: skip
def test_a_row_that_is_no_issue_is_refused_and_nothing_of_it_kept(
    tmp_path: Path, change: dict[str, object]
) -> None:
    with (
        GitHubServer([{**issue(1, 5), **change}]) as server,
        pytest.raises(GitHubError, match=f"not a valid issue or comment: {next(iter(change))}"),
    ):
        fetched(server, tmp_path)
    assert (tmp_path / "items.jsonl").read_bytes() == b""


@pytest.mark.parametrize("flaw", [Reply(502), Cut(), Reply(200, '[{"number": "x"}]')])
def test_a_run_that_broke_goes_on_where_it_stood(tmp_path: Path, flaw: Reply | Cut) -> None:
    with GitHubServer([issue(n, n) for n in range(1, 301)]) as server:
        with GitHub(GitHubConfig(api=server.url, backoff_s=0.01, max_retries=1)) as github:
            pages: list[int] = []

            def break_third(rows: int) -> None:
                pages.append(rows)
                server.script = [flaw, flaw] if len(pages) == 2 else []

            with pytest.raises(GitHubError):
                fetch_texts(github, REPO, tmp_path, progress=break_third)
        server.script = []
        spent = server.used
        with (tmp_path / "items.jsonl").open("a") as file:
            file.write('{"number": 20')  # and the process died while it wrote
        assert fetched(server, tmp_path) == list(range(1, 301))
        assert server.used - spent <= 3


def test_an_exhausted_token_keeps_what_came_before(tmp_path: Path) -> None:
    with GitHubServer([issue(n, n) for n in range(1, 301)], limit=2) as server:
        with pytest.raises(ExhaustedError):
            fetched(server, tmp_path)
        assert len((tmp_path / "items.jsonl").read_text().splitlines()) >= 199
        server.limit = 100
        assert fetched(server, tmp_path) == list(range(1, 301))


def test_an_earlier_date_starts_again_and_another_repository_is_refused(tmp_path: Path) -> None:
    with GitHubServer([issue(n, n) for n in range(1, 61)]) as server:
        late = fetched(server, tmp_path, since="2023-05-01T00:00:31Z")
        assert late == list(range(31, 61))
        assert fetched(server, tmp_path, since="2023-05-01") == list(range(1, 61))
        with GitHub(GitHubConfig(api=server.url)) as github, pytest.raises(ResumeError):
            fetch_texts(github, "ada/other", tmp_path)

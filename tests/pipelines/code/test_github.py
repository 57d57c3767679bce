from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from github_server import Cut, GitHubServer, Reply, issue

from envgen.core.errors import ConfigError
from envgen.pipelines.code.fetch import RepositoryFilter, repository_facts
from envgen.pipelines.code.github import (
    ExhaustedError,
    GitHub,
    GitHubConfig,
    GitHubError,
    TokenError,
)


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with GitHubServer([issue(n, n) for n in range(1, 251)]) as started:
        yield started


def client(server: GitHubServer, token: str | None = None, **config: float) -> GitHub:
    waits = {"backoff_s": 0.01, "timeout_s": 5.0, **config}
    return GitHub(GitHubConfig.model_validate({"api": server.url, **waits}), token=token)


ISSUES = "/repos/ada/calc/issues"


def test_pages_follow_the_link_header(server: GitHubServer) -> None:
    with client(server) as github:
        pages = list(github.pages(ISSUES, state="all"))
    assert [len(page.body) for page in pages] == [100, 100, 50]
    assert [row["number"] for page in pages for row in page.body] == list(range(1, 251))
    assert {seen.query["state"] for seen in server.seen} == {"all"}


def test_what_did_not_change_is_free(server: GitHubServer, tmp_path: Path) -> None:
    config = GitHubConfig(api=server.url)
    with GitHub(config, cache=tmp_path) as github:
        first = list(github.pages(ISSUES))
        again = list(github.pages(ISSUES))
        assert [p.cached for p in first + again] == [False] * 3 + [True] * 3
        assert [p.body for p in again] == [p.body for p in first]
        assert server.used == 3
        for file in tmp_path.iterdir():  # a cache that a crash or a disk broke is asked for anew
            file.write_text(file.read_text()[:40])
        assert [p.cached for p in github.pages(ISSUES)] == [False] * 3
        server.issues[0]["title"] = "changed"
        assert github.get(ISSUES, per_page=100).body[0]["title"] == "changed"


def test_a_wrong_token_is_named_and_not_tried_again() -> None:
    with GitHubServer(token="right") as server, client(server, "wrong") as github:
        with pytest.raises(TokenError, match="401: Bad credentials") as caught:
            github.get(ISSUES)
        assert "token" in caught.value.hint
        assert len(server.seen) == 1
        with client(server, "right") as other:
            assert other.get(ISSUES).body == []


def test_a_short_rate_limit_is_waited_for_and_a_long_one_ends_the_run() -> None:
    with GitHubServer([issue(1, 1)], limit=1, window_s=1.2) as server, client(server) as github:
        github.get(ISSUES)
        start = time.monotonic()
        github.get(ISSUES)  # the first answer said that nothing was left: no request is wasted
        assert time.monotonic() - start > 0.5
        assert [seen.status for seen in server.seen] == [200, 200]
    with GitHubServer(limit=0) as server, client(server, max_wait_s=5.0) as github:
        with pytest.raises(ExhaustedError, match="API rate limit exceeded") as caught:
            github.get(ISSUES)
        assert "60 requests an hour" in caught.value.hint
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), ExhaustedError)
        assert len(server.seen) == 1


def test_secondary_limits_are_waited_for_as_long_as_they_say(server: GitHubServer) -> None:
    words = '{"message": "You have exceeded a secondary rate limit"}'
    server.script = [
        Reply(403, words, {"Retry-After": "0.2"}),
        Reply(429, words),
        Reply(403, words),
    ]
    start = time.monotonic()
    with client(server, secondary_wait_s=0.1) as github:
        assert len(github.get(ISSUES).body) == 30
    assert 0.4 <= time.monotonic() - start < 5
    assert len(server.seen) == 4


@pytest.mark.parametrize(
    "flaw", [Reply(502, "<html>"), Reply(200, "<html>"), Reply(200, '[{"x": "\ud83d'[:8]), Cut()]
)
def test_what_may_pass_is_tried_again(server: GitHubServer, flaw: Reply | Cut) -> None:
    server.script = [flaw] * 3
    with client(server) as github:
        assert len(github.get(ISSUES).body) == 30
    server.script = [flaw] * 3
    with client(server, max_retries=2) as github, pytest.raises(GitHubError, match="3 attempts"):
        github.get(ISSUES)


def test_a_hanging_server_costs_the_timeout(server: GitHubServer) -> None:
    server.script = [lambda _: time.sleep(1.5)]
    start = time.monotonic()
    with client(server, timeout_s=0.3) as github:
        assert len(github.get(ISSUES).body) == 30
    assert 0.3 <= time.monotonic() - start < 1.5


def test_the_token_never_leaves_the_host(server: GitHubServer) -> None:
    other = "http://localhost.example:1/repos/x"
    server.script = [Reply(301, "{}", {"Location": other})]
    with client(server, "secret") as github:
        with pytest.raises(GitHubError, match="another host"):
            github.get(ISSUES)
        server.script = [Reply(200, "[]", {"Link": f'<{other}>; rel="next"'})]
        with pytest.raises(GitHubError, match="another host"):
            list(github.pages(ISSUES))
        server.script = [Reply(301, "{}", {"Location": "/repos/ada/calc"})]
        assert github.get("/repos/ada/old").body["full_name"] == "ada/calc"
        server.script = [Reply(301, "{}", {"Location": "/repos/ada/old"})] * 9
        with pytest.raises(GitHubError, match="HTTP 301"):
            github.get("/repos/ada/old")


def test_refusals_say_what_to_do(server: GitHubServer) -> None:
    with client(server) as github:
        with pytest.raises(GitHubError, match="404: Not Found") as caught:
            github.get("/repos/ada/nothing")
        assert "owner/name" in caught.value.hint
        server.script = [Reply(403, '{"message": "Resource protected by SSO"}')]
        with pytest.raises(GitHubError, match="SSO"):
            github.get(ISSUES)
    with pytest.raises(ConfigError, match="not an http"):
        GitHub(GitHubConfig(api="ftp://x"))


def test_repositories_are_filtered_by_what_the_api_says(server: GitHubServer) -> None:
    with client(server) as github:
        facts = repository_facts(github, "ada/calc")
    assert (facts.full_name, facts.stargazers_count, facts.licence) == ("ada/calc", 3, "")
    assert list(RepositoryFilter().reasons(facts)) == []
    popular = RepositoryFilter(min_stars=2_000, max_stars=100_000, min_forks=200)
    assert list(popular.reasons(facts)) == ["under 2000 stars", "under 200 forks"]
    strict = RepositoryFilter(licences=("MIT",), max_stars=2, archived=False)
    changed = facts.model_copy(update={"archived": True, "fork": True})
    assert list(strict.reasons(changed)) == [
        "over 2 stars",
        "archived",
        "a fork",
        "licence unknown",
    ]

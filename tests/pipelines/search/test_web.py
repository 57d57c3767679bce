"""The live web over a real local server: what engines say, what pages hold, and what replays."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from web_server import Page, WebServer

from envgen.core.errors import ConfigError, EnvgenError, SearchEngineError, StoreError
from envgen.pipelines.search.sources import build_corpus
from envgen.pipelines.search.web.cache import CacheMissError, WebCache
from envgen.pipelines.search.web.client import PageError, is_public
from envgen.pipelines.search.web.engines import (
    KeyRefusedError,
    QuotaSpentError,
    WebEngine,
    cut_query,
    open_engine,
)
from envgen.pipelines.search.web.live import LiveWeb
from envgen.pipelines.search.web.pages import PageDownError, WebPage, fetch_page
from envgen.store.corpus_engines import open_index

KEY = "k3y-of-the-account"
HTML = {"Content-Type": "text/html; charset=utf-8"}
HERON = """<html lang="en-GB"><head><title>Grey herons</title></head><body><nav>Menu Home</nav>
<main><h1>Herons</h1><p>The grey heron nests in tall trees near Lake Vättern.</p></main></body></html>"""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SERPER", "TAVILY", "BRAVE"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


def opened(server: WebServer, name: str = "serper") -> WebEngine:
    return open_engine(f"{name}@{server.url}/api", max_retries=2, backoff_s=0.01)


def organic(*urls: str) -> dict[str, Any]:
    return {"organic": [{"title": f"T {u}", "link": u, "snippet": f"S {u}"} for u in urls]}


def served(**pages: Page | list[Page]) -> WebServer:
    return WebServer(**{path.replace("__", "/"): page for path, page in pages.items()})


A, B = "https://a.example/x", "http://b.example/"
SHAPES = {
    "searxng": ({"results": [
        {"title": "A", "url": A, "content": "of a", "publishedDate": "2024-05-01", "score": 1.5},
        {"title": "B", "url": B, "content": None, "publishedDate": None}]}, "search"),
    "serper": ({"organic": [
        {"title": "A", "link": A, "snippet": "of a", "date": "2024-05-01", "position": 1},
        {"title": "B", "link": B}], "peopleAlsoAsk": []}, "search"),
    "tavily": ({"results": [
        {"title": "A", "url": A, "content": "of a", "score": 0.9, "published_date": "2024-05-01"},
        {"title": "B", "url": B, "content": ""}], "response_time": 1.1}, "search"),
    "brave": ({"web": {"results": [
        {"title": "<b>A</b>", "url": A, "description": "<strong>of</strong> a", "age": "2024-05-01"},
        {"title": "B", "url": B, "description": ""}]}}, "res__v1__web__search"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_every_engine_is_asked_and_read_in_its_own_form(name: str) -> None:
    body, path = SHAPES[name]
    with served(**{f"api__{path}": Page(body)}) as server:
        first, second = opened(server, name).search("grey heron", 2 if name != "tavily" else 1)
        ((target, headers, sent),) = server.seen
    assert (first.title, first.url, first.snippet, first.date) == ("A", A, "of a", "2024-05-01")
    assert (second.title, second.url, second.snippet, second.date) == ("B", B, "", "")
    asked = {k: v[0] for k, v in parse_qs(urlsplit(target).query).items()}
    asked |= json.loads(sent) if sent else {}
    expected: dict[str, tuple[dict[str, Any], str, str]] = {
        "searxng": ({"q": "grey heron", "format": "json", "pageno": "2"}, "user-agent", "envgen"),
        "serper": ({"q": "grey heron", "num": 10, "page": 2}, "x-api-key", KEY),
        "tavily": ({"query": "grey heron", "max_results": 20}, "authorization", f"Bearer {KEY}"),
        "brave": ({"q": "grey heron", "count": "20", "offset": "1"}, "x-subscription-token", KEY),
    }
    fields, header, value = expected[name]
    assert asked == fields
    assert headers[header] == value


ADDRESS = "API's address"
HUGE = b" " * (3 << 20)
PACKED = Page(gzip.compress(HUGE), headers={"Content-Encoding": "gzip"})
BANNED = Page({"results": [], "unresponsive_engines": [["bing", "CAPTCHA"]]})
NUMBER = Page({"organic": [{"title": 7, "link": A}]})
POOR = Page({"message": "Not enough credits"}, 400)
BUSY = Page({}, 429, {"Retry-After": "86400"})
REFUSED = Page({"message": f"Bad key {KEY}"}, 403)
Key, Quota, Other = KeyRefusedError, QuotaSpentError, SearchEngineError


@pytest.mark.parametrize(
    ("name", "page", "error", "said", "hint", "requests"),
    [
        ("serper", REFUSED, Key, r"serper says HTTP 403.*Bad key \[key\]", "SERPER_API_KEY", 1),
        ("brave", Page({}, 401), Key, "brave says HTTP 401", "BRAVE_API_KEY", 1),
        ("serper", POOR, Quota, "Not enough credits", "quota", 1),
        ("tavily", Page({"detail": "plan"}, 432), Quota, "tavily says HTTP 432", "quota", 1),
        ("tavily", Page({}, 433), Quota, "HTTP 433", "quota", 1),
        ("brave", Page({}, 402), Quota, "HTTP 402", "quota", 1),
        ("brave", Page({}, 429), Quota, "HTTP 429.*3 attempts", "quota", 3),
        ("brave", BUSY, Quota, "1 attempts", "quota", 1),
        ("serper", Page(b"<html>down</html>", 503), Other, r"HTTP 503 \(3 attempts", "is up", 3),
        ("serper", Page({}, 422), Other, "HTTP 422", "word it", 1),
        ("serper", Page({}, 404), Other, "HTTP 404", ADDRESS, 1),
        ("searxng", Page(b"<p>", 403), Other, "searxng says HTTP 403", r"search\.formats.*json", 1),
        ("searxng", BANNED, Other, "CAPTCHA", "other engines", 1),
        ("serper", Page(b"<html>hello"), Other, "no JSON", ADDRESS, 1),
        ("serper", NUMBER, Other, r"organic.*0, .title.\): Input should be a valid string", ADDRESS, 1),
        ("serper", Page({"message": "hi"}), Other, "without results", ADDRESS, 1),
        ("brave", Page({"web": [1]}), Other, "another form", ADDRESS, 1),
        ("serper", Page([1]), Other, "another form", ADDRESS, 1),
        ("serper", Page(HUGE), Other, "more than 2 MiB", ADDRESS, 1),
        ("serper", PACKED, Other, "more than 2 MiB", ADDRESS, 1),
    ],
)  # fmt: skip
def test_what_an_engine_can_not_do_is_told(
    name: str, page: Page, error: type[Exception], said: str, hint: str, requests: int
) -> None:
    path = SHAPES[name][1]
    with served(**{f"api__{path}": page}) as server:
        with pytest.raises(error, match=said) as caught:
            opened(server, name).search("heron")
        assert len(server.seen) == requests
    assert isinstance(caught.value, EnvgenError)
    assert re.search(hint, caught.value.hint), caught.value.hint
    assert KEY not in repr(caught.value)


def test_what_passes_is_tried_again() -> None:
    pages = [Page({}, 429, {"Retry-After": "0"}), Page({}, 502), Page(organic(A))]
    with served(api__search=pages) as server:
        assert [hit.url for hit in opened(server).search("heron")] == [A]
        assert len(server.seen) == 3


def test_an_engine_that_is_down_is_named() -> None:
    with served() as server:
        engine = opened(server)
    with pytest.raises(SearchEngineError, match="serper does not answer") as caught:
        engine.search("heron")
    assert server.url in caught.value.hint


def test_a_key_is_needed_when_a_search_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine("brave")
    monkeypatch.setenv("BRAVE_API_KEY", "not\u20ac a key")
    with pytest.raises(KeyRefusedError, match="BRAVE_API_KEY holds characters") as caught:
        engine.search("heron")
    assert "\u20ac" not in repr(caught.value)
    monkeypatch.delenv("BRAVE_API_KEY")
    with pytest.raises(ConfigError, match="'BRAVE_API_KEY' is not set"):
        engine.search("heron")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("bravo", "unknown web search engine 'bravo'.*brave"),
        ("searxng", "needs the URL"),
        ("searxng:ftp://x", "not an http"),
        ("searxng:http://me:secret@host", "user's name"),
    ],
)
def test_a_spec_that_is_none_is_told(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        open_engine(spec)
    assert "secret" not in repr(caught.value)


def test_long_queries_are_cut_at_a_word() -> None:
    assert cut_query("a " * 60, 400, 50) == " ".join("a" * 50)
    assert cut_query("word " * 90, 400) == " ".join(["word"] * 80)
    assert cut_query("\u9e6d" * 500, 400, 50) == "\u9e6d" * 400
    with served(api__res__v1__web__search=Page({})) as server:
        assert opened(server, "brave").search("heronry " * 60) == []
        query = parse_qs(urlsplit(server.seen[0][0]).query)["q"][0]
        assert query == " ".join(["heronry"] * 50)[:399]
        assert opened(server, "brave").search("heron", 11) == []
        assert len(server.seen) == 1


def test_hits_that_lead_nowhere_are_left_out() -> None:
    body = organic("javascript:alert(1)", A, "/relative", "http://c.example/a b", A, B)
    body["organic"].append({"title": "no link"})
    with served(api__search=Page(body)) as server:
        assert [hit.url for hit in opened(server).search("heron")] == [A, B]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/latest/meta-data", "http://localhost:8080/", "http://10.1.2.3/", "http://0.0.0.0/",
        "http://[64:ff9b::7f00:1]/", "http://[fd00::1]/",
    ],
)  # fmt: skip
def test_private_networks_are_not_read(url: str) -> None:
    with pytest.raises(PageError, match="private network"):
        fetch_page(url)


def test_public_addresses_are_told_from_others() -> None:
    for address in ("8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"):
        assert is_public(address)
    for address in ("100.64.0.1", "224.0.0.1", "fe80::1%lo", "2002:7f00:1::", "fec0::1", "::"):
        assert not is_public(address)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a/", "http://", "http://a:b/", "heron"]
)
def test_what_is_no_address_of_the_web_is_told(url: str) -> None:
    with pytest.raises(PageError, match="not an http"):
        fetch_page(url)


def test_redirects_are_followed_and_each_is_checked() -> None:
    with served(
        old=Page(status=301, headers={"Location": "new?x=1"}),
        new=Page(HERON.encode(), headers=HTML),
        loop=Page(status=302, headers={"Location": "/loop"}),
        file=Page(status=302, headers={"Location": "file:///etc/passwd"}),
    ) as server:
        page = fetch_page(f"{server.url}/old", allow_private=True)
        assert (page.url, page.title, page.language) == (
            f"{server.url}/new?x=1",
            "Grey herons",
            "en-GB",
        )
        with pytest.raises(PageError, match="more than 5 times"):
            fetch_page(f"{server.url}/loop", allow_private=True)
        assert len(server.seen) == 8
        with pytest.raises(PageError, match="'file:///etc/passwd' is not an http"):
            fetch_page(f"{server.url}/file", allow_private=True)
    with pytest.raises(PageDownError, match="does not answer"):
        fetch_page(f"{server.url}/old", allow_private=True)


def test_a_public_page_leads_to_no_private_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network, not our code, takes 8.8.8.8 for this machine."""
    connect = socket.create_connection

    def routed(address: tuple[str, int], *args: Any, **kwargs: Any) -> socket.socket:
        assert address[0] == "8.8.8.8"
        return connect(("127.0.0.1", address[1]), *args, **kwargs)

    monkeypatch.setattr(socket, "create_connection", routed)
    with served(
        old=Page(status=302), new=Page(b"secret", headers={"Content-Type": "text/plain"})
    ) as server:
        public = server.url.replace("127.0.0.1", "8.8.8.8")
        assert fetch_page(f"{public}/new").text == "secret"
        server.pages["/old"] = Page(status=302, headers={"Location": f"{server.url}/new"})
        with pytest.raises(
            PageError, match=r"'127\.0\.0\.1' is not read: it lies in a private network"
        ):
            fetch_page(f"{public}/old")
        assert [target for target, *_ in server.seen] == ["/new", "/old"]


def read(body: bytes, kind: str, **more: str) -> WebPage:
    headers = {"Content-Type": kind, **more} if kind else more
    with served(p=Page(body, headers=headers)) as server:
        return fetch_page(f"{server.url}/p", allow_private=True)


def test_pages_are_read_as_texts() -> None:
    pytest.importorskip("resiliparse", reason="pip install 'envgen-gym[search]'")
    page = read(HERON.encode("latin-1"), "text/html; charset=ISO-8859-1")
    assert "Lake V\u00e4ttern." in page.text
    assert "Menu" not in page.text
    assert read(gzip.compress(HERON.encode()), "", **{"Content-Encoding": "gzip"}).text == page.text
    text = "Der Graureiher br\u00fctet auf hohen B\u00e4umen am See und frisst Fische. " * 5
    plain = read(text.encode(), "text/plain")
    assert (plain.text, plain.language, plain.title) == (text, "", "")


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"%PDF-1.7", "application/pdf", "is application/pdf, not a text"),
        (b"\x89PNG", "image/png", "is image/png"),
        (b"bytes", "", "of no known type"),
        (b"<html><body><div id=app></div><script>x()</script></body></html>", "text/html", "holds no text"),
        (b"<div>" * 3_000, "text/html", "elements in one another"),
        (b"a" * ((8 << 20) + 1), "text/plain", "larger than 8 MiB"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_told(body: bytes, kind: str, said: str) -> None:
    with pytest.raises(PageError, match=said) as caught:
        read(body, kind)
    assert not isinstance(caught.value, PageDownError)


def test_a_server_that_drips_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envgen.pipelines.search.web.pages.PAGE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b"a")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        start = time.monotonic()
        try:
            with pytest.raises(PageDownError, match="does not answer"):
                fetch_page(f"http://127.0.0.1:{listening.getsockname()[1]}/", allow_private=True)
            assert time.monotonic() - start < 5
        finally:
            stop.set()
            thread.join(5)


def test_everything_replays_without_the_web_and_becomes_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("resiliparse", reason="pip install 'envgen-gym[search]'")
    with served(
        heron=Page(HERON.encode(), headers=HTML),
        pdf=Page(b"%PDF", headers={"Content-Type": "application/pdf"}),
        busy=Page(status=503),
    ) as server:
        urls = [f"{server.url}/{name}" for name in ("heron", "pdf", "busy", "unread")]
        server.pages["/api/search"] = [
            Page(organic(*urls[:3])),
            Page(organic(urls[3])),
            Page(organic()),
        ]
        engine = opened(server)
        live = LiveWeb(engine, WebCache(tmp_path / "web"), allow_private=True)
        first = live.search("grey heron", k=2)
        second = live.search("grey heron", k=2, page=2)
        assert [hit["url"] for hit in first + second] == urls
        assert set(first[0]) == {"id", "title", "url", "snippet"}
        page = live.page(first[0]["id"])
        with pytest.raises(PageError, match="is application/pdf"):
            live.page(first[1]["id"])
        with pytest.raises(PageDownError):
            live.page(second[0]["id"])
        requests = len(server.seen)
        assert live.search("grey heron", k=2) == first
        assert live.page(first[0]["id"]) == page
        assert len(server.seen) == requests
        assert live.page("w-0000000000000000") is None

    monkeypatch.delenv("SERPER_API_KEY")
    again = LiveWeb(engine, WebCache(tmp_path / "web", replay_only=True))
    assert again.search("grey heron", k=2) == first
    assert again.search("grey heron", k=2, page=2) == second
    assert again.page(first[0]["id"]) == page
    with pytest.raises(PageError, match="is application/pdf"):
        again.page(first[1]["id"])
    for query, k in (("Grey heron", 2), ("grey  heron", 2), ("grey heron", 5)):
        with pytest.raises(CacheMissError, match="only replays"):
            again.search(query, k)
    with pytest.raises(CacheMissError, match="no page"):
        again.page(second[1]["id"])
    assert KEY not in "".join(one.read_text() for one in (tmp_path / "web").iterdir())

    lines = tmp_path / "web.jsonl"
    lines.write_text("".join(json.dumps(one) + "\n" for one in again.documents()))
    corpus = build_corpus([lines], tmp_path / "corpus")
    hit = open_index(corpus).search("where do herons nest", 5)[0]
    documents = {one.id: one for one in corpus.documents()}
    assert len(documents) > 1  # hits that nobody read are found, too
    document = documents[hit.id]
    assert hit.id == first[0]["id"]
    assert (document.title, document.url, document.language) == ("Grey herons", urls[0], "en-GB")
    assert "V\u00e4ttern" in document.text


def test_a_cut_last_line_is_asked_for_again(tmp_path: Path) -> None:
    with served(api__search=Page(organic(A))) as server:
        engine = opened(server)
        LiveWeb(engine, WebCache(tmp_path)).search("one", 1)
        LiveWeb(engine, WebCache(tmp_path)).search("two", 1)
        file = tmp_path / "searches.jsonl"
        file.write_bytes(file.read_bytes()[:-9])
        LiveWeb(engine, WebCache(tmp_path)).search("one", 1)
        assert len(server.seen) == 2
        LiveWeb(engine, WebCache(tmp_path)).search("two", 1)
        assert len(server.seen) == 3
    kept = [json.loads(line)["query"] for line in file.read_text().splitlines()]
    assert kept == ["one", "two"]
    file.write_text('{"engine": 7}\n')
    with pytest.raises(StoreError, match=r"searches\.jsonl, line 1"):
        WebCache(tmp_path)


def test_threads_agree_on_one_answer(tmp_path: Path) -> None:
    pages = [Page(organic(f"{A}/{number}")) for number in range(9)]
    with served(api__search=pages) as server:
        live = LiveWeb(opened(server), WebCache(tmp_path))
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(live.search("heron", 1))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert len(found) == 8
    assert all(one == found[0] for one in found)
    assert len((tmp_path / "searches.jsonl").read_text().splitlines()) == 1

"""What becomes of a run of models whose server, or whose search engine, misbehaves.

``test_agents.py`` has a writer that refuses, loops or writes Chinese, and models that answer or verify badly.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import said_amiss as bad
from films import films_corpus
from model_server import Drop, Hang, ModelServer, Raw
from search_models import brains, completion, script
from web_server import Page
from written_runs import DEAF, FAST, QUICK, SIX, asking, films_web, generate, kept, serve

from envgen.core.errors import ConfigError, PipelineError, PolicyError
from envgen.pipelines.search.web.cache import web_id
from envgen.store.corpus import Corpus

SILENT, REPEATS, UNASKED = (f"the writer: {one}" for one in ("silent", "repeats", "submissions"))
NOBODY, UNSHOWN = "nobody gave another answer", "clue  is not supported"
W, A, V = "writer", "answerer", "verifier"
SAID: dict[str, tuple[str, Any, str]] = {
    "30 MB of words": (W, "words, words. " * 2_200_000, SILENT), "lines": (W, "\n" * 1_000_000, SILENT),
    "a fence without an end": (W, "```json" + "\n" * 1_000_000, SILENT),
    "calls without an end": (W, '<|DSML|invoke name="a">' * 50_000, SILENT),
    "5 MB of arguments": (W, bad.LONG, REPEATS), "6 MB handed in": (W, bad.HUGE, UNASKED),
    "half a letter": (W, bad.ODD, UNASKED), "half arguments": (W, bad.search_with('{"query": "f'), REPEATS),
    "nested": (W, bad.search_with("[" * 100_000), REPEATS), "a window": (W, bad.FULL, "the writer: context"),
    "a window, verifying": (V, bad.FULL, UNSHOWN), "zh: English": (W, lambda good: good, UNASKED),
    "a refusal": (A, bad.REFUSAL, NOBODY), "a refusal, verifying": (V, bad.REFUSAL, UNSHOWN),
    "a loop": (A, bad.LOOP, NOBODY), "a loop, verifying": (V, bad.LOOP, UNSHOWN),
    "silence": (V, Hang(), "no reply: .*nothing was received for 0.8 s"),
    "half a reply": (A, bad.HALF, "no reply: .*not valid JSON"), "6 MB of verdicts": (V, bad.HUGE, UNSHOWN),
    "en: Russian": (W, lambda good: asking(good, "hand_in", bad.RUSSIAN), UNASKED),
    "zh: Japanese": (W, lambda good: asking(good, "hand_in", bad.JAPANESE), UNASKED),
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return films_corpus(tmp_path_factory.mktemp("films"), films=150, directors=100)


@pytest.mark.parametrize("case", SAID)
def test_nothing_that_a_model_says_is_kept(corpus: Corpus, tmp_path: Path, case: str) -> None:
    role, said, why = SAID[case]
    language, options = "zh" if case[:2] == "zh" else "en", DEAF if case == "silence" else QUICK
    run = {**SIX, "questions": 1, "language": language, "options": options}
    brain = said(brains(corpus)[role]) if callable(said) else lambda _: said
    with serve(corpus, **{role: brain}) as server, pytest.raises(PipelineError) as caught:
        generate(corpus, tmp_path / "qa", server, **run)
    assert re.fullmatch(rf"{why}.* \(1\)", caught.value.hint)
    assert not (tmp_path / "qa").exists()


ENDS: dict[str, tuple[Any, dict[str, Any], int, type[Exception], str]] = {
    "429": (bad.BUSY, QUICK, 39, PolicyError, r"HTTP 429.*slow.*\(3 attempts\) \| .*max_retries"),
    "429 at once": (bad.BUSY, QUICK, 2, ConfigError, r"no reply to a small.*HTTP 429.*\(2 attempts\)"),
    "silence": (Hang(), DEAF, 13, PolicyError, r"nothing was received for 0.8 s .*\| check the server"),
    "silence at once": (Hang(), DEAF, 1, ConfigError, "took a request and said nothing for 0.8 s"),
    "half a body": (bad.LINE_CUT, QUICK, 39, PolicyError, r"RemoteProtocolError: .*\(3 attempts\)"),
    "half a stream": (Drop(), {**QUICK, "stream": True}, 39, PolicyError, "RemoteProtocolError"),
    "half a reply": (bad.HALF, QUICK, 39, PolicyError, r"not valid JSON.*\(3 attempts\)"),
    "a wrong key": (bad.KEY, QUICK, 8, PolicyError, r"HTTP 401.*Incorrect.* \| set the API key's"),
    "a wrong key at once": (bad.KEY, QUICK, 1, ConfigError, r"'OPENAI_API_KEY'.* \| "),
    "only words": (completion("Sure!", 1), QUICK, 180, PipelineError, rf"{SILENT} \(60\)"),
    "no tools at once": (bad.NO_TOOLS, QUICK, 2, ConfigError, "takes no tool calls.*tool_mode=text"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_a_server_that_is_no_use_ends_it_soon(corpus: Corpus, tmp_path: Path, case: str) -> None:
    said, options, most, error, words = ENDS[case]
    begun = time.monotonic()
    with ModelServer([said]) as server, pytest.raises(error) as caught:
        generate(corpus, tmp_path / "qa", server, check="at once" in case, options=options)
    assert re.search(words, f"{caught.value} | {getattr(caught.value, 'hint', '')}")
    assert (len(server.generations) <= most, time.monotonic() - begun < 30) == (True, True)


def test_a_busy_server_is_waited_for_and_nothing_paid_twice(corpus: Corpus, tmp_path: Path) -> None:
    asked, honest = Counter[str](), brains(corpus)
    russian = asking(honest[W], "shortened", bad.RUSSIAN)  # which is not taken
    answered = script({**honest, W: russian})

    def reply(body: dict[str, Any]) -> Any:
        asked[str(body)] += 1
        busy = Raw(429, "{}", {"Retry-After": "0.01"})
        return busy if asked[str(body)] < 3 else answered(body)

    with ModelServer([reply]) as server:
        summary = generate(corpus, tmp_path / "qa", server, **SIX)
        (tmp_path / "again.calls").symlink_to(tmp_path / "qa.calls")
        again = generate(corpus, tmp_path / "again", server, **SIX)
    assert (set(asked.values()), len(asked), summary.tasks) == ({3}, 72, 6)
    assert summary.usage.prompt_tokens == again.usage.prompt_tokens == 72 * 20_000
    assert kept(tmp_path / "again") == [q for q in kept(tmp_path / "qa") if q.startswith("Which")]


@pytest.mark.parametrize(("at_once", "whole"), [(1, "Film number 57"), (8, "Film number 79")])
def test_what_was_whole_is_kept(corpus: Corpus, tmp_path: Path, at_once: int, whole: str) -> None:
    honest, over, refused = script(brains(corpus)), Event(), list[str]()
    run = {**SIX, "options": FAST}

    def reply(body: dict[str, Any]) -> Any:
        if body["model"] != W or whole in str(body["messages"]):
            return (at_once == 1 or over.wait(10)) and honest(body)
        refused.append(whole)
        if len(refused) == 5:
            over.set()
        return Raw(500, "{}")

    with ModelServer([reply]) as server:
        summary = generate(corpus, tmp_path / "qa", server, concurrency=at_once, **run)
    assert (summary.tasks, summary.attempts) == (1, 6)
    assert re.match("stopped, since this will not pass: .*HTTP 500", summary.stopped)
    assert [(one[:9], n) for one, n in summary.dropped.items()] == [("no reply:", 5)]
    (tmp_path / "all.calls").symlink_to(tmp_path / "qa.calls")
    with serve(corpus) as server:
        assert generate(corpus, tmp_path / "all", server, **run).stopped == ""
    assert len(server.generations) == 60  # the twelve others are paid
    assert set(kept(tmp_path / "qa")) < set(kept(tmp_path / "all"))


@pytest.mark.parametrize("status", [402, 429])
def test_a_spent_quota_leaves_what_was_whole(corpus: Corpus, tmp_path: Path, status: int) -> None:
    with films_web(corpus) as web:
        honest, search = brains(corpus, lambda name: web_id(f"{web.url}/{name}")), web.search
        spent, begun = Page({}, status, {"Retry-After": "3600"}), set[str]()
        assert search is not None
        web.search = lambda query: spent if len(begun) > 1 else search(query)

        def writer(body: dict[str, Any]) -> Any:
            begun.update([body["messages"][0]["content"]] if len(body["tools"]) > 1 else [])
            return honest[W](body)

        run = {**SIX, "engine": f"searxng:{web.url}", "allow_private": True}
        with ModelServer([script({**honest, W: writer})]) as server:
            summary = generate(corpus, tmp_path / "qa", server, concurrency=1, **run)
    assert (summary.tasks, summary.attempts, len(kept(tmp_path / "qa"))) == (1, 2, 1)
    assert re.match(f"stopped, since this will not pass: .* HTTP {status}", summary.stopped)
    assert [one[:17] for one in summary.dropped] == ["no reply: searxng"]


def test_a_budget_that_two_share_leaves_what_was_whole(corpus: Corpus, tmp_path: Path) -> None:
    run = {**SIX, "options": {**FAST, "price": {"prompt": 1.0, "completion": 1.0}}}
    with serve(corpus) as server:
        summary = generate(corpus, tmp_path / "qa", server, max_cost_usd=1, concurrency=2, **run)
    assert 2 <= summary.tasks == len(kept(tmp_path / "qa")) < 6
    assert re.match(r"the budget of 1 USD is spent \(1\.\d+ USD\)", summary.stopped)
    assert summary.dropped == {"the budget was spent": summary.attempts - summary.tasks}
    assert len(server.generations) <= 50 + 2 * 2

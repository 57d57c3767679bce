"""Runs of ``generate_written`` over the films corpus, with the models of ``search_models``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_server import ModelServer
from search_models import Brain, brains, script
from web_server import Page, WebServer

from envgen.environments.search import open_corpus
from envgen.pipelines.search.agents import WrittenSummary, generate_written
from envgen.pipelines.search.config import WrittenConfig
from envgen.pipelines.search.written import WrittenQuestion, verified
from envgen.pipelines.validate import validate
from envgen.store.corpus import Corpus
from envgen.store.dataset import Dataset

FAST = {"stream": False, "max_retries": 0}
QUICK = {"stream": False, "max_retries": 2, "backoff_s": 0.01, "max_backoff_s": 0.02}
DEAF = {**FAST, "timeout_s": 0.8}
SIX: dict[str, Any] = {"seed": 2359, "passes": 1, "attempts": 1, "questions": 6, "options": QUICK}
"""Over 150 films of 100 directors honest models then write six good questions, of twelve requests each."""
MORE = "Rivers bend quietly eastward through meadows. " * 8
"""Long pages rank behind the many that were not read, whatever ids the port of a server gives them."""


def generate(
    corpus: Corpus,
    out: Path,
    server: ModelServer,
    *,
    max_cost_usd: float | None = None,
    concurrency: int = 8,
    check: bool = False,
    **more: Any,
) -> WrittenSummary:
    """Generate with all roles played by a server; ``more`` are fields of the config."""
    roles = {
        "writer": f"openai:writer@{server.url}",
        "answerers": f"openai:answerer@{server.url},openai:answerer@{server.url}#plain",
        "verifier": f"openai:verifier@{server.url}",
        "options": FAST,
    }
    fields = {"questions": 3, "attempts": 20, "depth": "2", "breadth": "2", **roles, **more}
    config = WrittenConfig(corpus=corpus.path, **fields)
    return generate_written(
        config, out, workers=1, check=check, max_cost_usd=max_cost_usd, concurrency=concurrency
    )


def serve(corpus: Corpus, **exchanged: Brain) -> ModelServer:
    """The honest models, but for those that are exchanged."""
    return ModelServer([script({**brains(corpus), **exchanged})])


def kept(path: Path) -> list[str]:
    """The questions of a dataset, all of whose proofs hold."""
    dataset = Dataset.open(path)
    files = map(dataset.task_files, dataset.tasks)
    found = [WrittenQuestion.model_validate_json(one.solution) for one in files]
    assert validate(path).passed
    assert not any(map(verified, found))
    return [one.question for one in found]


def asking(brain: Brain, tool: str, question: str) -> Brain:
    """A writer who asks another question when it calls a tool."""

    def changed(body: dict[str, Any]) -> Any:
        said: Any = brain(body)
        return (tool, {**said[1], "question": question}) if said[0] == tool else said

    return changed


@contextmanager
def films_web(corpus: Corpus) -> Iterator[WebServer]:
    """A web of the corpus' documents, each at its id with more words, and a SearXNG that finds them."""
    opened = open_corpus(corpus.hash)
    documents = {one.id: one for one in corpus.documents()}
    with WebServer() as web:

        def find(query: str) -> Page:
            hits = [documents[hit.id] for hit in opened.searcher.search(query, 60)]
            found = [
                {"title": one.title, "url": f"{web.url}/{one.id}", "content": one.text}
                for one in hits
            ]
            return Page({"query": query, "results": found})

        for one in documents.values():
            body = f"<p>{one.text}</p><p>{MORE}</p>"
            page = f"<html lang=en><title>{one.title}</title><body>{body}</body></html>"
            web.pages[f"/{one.id}"] = Page(page.encode(), headers={"Content-Type": "text/html"})
        web.search = find
        yield web

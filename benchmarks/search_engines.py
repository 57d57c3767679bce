"""Searching a corpus of 64,000 documents: both engines, beside plain tantivy and bm25s.

    python -P benchmarks/search_engines.py [--documents 64000] [--queries 200] [--corpus FOLDER]

The corpus is the one in the package, with documents made of its sentences, drawn anew; ``--corpus`` takes one
of yours. Short queries are two to four different words of one document, however frequent; long ones are the
questions in the package. *plain tantivy* has its own analyzer and query parser over title and text; bm25s
(``pip install bm25s``) is left out where it is missing. *search calls* are the tool's: five results with
titles and snippets, over 64 episodes that are open at once. Times are processor time.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

import tantivy

from envgen.environments.hosts import open_dataset
from envgen.environments.search import OpenCorpus, SearchEnv
from envgen.store.corpus import Corpus, CorpusDocument, write_corpus
from envgen.store.corpus_engines import open_index
from envgen.store.corpus_index import terms
from envgen.store.corpus_lines import package_corpus

try:
    import bm25s
except ImportError:
    bm25s = None

K, EPISODES = 10, 64
TARGET_MS = {"fts5": 10.0, "tantivy": 1.0}
TARGET_CALLS = 1_000
Search = Callable[[str], object]
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=64_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--corpus", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        corpus = (
            Corpus(arguments.corpus)
            if arguments.corpus
            else mixed_corpus(Path(folder), arguments.documents)
        )
        short = short_queries(corpus, arguments.queries)
        dataset = open_dataset("package:search_questions")
        long = [task.prompt for task in dataset.tasks.values()]
        print(f"{len(corpus)} documents, {len(short)} short and {len(long)} long queries, K = {K}")
        opened = {
            name: OpenCorpus(corpus, timed(name, lambda name=name: open_index(corpus, name)))
            for name in TARGET_MS
        }
        searches: dict[str, Search] = {
            name: lambda query, engine=one.engine: engine.search(query, K)
            for name, one in opened.items()
        }
        searches["plain tantivy"] = timed("plain tantivy", lambda: plain_tantivy(corpus))
        if bm25s is None:
            print("bm25s is not installed: left out")
        else:
            searches["bm25s"] = timed("bm25s", lambda: plain_bm25s(corpus))
        for name, search in searches.items():
            quick, slow = latencies(search, short), latencies(search, long)
            target = TARGET_MS.get(name)
            verdict = (
                "" if target is None else f", target {target:.0f} ms: {judged(quick[0] <= target)}"
            )
            print(
                f"{name:14} 2-4 words p50 {quick[0]:7.2f} ms, p95 {quick[1]:7.2f} ms{verdict}; "
                f"questions p50 {slow[0]:7.2f} ms, p95 {slow[1]:7.2f} ms"
            )
        for name, one in opened.items():
            for what, queries in (("2-4 words", short), ("questions", long)):
                rate = calls_per_second(one, queries)
                verdict = ""
                if (name, what) == ("tantivy", "2-4 words"):
                    verdict = f", target {TARGET_CALLS}: {judged(rate >= TARGET_CALLS)}"
                print(f"{name:14} search calls of {what} {rate:7.0f} /s{verdict}")


def judged(held: bool) -> str:
    """The word for a target."""
    return "ok" if held else "MISSED"


def timed(name: str, build: Callable[[], T]) -> T:
    """What ``build`` makes; says how long it took."""
    started = time.process_time()
    made = build()
    print(f"{name:14} built in {time.process_time() - started:5.1f} s")
    return made


def mixed_corpus(folder: Path, number: int) -> Corpus:
    """The packaged corpus, and so many documents made of the sentences of two of a kind."""
    source = package_corpus()
    return write_corpus(folder / "mixed", source.header, mixed(source, number))


def mixed(source: Corpus, number: int) -> Iterator[CorpusDocument]:
    draw, alike = Random(0), defaultdict(list)
    documents = [one.model_copy(update={"facts": ()}) for one in source.documents()]
    for one in documents:
        alike[one.kind, one.language].append(one)
    yield from documents[:number]
    for i in range(number - len(documents)):
        first = draw.choice(documents)
        second = draw.choice(alike[first.kind, first.language])
        sentences = re.findall(r"[^.\u3002]+[.\u3002]?", first.text + second.text)
        text = "".join(draw.sample(sentences, (len(sentences) + 1) // 2)).strip()
        yield first.model_copy(update={"id": f"mix-{i}", "text": text})


def short_queries(corpus: Corpus, number: int) -> list[str]:
    """Two to four words of a document."""
    draw, found = Random(1), []
    while len(found) < number:
        page = corpus.page(draw.choice(corpus.ids))
        assert page is not None
        words = sorted(set(terms(page.text)))
        if len(words) >= 4:
            found.append(" ".join(draw.sample(words, draw.randint(2, 4))))
    return found


def plain_tantivy(corpus: Corpus) -> Search:
    """An index as tantivy's tutorial makes it."""
    schema = tantivy.SchemaBuilder().add_text_field("title", stored=True).add_text_field("text")
    index = tantivy.Index(schema.build())
    writer = index.writer(1 << 30, num_threads=1)
    for page in map(corpus.page, corpus.ids):
        assert page is not None
        writer.add_document(tantivy.Document(title=page.title, text=page.text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> object:
        asked, _ = index.parse_query_lenient(query, ["title", "text"], {"title": 5.0})
        hits = searcher.search(asked, K).hits
        return [searcher.doc(place)["title"] for _, place in hits]

    return search


def plain_bm25s(corpus: Corpus) -> Search:
    """bm25s over the same words."""
    pages = [page for page in map(corpus.page, corpus.ids) if page is not None]
    index = bm25s.BM25()
    index.index([terms(f"{page.title} {page.text}") for page in pages], show_progress=False)

    def search(query: str) -> object:
        return index.retrieve([terms(query)], k=K, show_progress=False)

    return search


def latencies(search: Search, queries: Sequence[str]) -> tuple[float, float]:
    """Median and 95th percentile, in ms; each query was asked once before."""
    for query in queries:
        search(query)
    times = []
    for query in queries:
        started = time.process_time()
        search(query)
        times.append(1e3 * (time.process_time() - started))
    times.sort()
    return times[len(times) // 2], times[len(times) * 95 // 100]


def calls_per_second(opened: OpenCorpus, queries: Sequence[str]) -> float:
    """Calls of the tool in turns over open episodes."""
    episodes = [SearchEnv("package:search_questions") for _ in range(EPISODES)]
    for number, env in enumerate(episodes):
        env._known = dict.fromkeys(env.dataset.environments, opened)
        env.reset(seed=number)
    calls = 5 * EPISODES
    started = time.process_time()
    for number in range(calls):
        found = episodes[number % EPISODES].call(
            "search", {"query": queries[number % len(queries)]}
        )
        assert found.error is None
    seconds = time.process_time() - started
    for env in episodes:
        env.close()
    return calls / seconds


if __name__ == "__main__":
    main()

"""Every search engine keeps the contract of ``CorpusIndex``, and no query breaks one."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from films import films_corpus
from poems import poems_corpus, search_afresh, search_given

from envgen.core.errors import ConfigError, StoreError
from envgen.store.corpus import Corpus
from envgen.store.corpus_engines import open_index
from envgen.store.corpus_fts5 import FTS5Index
from envgen.store.corpus_index import MAX_QUERY_CHARS, CorpusIndex, _places, _wanted, terms

ENGINES = ("fts5", "tantivy")
HOSTILE = [
    "", "   ", "?!,.", "a AND", "AND OR NOT", "a OR", '"x', '""', "(" * 500, "foo:bar", "words:turner",
    "\ud800", "a\udfffb", "\0", "caf\0e", "x" * 1_000_000, "x " * 500_000, "\u674e" * 1_000_000, "-", "*",
    "NEAR(", "[a TO b]", "{", "\\", "' OR 1=1 --", "\u0301", "\U0001f600", "\u202e", "/a.*/",
]  # fmt: skip


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "tantivy":
        pytest.importorskip("tantivy", reason="pip install 'envgen-gym[search]'")
    return str(request.param)


@pytest.fixture
def films(tmp_path: Path) -> Corpus:
    return films_corpus(tmp_path / "films")


def found(index: CorpusIndex, query: str, k: int = 5) -> list[str]:
    return [hit.id for hit in index.search(query, k)]


def test_no_query_breaks_an_index(engine: str, tmp_path: Path) -> None:
    index = open_index(poems_corpus(tmp_path), engine)
    for query in HOSTILE:
        assert len(index.search(query, 5)) <= 4
    assert not index.search("cafe", 0)
    assert not index.search("", 5)
    assert not index.search("zzz", 5)
    assert found(index, "cafe zzz") == found(index, "cafe") == ["c2"]


WORDS = [
    ("Turner's sea", "Turner", True),
    ("Turner\u2019s sea", "turner's", True),
    ("Rodin\u2019s", "Rodin", True),
    ("l\u2019Orangerie, d'Arc", "Orangerie", True),
    ("l\u2019Orangerie, d'Arc", "arc", True),
    ("O'Brien", "O\u2019Brien", True),
    ("it ended.Afterwards", "afterwards", True),
    ("see wiki.example.org.", "example", True),
    ("of 1,234 and", "1234", True),
    ("of 1234 and", "1,234", True),
    ("of 1,234,567.8 and", "1234567.8", True),
    ("is 3.14 or so", "3.14", True),
    ("is 3.14 or so", "314", False),
    ("is 314 or so", "3.14", False),
    ("is 3.14 or so", "14", False),
    ("on 29.11.2026, at", "2026", True),
    ("born in 1985.", "1985", True),
    ("the U.S. and the U.S.A.", "us usa", True),
    ("the USA", "U.S.A.", True),
    ("AT&T", "at&t", True),
    ("snake_case", "case", True),
    ("CAFE\u0301", "caf\u00e9", True),
    ("\u0130stanbul'da", "istanbul", True),
    ("\u0131\u015f\u0131k", "isik", True),
    ("\u0141\u00f3d\u017a", "Lodz", True),
    ("Lodz", "\u0141\u00f3d\u017a", True),
    ("Stra\u00dfe", "strasse", True),
    ("K\u00f8benhavn", "kobenhavn", True),
    ("\u674e\u767d\u8bd7", "\u674e\u767d", True),
    ("\u674e\u767d\u8bd7", "\u767d\u674e", False),
    ("\u674e\u767d\u8bd7", "\u767d", True),
    ("\u674e\u767d\u8bd7", "\u8bd7 \u9152", True),
    ("AI\u6280\u672f", "ai", True),
    ("\ud55c\uad6d\uc5b4", "\ud55c\uad6d", True),
    ("word", "ord", False),
]
"""A text, a query, and whether it finds the text, with whichever engine."""


def test_words_are_found_as_people_write_them(engine: str, tmp_path: Path) -> None:
    texts = list(dict.fromkeys(text for text, _, _ in WORDS))
    more = {f"w{i:02}": (f"Page {'abcdefghij'[i // 10]}", text) for i, text in enumerate(texts)}
    index = open_index(poems_corpus(tmp_path, more), engine)
    for text, query, wanted in WORDS:
        assert (f"w{texts.index(text):02}" in found(index, query, 50)) is wanted, (text, query)
        words = _wanted(query)
        assert bool(_places(text, words)) is wanted, (text, query)  # snippets show it


def test_long_words_are_found_and_endless_ones_do_no_harm(engine: str, tmp_path: Path) -> None:
    long = ("x" * 41, "\u017c" * 300, "y" * (MAX_QUERY_CHARS - 1))
    more = {f"long-{i}": ("Long", f"It says {word} here.") for i, word in enumerate(long)}
    index = open_index(
        poems_corpus(tmp_path, more | {"endless": ("Endless", "z" * 200_000 + " end")}), engine
    )
    assert [found(index, word) for word in long] == [["long-0"], ["long-1"], ["long-2"]]
    assert found(index, "end") == ["endless"]


def test_titles_count_more_and_scores_fall(engine: str, tmp_path: Path) -> None:
    filler = "It says nothing of what is asked for, at some length."
    more = {
        "a": ("Other", f"A heron. {filler}"),
        "b": ("Heron", f"A bird. {filler}"),
        "c": ("Other", f"A heron met a heron. {filler}"),
    }
    hits = open_index(poems_corpus(tmp_path, more), engine).search("heron", 5)
    assert [hit.id for hit in hits] == ["b", "c", "a"]
    assert hits[0].score > hits[1].score > hits[2].score > 0


def test_pages_follow_each_other_and_ties_go_by_id(engine: str, films: Corpus) -> None:
    index = open_index(films, engine)
    for query in ("western Kenya", "film", "its genre is drama", "France 1950 Director"):
        first = list(index.search(query, 300))
        pages = [index.search(query, 7, skip) for skip in range(0, 300, 7)]
        assert [hit for page in pages for hit in page][: len(first)] == first
        assert first == sorted(first, key=lambda hit: (-hit.score, hit.id))


def test_of_many_ties_the_first_by_id_are_found(engine: str, tmp_path: Path) -> None:
    names = [f"tie-{i}" for i in range(700)]
    Random(0).shuffle(names)
    corpus = poems_corpus(
        tmp_path, {name: ("Heron", "A grey heron by the river.") for name in names}
    )
    index = open_index(corpus, engine)
    for query in ("heron", "grey heron river"):
        assert found(index, query, 5) == sorted(names)[:5]
        assert [hit.id for hit in index.search(query, 5, 400)] == sorted(names)[400:405]
        assert found(index, query, 1_000) == sorted(names)


def test_the_order_of_words_does_not_matter_and_results_are_the_same_again(
    engine: str, films: Corpus
) -> None:
    index = open_index(films, engine)
    for query in ("western Kenya 1950 Director 3", "number 7 drama", "award Lion Graz born"):
        first = index.search(query, 20)
        assert index.search(" ".join(reversed(query.split())), 20) == first
        assert open_index(films, engine).search(query, 20) == first
        shutil.rmtree(index.path) if engine == "tantivy" else index.path.unlink()  # type: ignore[attr-defined]
        assert open_index(films, engine).search(query, 20) == first


def test_threads_and_processes_share_an_index(engine: str, films: Corpus) -> None:
    index = open_index(films, engine)
    expected = index.search("western Kenya", 5)
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(search_given, [index] * 64, ["western Kenya"] * 64, timeout=60)
        assert all(one == expected for one in results)
    assert pickle.loads(pickle.dumps(index)).search("western Kenya", 5) == expected
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        given = pool.submit(search_given, index, "western Kenya")
        fresh = pool.submit(search_afresh, films, engine, "western Kenya")
        assert given.result(60) == fresh.result(60) == expected


def test_processes_that_build_an_index_at_once_all_find(engine: str, films: Corpus) -> None:
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(search_afresh, films, engine, "western Kenya") for _ in range(6)]
        assert len({tuple(job.result(60)) for job in jobs}) == 1


FORKED = """
import os, sys
from pathlib import Path
from envgen.store.corpus import Corpus
from envgen.store.corpus_engines import open_index
index = open_index(Corpus(Path(sys.argv[1])), sys.argv[2])
expected = index.search("western Kenya", 5)
child = os.fork()
if not child:
    os._exit(0 if index.search("western Kenya", 5) == expected else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_searches_on(engine: str, films: Corpus) -> None:
    command = [sys.executable, "-P", "-c", FORKED, str(films.path), engine]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_an_unknown_engine_is_refused(films: Corpus) -> None:
    with pytest.raises(
        ConfigError, match="unknown search engine 'tantify'; did you mean 'tantivy'"
    ):
        open_index(films, "tantify")


def test_without_its_package_an_engine_says_how_to_get_it(films: Corpus) -> None:
    code = (
        "import sys; sys.modules['tantivy'] = None\n"
        "from envgen.core.errors import MissingExtraError\n"
        "from envgen.store.corpus import Corpus\n"
        "from envgen.store.corpus_engines import open_index\n"
        "try: open_index(Corpus(sys.argv[1]), 'tantivy')\n"
        "except MissingExtraError as error: print(error, error.hint)\n"
    )
    command = [sys.executable, "-P", "-c", code, str(films.path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "'tantivy' needs the package" in said
    assert "pip install 'envgen-gym[search]'" in said


def test_fts5_leaves_nothing_out_when_it_looks_for_rare_words_first(films: Corpus) -> None:
    """The slow way: every document with any of the words, scored."""
    index = FTS5Index(films)
    draw, words = Random(0), sorted({one for doc in films.documents() for one in terms(doc.text)})
    for _ in range(300):
        query = draw.sample(words, draw.randint(1, 6)) + draw.sample(
            ["is", "film", "its", "the"], 2
        )
        k = draw.choice((1, 5, 20))
        slow = index._best(" OR ".join(f'"{word}"' for word in sorted(set(query))), k)
        hits = index.search(" ".join(query), k)
        assert [hit.id for hit in hits] == [films.ids[number] for number, _ in slow]
        assert [hit.score for hit in hits] == pytest.approx([-score for _, score in slow], abs=2e-6)


def test_a_broken_fts5_index_is_an_error(films: Corpus) -> None:
    index = FTS5Index(films)
    index.path.write_bytes(b"x" * 5_000)
    with pytest.raises(StoreError, match="can't be read") as raised:
        FTS5Index(films).search("western", 5)
    assert raised.value.hint == "remove it"


tantivy_only = pytest.mark.parametrize("engine", ["tantivy"], indirect=True)


@tantivy_only
@pytest.mark.parametrize("how", ["cut", "changed", "gone", "of another version", "no index"])
def test_a_broken_tantivy_index_is_built_again(engine: str, films: Corpus, how: str) -> None:
    from envgen.store.corpus_tantivy import TantivyIndex

    index = TantivyIndex(films)
    expected = index.search("western Kenya", 5)
    largest = max(index.path.glob("[!.]*"), key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    if how == "cut":
        largest.write_bytes(content[: len(content) // 2])
    elif how == "changed":
        middle = len(content) // 2
        largest.write_bytes(
            content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
        )
    elif how == "gone":
        largest.unlink()
    elif how == "of another version":
        meta = index.path / "meta.json"
        meta.write_text(meta.read_text().replace("segments", "parts"))
        from envgen.store import corpus_tantivy

        (index.path / ".sum").write_text(corpus_tantivy._sum(index.path))
    else:
        shutil.rmtree(index.path)
        index.path.mkdir()
        (index.path / "mine.txt").write_text("x")
    assert TantivyIndex(films).search("western Kenya", 5) == expected
    assert not list(index.path.parent.glob(".*tantivy*"))


@tantivy_only
def test_a_tantivy_index_is_read_where_nothing_can_be_written(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from envgen.store.corpus_tantivy import TantivyIndex

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", name)
        corpus = films_corpus(Path(name, "films"))
        index = TantivyIndex(corpus)
        expected = index.search("western Kenya", 5)
        index.path.chmod(0o555)
        nobody = os.geteuid() == 0
        if nobody:
            os.seteuid(65534)
        try:
            with pytest.raises(PermissionError):
                (index.path / "x").touch()
            assert TantivyIndex(corpus).search("western Kenya", 5) == expected
        finally:
            if nobody:
                os.seteuid(0)
            index.path.chmod(0o755)

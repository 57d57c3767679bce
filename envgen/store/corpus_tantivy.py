"""Full-text search over a corpus with tantivy, a library in Rust: for many searches over large corpora.

It indexes the same words as FTS5 does. The index is a folder beside the corpus in the user's cache folder,
made when it is first wanted, and again if it is not as it was made: nothing is lost with it.
"""

from __future__ import annotations

import shutil
from hashlib import file_digest, sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from envgen.core.errors import MissingExtraError, StoreError, install_hint
from envgen.store.corpus import Corpus, known_place
from envgen.store.corpus_index import TITLE_WEIGHT, Hit, query_terms, terms
from envgen.store.folders import disk_errors

try:
    from tantivy import Document, Index, Occur, Query, SchemaBuilder, TextAnalyzerBuilder, Tokenizer
except ImportError as error:
    raise MissingExtraError(
        "the search engine 'tantivy' needs the package of this name", install_hint("search")
    ) from error

VERSION = 2
_WORDS, _NUMBER = "words", "number"
_SUM = ".sum"
"""A file with the hash of an index's files."""
_HEAP_BYTES = 1 << 30
"""What is indexed is one segment up to this size, in the order of ids."""
_FETCHED, _MOST_FETCHED = 64, 1 << 14
"""Results are cut from so many at least, and from more while a tie goes on: ties are sorted in them."""
_DIGITS = 3
"""Scores are 32 bit sums, in any order: what is equal so far is a tie."""
_TRIES = 3


class TantivyIndex:
    """tantivy with BM25; a word of a title counts five times.

    Args:
        corpus: what to search; its index is built the first time.

    Raises:
        StoreError: if the index can't be built.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.path = known_place(corpus.hash).with_suffix(f".tantivy-{VERSION}")
        self._index = _opened_or_built(corpus, self.path)
        self._schema, self._searcher = self._index.schema, self._index.searcher()

    def __reduce__(self) -> tuple[type[TantivyIndex], tuple[Corpus]]:
        return TantivyIndex, (self.corpus,)

    def search(self, query: str, k: int, skip: int = 0) -> list[Hit]:
        """See ``CorpusIndex``."""
        words = query_terms(query)
        if not words or k < 1:
            return []
        ids = self.corpus.ids
        rows = self._best(words, k + skip)
        return [Hit(ids[number], -score) for score, number in rows[skip : k + skip]]

    def _best(self, words: list[str], n: int) -> list[tuple[float, int]]:
        """The n best documents and some more: score, negated, and number."""
        asked = Query.boolean_query(
            [(Occur.Should, Query.term_query(self._schema, _WORDS, word, "freq")) for word in words]
        )
        limit = _FETCHED
        while True:
            found = self._searcher.search(asked, limit, count=False).hits
            if len(found) < limit:
                break
            cut = limit > n and round(found[-1][0], _DIGITS) < round(found[n - 1][0], _DIGITS)
            if cut or limit >= max(n, _MOST_FETCHED):
                break
            limit *= 4
        numbers = self._searcher.fast_field_values(_NUMBER, [place for _, place in found])
        scores = [-round(score, _DIGITS) for score, _ in found]
        return sorted(zip(scores, (int(number or 0) for number in numbers), strict=True))


def _opened_or_built(corpus: Corpus, path: Path) -> Index:
    with disk_errors(path):
        for _ in range(_TRIES):
            if (index := _opened(path)) is not None:
                return index
            _build(corpus, path)
    raise StoreError(f"the index {path} can't be read", "remove it")


def _opened(path: Path) -> Index | None:
    """The index of a folder; None if it is not there, not whole, or of another version of tantivy."""
    if not _is_whole(path):
        return None
    try:
        return _reader(path)
    except ValueError:
        pass  # tantivy writes a lock; perhaps it may not
    with TemporaryDirectory(prefix="envgen-index-") as copy:
        for file in path.iterdir():
            shutil.copyfile(file, Path(copy, file.name))
        try:
            return _reader(Path(copy))
        except ValueError:
            return None


def _reader(folder: Path) -> Index:
    """The index of a folder that is not needed any more: its files are mapped."""
    index = Index.open(str(folder))
    index.config_reader("manual")
    index.searcher()
    return index


def _sum(folder: Path) -> str:
    """Hash of an index's files."""
    found = sha256()
    for path in sorted(folder.glob("[!.]*")):
        with path.open("rb") as file:
            found.update(f"{path.name} {file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()


def _is_whole(folder: Path) -> bool:
    try:
        return (folder / _SUM).read_text("ascii", errors="replace") == _sum(folder)
    except OSError:
        return False


def _build(corpus: Corpus, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        _write(corpus, temporary)
        (temporary / _SUM).write_text(_sum(temporary), "ascii")
        for file in temporary.iterdir():
            file.chmod(0o644)  # some are its user's alone
        try:
            temporary.rename(path)
        except OSError:
            if _opened(path) is None:  # else another process was quicker
                shutil.rmtree(path)
                temporary.rename(path)
    except ValueError as error:
        raise StoreError(f"can't build the index {path}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(corpus: Corpus, folder: Path) -> None:
    builder = SchemaBuilder().add_text_field(_WORDS, tokenizer_name=_WORDS, index_option="freq")
    index = Index(builder.add_unsigned_field(_NUMBER, fast=True).build(), str(folder))
    # Not tantivy's own analyzer, which drops words of more than 40 bytes.
    words = TextAnalyzerBuilder(Tokenizer.whitespace()).build()
    index.register_tokenizer(_WORDS, words)
    writer = index.writer(_HEAP_BYTES, num_threads=1)
    for number, name in enumerate(corpus.ids):
        page = corpus.page(name)
        assert page is not None
        document = Document()
        document.add_unsigned(_NUMBER, number)
        document.add_text(_WORDS, " ".join(terms(page.title) * TITLE_WEIGHT + terms(page.text)))
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()

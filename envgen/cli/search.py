"""Corpora: build, search and describe them; and questions over them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from envgen.cli.command import Command, Makes, Parallel
from envgen.cli.console import remark, require, say
from envgen.cli.records import show_record, show_rows, write_json
from envgen.core.errors import ConfigError
from envgen.core.limits import Json, Label, Line
from envgen.core.types import Id
from envgen.pipelines.search.config import Kind, SearchConfig
from envgen.store.corpus_engines import Engine


class SearchCommand(Parallel, SearchConfig, Makes):
    """Ask questions that have one answer in a corpus, each proven by counting in it.

    Needs no model. A question joins clues that only one entity fits, and none of them can be left out.
    """

    names = {"--option NAME=VALUE": "options"}
    examples = (
        "envgen generate search --corpus corpus/ --out qa/",
        "envgen generate search --corpus corpus/ --questions 500 --depth 1..4 --out qa/",
        "envgen generate search --writer SPEC --answerers SPEC --verifier SPEC -o qa/",
        "envgen generate search --kind open --writer A --answerers B --verifier C -o o/",
    )
    verb = "envgen.pipelines.search.generate:generate_search"

    writer: Line = ""
    """The model that explores the corpus and writes questions, as --policy names one. With it, questions are
    not drawn from facts: models write, answer and verify them."""
    answerers: Line = ""
    """Models that answer, several with commas between: MODEL#plain has no tools. A question that one of them
    gets right is too easy."""
    verifier: Line = ""
    """The model that checks every answer in the documents, clue by clue."""
    kind: Kind = "exact"
    """exact: one short answer. open: a report, which the verifier as a judge scores by a rubric."""
    options: dict[Label, Json] = Field(default_factory=dict)
    """Settings of all models' clients, such as api_key_env=NAME."""
    passes: int = Field(default=3, ge=1, le=20)
    """Times that each answer is verified."""
    attempts: int = Field(default=3, ge=1, le=100)
    """Questions begun for each one that is asked for."""
    rewrites: int = Field(default=2, ge=0, le=10)
    """Times that a question is made shorter and harder."""
    allow_private: bool = False
    """On the web, read pages of private networks, too."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    """What all models together may cost; they need a price."""
    concurrency: int = Field(default=8, ge=1, le=1_024)
    """Questions worked on by models at the same time."""
    preflight: bool = True
    """Ask each model's server one small thing before the work begins."""

    def call(self, more: Mapping[str, Any]) -> Any:
        """Draw questions, or let models write them."""
        if self.kind == "open" and not self.writer:
            raise ConfigError(
                "models write open questions and judge their answers",
                "name them: --writer SPEC --answerers SPEC,SPEC#plain --verifier SPEC",
            )
        if not (self.writer or self.answerers or self.verifier):
            return super().call(more)
        from envgen.pipelines.search.agents import estimate, generate_written
        from envgen.pipelines.search.config import WrittenConfig

        held = {name: getattr(self, name) for name in WrittenConfig.model_fields}
        config = WrittenConfig.model_validate(held)
        need = estimate(config)
        cost = f", {need.cost_usd:.2f} USD" if need.cost_usd else ""
        remark(f"all attempts together need at most about {need.prompt_tokens:,} tokens{cost}")
        return generate_written(
            config, self.out,
            max_cost_usd=self.max_cost_usd, concurrency=self.concurrency, check=self.preflight,
            workers=self.workers, progress=more["progress"],
        )  # fmt: skip

    def tell(self, summary: Any) -> None:
        """Report when there are fewer questions than asked for."""
        super().tell(summary)
        why = (
            "models wrote no more that held"
            if self.writer
            else "the corpus gives no more of this form"
        )
        require(summary.tasks, self.questions, "questions made", why)


class ImportQuestions(Makes):
    """Make tasks of questions and answers that somebody else wrote, over a corpus.

    Fields are found by their usual names (question, query, problem, prompt; answer, answers, golden_answers,
    gold). Nothing is proven, so such tasks are played with --unproven.
    """

    places = {"FILE": "file"}
    examples = ("envgen import questions mine.jsonl --corpus corpus/ --out mine/",)
    verb = "envgen.pipelines.search.import_questions:import_questions"

    file: Path
    """Records: .jsonl, .json, .csv, .parquet."""
    corpus: Path | None = None
    """A corpus of `envgen corpus build`. None: the one in the package."""
    level: int = Field(default=1, ge=1, le=10)
    """Of all questions: nobody measured them."""


class BuildCorpus(Makes):
    """Make a corpus of files: a row of a table is a document, and its columns are facts.

    A table is a class of things, one a row; its column title, name or label (or the first) names them. A
    column whose values are titles of another table refers to it, so that questions can go through both. A
    line of JSONL is a document with its own facts; texts have none (docs/search.md).
    """

    places = {"SOURCES...": "sources"}
    examples = (
        "envgen corpus build films.csv directors.csv --title 'Films' --out corpus/",
        "envgen corpus build docs.jsonl --schema corpus.toml --out corpus/",
    )
    verb = "envgen.pipelines.search.sources:build_corpus"

    sources: tuple[Path, ...]
    """CSV, TSV, Parquet, SQLite, JSONL, Markdown, text or HTML files, or folders of them."""
    name: Id = "corpus"
    """The corpus's id."""
    title: Label = ""
    """What readers call it. Empty: its name."""
    date: Label = ""
    """As of when its documents speak."""
    licence: Label = "unknown"
    """Of its documents."""
    corpus_schema: Path | None = None
    """A TOML file with attributes, their phrases and sources."""

    names = {"--schema FILE": "corpus_schema"}

    def call(self, more: Any) -> Any:
        """Build, and describe what was built."""
        from envgen.pipelines.search.sources import describe

        corpus = super().call({**more, "schema": self.corpus_schema})
        return describe(corpus)

    def tell(self, summary: Any) -> None:
        """Show what the corpus holds."""
        show_corpus(summary)


class CorpusInfo(Command):
    """Describe a corpus, and let this user's datasets find it."""

    places = {"CORPUS": "corpus"}
    examples = ("envgen corpus info corpus/",)

    corpus: Path
    """Its file or folder."""

    def execute(self) -> None:
        """Open it, which checks every byte; remember it; describe it."""
        from envgen.pipelines.search.sources import describe
        from envgen.store.corpus import Corpus

        corpus = Corpus(self.corpus)
        corpus.remember()
        summary = describe(corpus)
        write_json(self.figures, summary)
        show_corpus(summary)


class CorpusSearch(Command):
    """Search a corpus as an agent does."""

    places = {"CORPUS": "corpus", "QUERY": "query"}
    names = {"-k --results": "k"}
    examples = ('envgen corpus search corpus/ "directed by" -k 5',)

    corpus: Path
    """Its file or folder."""
    query: Line
    """What to search for."""
    k: int = Field(default=5, ge=1, le=20)
    """Results of a page."""
    page: int = Field(default=1, ge=1, le=10)
    """Which page of results."""
    engine: Engine = "fts5"
    """What searches: SQLite's fts5, or tantivy."""

    def execute(self) -> None:
        """Show the results."""
        from envgen.environments.search import open_corpus, results
        from envgen.store.corpus import Corpus

        corpus = Corpus(self.corpus)
        corpus.remember()
        found = results(open_corpus(corpus.hash, self.engine), self.query, self.k, self.page)
        write_json(self.figures, found)
        rows = [(one["id"], one["title"], one["snippet"]) for one in found if isinstance(one, dict)]
        show_rows(("document", "title", "snippet"), rows, title=self.query)
        if not rows:
            say("nothing found")


def show_corpus(summary: dict[str, Any]) -> None:
    """Print what a corpus holds."""
    show_record({name: one for name, one in summary.items() if name != "attributes"})
    rows = [
        (one["attribute"], one["kind"], one["facts"], one["values"])
        for one in summary["attributes"]
    ]
    show_rows(("attribute", "kind", "facts ", "values "), rows)

"""Questions over a corpus: drawn, worded, and kept if every gate holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import get_args

from envgen.core.errors import ConfigError, PipelineError
from envgen.core.seeding import rng
from envgen.environments.search import CorpusNote, OpenCorpus
from envgen.pipelines.assemble import AssembleSummary, TaskDraft, assemble
from envgen.pipelines.search.config import SearchConfig, bounds
from envgen.pipelines.search.draw import SIZES, draw_question
from envgen.pipelines.search.questions import FactTable, SearchQuestion, Shape
from envgen.pipelines.search.tasks import task_of
from envgen.sandboxes.zygote import WorkerBackend
from envgen.store.corpus import Corpus
from envgen.store.corpus_engines import Engine
from envgen.store.corpus_lines import package_corpus

Progress = Callable[[int, int, str], None]
_SPARE = 2.0
"""Questions drawn for each one that is asked for; gates refuse some."""
_GIVE_UP = 20
"""Fruitless draws in a row of one form, after which the corpus has no more of it."""


def generate_search(
    config: SearchConfig,
    out: str | Path,
    *,
    workers: int | None = None,
    backend: WorkerBackend = "auto",
    progress: Progress | None = None,
) -> AssembleSummary:
    """Generate a dataset of search questions at ``out``.

    Args:
        config: what to ask, of which corpus.
        out: the dataset folder; it must not exist.
        workers: processes that prove; default: one per core. The bytes don't depend on it.
        backend: as other families have it; nothing runs that needs a sandbox.
        progress: called as questions are drawn and proven.

    Raises:
        ConfigError: if ``out`` exists.
        PipelineError: if the corpus gives no question of the forms asked for.
    """
    out = Path(out)
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists", "choose another --out, or remove it")
    opened = corpus_of(config)
    table = FactTable.of(opened.corpus)
    drafts = list(_drafts(config, table, opened, progress))
    if not drafts:
        raise PipelineError(
            "the corpus gives no such question",
            "it takes entities that share values: see docs/search.md, or ask for less --depth and --breadth",
        )
    return assemble(
        config, out, drafts, name="search", seed=config.seed, most=config.questions,
        workers=workers, backend=backend, progress=progress,
    )  # fmt: skip


def corpus_of(config: SearchConfig) -> OpenCorpus:
    """The corpus of a configuration, with its index."""
    corpus = package_corpus() if config.corpus is None else Corpus(config.corpus)
    corpus.remember()
    if config.engine not in get_args(Engine):
        raise ConfigError(
            f"questions are drawn from facts of a corpus, not of {config.engine!r}",
            "name models that write them: --writer, --answerers, --verifier",
        )
    return CorpusNote(corpus=corpus.hash, engine=config.engine).open()


def _drafts(
    config: SearchConfig, table: FactTable, opened: OpenCorpus, progress: Progress | None
) -> Iterator[TaskDraft]:
    """Tasks to prove, evenly over the forms asked for, none asked twice and no entity asked too often."""
    wanted = round(config.questions * _SPARE) + 1
    forms = list(product(config.language.split(","), bounds(config.depth), bounds(config.breadth)))
    fruitless: Counter[tuple[str, int, int]] = Counter()
    uses: Counter[str] = Counter()
    most_uses = max(2, config.questions // 50)
    seen: set[str] = set()
    done = number = 0
    for form in cycle(forms):
        if done == wanted or all(fruitless[one] >= _GIVE_UP for one in forms):
            return
        if fruitless[form] >= _GIVE_UP:
            continue
        number += 1
        language, depth, breadth = form
        draws = rng(config.seed, "question", number)
        question = None
        for shape in dict.fromkeys((_shape(config, number), _known(config)[0])):
            question = question or draw_question(
                table, draws, depth=depth, breadth=breadth, language=language, shape=shape
            )
        if question is None or _same(question) in seen or _tired(question, uses, most_uses):
            fruitless[form] += 1
            continue
        try:
            draft = task_of(question, table, opened)
        except PipelineError:
            fruitless[form] += 1
            continue
        fruitless[form] = 0
        seen.add(_same(question))
        uses.update(question.evidence)
        done += 1
        if progress:
            progress(done, 2 * wanted, "drawn")
        yield draft


def _known(config: SearchConfig) -> list[Shape]:
    return [one for one in SIZES if one in config.shapes.split(",")]


def _shape(config: SearchConfig, number: int) -> Shape:
    """The shape of a draw: six of ten are about one entity, the others take turns."""
    known = _known(config)
    others = [one for one in known if one != "one"]
    if not others or "one" not in known:
        return known[number % len(known)]
    tens, place = divmod(number, 10)
    if place not in _OTHERS:
        return "one"
    return others[(len(_OTHERS) * tens + _OTHERS.index(place)) % len(others)]


_OTHERS = (1, 4, 7, 8)
"""Of ten draws, those that are not about one entity."""


def _same(question: SearchQuestion) -> str:
    """What two questions share that ask the same, in whatever words and order."""
    clauses = sorted(one.model_dump_json() for one in question.query.clauses)
    asked = (question.language, question.shape, question.ask, question.by, question.query.kind)
    return f"{asked} {clauses}"


def _tired(question: SearchQuestion, uses: Counter[str], most: int) -> bool:
    """Whether an entity was asked about too often: one that dominates would teach its name."""
    return any(uses[one] >= most for one in question.evidence)

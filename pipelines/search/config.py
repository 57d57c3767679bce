"""What search questions to generate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field

from envgen.core.limits import Json, Label, Line, Whole
from envgen.core.types import Record
from envgen.pipelines.search.draw import SIZES
from envgen.pipelines.search.questions import MAX_DEPTH
from envgen.store.corpus_engines import Engine

MAX_BREADTH = 6
LANGUAGES = ("en", "zh")
WEB_ENGINES = ("searxng", "serper", "tavily", "brave")


def bounds(text: str) -> range:
    """``"2"`` or ``"1..4"`` as a range.

    Raises:
        ValueError: if it is neither.
    """
    found = re.fullmatch(r"([1-9])(?:\.\.([1-9]))?", text)
    if found is None or int(found[1]) > int(found[2] or found[1]):
        raise ValueError(f"write one number or a range such as 1..4, not {text[:40]!r}")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def _depth(text: str) -> str:
    if bounds(text)[-1] > MAX_DEPTH:
        raise ValueError(f"questions are at most {MAX_DEPTH} deep")
    return text


def _breadth(text: str) -> str:
    if not 2 <= bounds(text)[0] <= bounds(text)[-1] <= MAX_BREADTH:
        raise ValueError(f"questions have 2 to {MAX_BREADTH} clues")
    return text


def _languages(text: str) -> str:
    if unknown := [one for one in text.split(",") if one not in LANGUAGES]:
        raise ValueError(
            f"questions are worded in {' and '.join(LANGUAGES)}, not in {unknown[0][:20]!r}"
        )
    return text


def _shapes(text: str) -> str:
    if unknown := [one for one in text.split(",") if one not in SIZES]:
        raise ValueError(f"shapes are {', '.join(SIZES)}, not {unknown[0][:20]!r}")
    return text


Depth = Annotated[Label, AfterValidator(_depth)]
Breadth = Annotated[Label, AfterValidator(_breadth)]
Languages = Annotated[Label, AfterValidator(_languages)]


def _engine(text: str) -> str:
    if text in get_args(Engine) or text.partition(":")[0].partition("@")[0] in WEB_ENGINES:
        return text
    known = ", ".join((*get_args(Engine), *WEB_ENGINES))
    raise ValueError(f"search engines are {known}, not {text[:40]!r}")


SearchEngine = Annotated[Line, AfterValidator(_engine)]


class SearchConfig(Record):
    """Which questions, over which corpus."""

    family: ClassVar[str] = "search"
    corpus: Path | None = None
    """A corpus of `envgen corpus build`: its file or folder. None: the one in the package."""
    questions: int = Field(default=60, ge=1, le=100_000)
    """How many."""
    depth: Depth = "1..3"
    """Documents behind one another: a clue's value is replaced by clues that identify it."""
    breadth: Breadth = "2..4"
    """Clues about what is asked for."""
    language: Languages = "en"
    """Languages of the questions: en, zh or en,zh."""
    shapes: Annotated[Label, AfterValidator(_shapes)] = "one,set,count,least,most,none"
    """What is asked of those that fit: about the one, for all, how many, the one with the least or most of
    something; or nothing fits. Six questions of ten are about one."""
    engine: SearchEngine = "fts5"
    """What proves that no single search shows an answer, and what agents search with: fts5, or tantivy
    (pip install 'envgen-gym[search]'), which is faster with whole questions over large corpora. With --writer
    also the live web: searxng:URL, serper, tavily or brave; the corpus gives topics, pages that agents read
    are kept, and episodes play over them."""
    seed: Whole = 0
    """The same seed, corpus and options give the same questions."""


Kind = Literal["exact", "open"]
"""One short answer, or a report that a judge scores by a rubric."""


class WrittenConfig(Record):
    """Which questions, and who writes, answers and verifies them."""

    family: ClassVar[str] = "search"
    corpus: Path | None = None
    questions: int = Field(default=60, ge=1, le=100_000)
    depth: Depth = "2"
    breadth: Breadth = "3"
    language: Languages = "en"
    engine: SearchEngine = "fts5"
    seed: Whole = 0
    writer: Line = ""
    answerers: Line = ""
    verifier: Line = ""
    options: dict[Label, Json] = Field(default_factory=dict)
    passes: int = Field(default=3, ge=1, le=20)
    attempts: int = Field(default=3, ge=1, le=100)
    rewrites: int = Field(default=2, ge=0, le=10)
    allow_private: bool = False
    kind: Kind = "exact"

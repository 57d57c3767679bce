"""Corpora as text: documents as lines of JSON, and the TOML file that says what their attributes are.

The corpus in the package is stored so, and made into a file of the user's cache folder when it is first used.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from envgen.core import toml
from envgen.core.errors import ConfigError
from envgen.core.limits import Label, Language, fault
from envgen.core.types import Record
from envgen.store.corpus import (
    AttributeKey,
    AttributeSpec,
    Corpus,
    CorpusDocument,
    CorpusHeader,
    Name,
    SourceNote,
    known_place,
    write_corpus,
)

DATA = Path(__file__).parent / "data"
PACKAGE_CORPUS = "c4f37a091c165fe046b5d341c3edcef30722f65df872b737cdea6c91801198b6"
"""Hash of the corpus in the package."""


class CorpusSchema(Record):
    """A TOML file that says what a corpus's attributes are, and how questions word them."""

    corpus: dict[Name, Label] = Field(default_factory=dict)
    """``name``, ``title`` and ``date``."""
    source: tuple[SourceNote, ...] = ()
    classes: dict[Name, dict[Language, Label]] = Field(default_factory=dict)
    attribute: dict[AttributeKey, AttributeSpec] = Field(default_factory=dict)

    def header(self) -> CorpusHeader:
        """The header of a corpus that is nothing but this."""
        return CorpusHeader(
            name=self.corpus.get("name", "corpus"),
            title=self.corpus.get("title", ""),
            date=self.corpus.get("date", ""),
            sources=self.source,
            classes=self.classes,
            attributes=self.attribute,
        )


def read_schema(path: str | Path) -> CorpusSchema:
    """The schema in a TOML file.

    Raises:
        ConfigError: naming what is wrong in it.
    """
    try:
        return CorpusSchema.model_validate(toml.loads(Path(path).read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ConfigError(f"{str(path)!r}: {fault(error)}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}") from error


def parse_lines(lines: Iterable[bytes], path: Path) -> Iterator[CorpusDocument]:
    """The documents in lines of JSON.

    Raises:
        ConfigError: naming the line that is wrong.
    """
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield CorpusDocument.model_validate_json(line)
        except ValidationError as error:
            raise ConfigError(f"{path}, line {number}: {fault(error)}") from error


def package_corpus() -> Corpus:
    """The corpus in the package, made in the user's cache folder the first time.

    Raises:
        StoreError: if the disk is full.
    """
    place = known_place(PACKAGE_CORPUS)
    if place.exists():
        return Corpus(place)
    file = DATA / "corpus.jsonl.xz"
    with lzma.open(file) as lines:
        documents = parse_lines(lines, file)
        return write_corpus(place.parent, read_schema(DATA / "corpus.toml").header(), documents)

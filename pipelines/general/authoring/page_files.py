"""Pages as people write them: a page in TOML, and beside it a lexicon file with further ways to say things.

``my.toml`` may stand alone. What ``my.lexicon.toml`` says is added to the page before it is checked, so
that a ``Domain``, and what a dataset stores of it, holds both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field, ValidationError

from envgen.core import toml
from envgen.core.errors import ConfigError
from envgen.core.types import Record
from envgen.pipelines.general.authoring.page import (
    Domain,
    Frame,
    Ident,
    Sentences,
    Unit,
    page_error,
)

LEXICON = ".lexicon.toml"
"""How the name of a lexicon file ends; it begins like its page's."""
_Texts = Annotated[Sentences, Field(min_length=1)]


class LexiconFile(Record):
    """Further ways to say what a page says: each has the holes of the first and means the same."""

    phrases: Annotated[dict[Ident, _Texts], Field(max_length=64)] = {}
    openings: Annotated[dict[Ident, _Texts], Field(max_length=16)] = {}
    """Scene -> openings."""
    openings_one: Annotated[dict[Ident, _Texts], Field(max_length=16)] = {}
    """Scene -> openings where there is a single item."""
    units: Annotated[dict[Unit, _Texts], Field(max_length=64)] = {}
    frames: dict[Frame, _Texts] = {}


def read_page(text: str, lexicon: str = "") -> Domain:
    """The domain that a page in TOML describes, with its lexicon file's texts.

    Raises:
        ConfigError: if a text is no TOML, or says something that a domain can't hold.
    """
    found = _toml(text, "the page")
    try:
        domain = Domain.model_validate(found)
    except ValidationError as error:
        raise page_error(error, found) from None
    return _with_lexicon(domain, lexicon) if lexicon else domain


def is_package_page(domain: Domain) -> bool:
    """Whether this very page is the package's."""
    own = packaged(domain.id)
    return own is not None and own.key == domain.key


@cache
def packaged(name: str) -> Domain | None:
    """The page ``name`` in the package, with its lexicon file; None if there is none."""
    folder = files("envgen.pipelines.general.domains")
    page, lexicon = folder / f"{name}.toml", folder / f"{name}{LEXICON}"
    if not page.is_file():
        return None
    text = lexicon.read_text(encoding="utf-8") if lexicon.is_file() else ""
    return read_page(page.read_text(encoding="utf-8"), text)


def _toml(text: str, what: str) -> dict[str, Any]:
    try:
        return toml.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what} is not valid TOML: {error}", "fix that line") from None


def _with_lexicon(domain: Domain, text: str) -> Domain:
    """``domain`` with the texts of its lexicon file behind its own."""
    found = _toml(text, f"domain {domain.id!r}: the lexicon file")
    try:
        file = LexiconFile.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(
            f"domain {domain.id!r}, lexicon file, {place}: {first['msg']}",
            "write name = a text, or a list, in [phrases], [openings], [openings_one], [units] or [frames]",
        ) from None
    page = domain.model_dump(mode="json", exclude_defaults=True)
    _append(domain, page["phrases"], "texts", "phrases", file.phrases)
    _append(domain, page["scenes"], "opening", "openings", file.openings)
    _append(domain, page["scenes"], "opening_one", "openings_one", file.openings_one)
    unknown = sorted(set(file.units) - set(domain.units))
    if unknown:
        raise _unknown(domain, "units", unknown[0], domain.units)
    more: tuple[tuple[str, Mapping[str, Sequence[str]]], ...] = (
        ("more_units", {**file.units}),
        ("frames", {str(name): texts for name, texts in file.frames.items()}),
    )
    for field, texts_of in more:
        own = page.get(field, {})
        page[field] = own | {name: [*own.get(name, ()), *t] for name, t in texts_of.items()}
    try:
        return Domain.model_validate(page)
    except ValidationError as error:
        raise page_error(error, page) from None


def _append(
    domain: Domain,
    parts: dict[str, Any],
    field: str,
    section: str,
    texts_of: Mapping[str, Sequence[str]],
) -> None:
    """Put the texts of a section of the lexicon file behind those of the page."""
    for name, texts in texts_of.items():
        if name not in parts:
            raise _unknown(domain, section, name, parts)
        parts[name][field] = [*parts[name].get(field, ()), *texts]


def _unknown(domain: Domain, section: str, name: str, known: Mapping[str, Any]) -> ConfigError:
    near = get_close_matches(name, known) or sorted(known)
    return ConfigError(
        f"domain {domain.id!r}, lexicon file: [{section}] has texts for {name!r}, which the page lacks",
        f"the page has: {', '.join(near)}",
    )

"""The domains in the package, one page each, and pages from elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from envgen.core.errors import ConfigError
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.page_files import LEXICON, packaged, read_page
from envgen.pipelines.general.authoring.tasks import Tasks, tasks_from

DOMAINS = (
    "inventory",
    "itops",
    "meetings",
    "menu",
    "orders",
    "reconciliation",
    "timetable",
    "trip",
)
"""Names of the package's pages."""
DEMOS = ("rooms",)
"""Pages that teach one skill of one level, for training demos."""
WRITTEN = (
    "climbing-gym-routes",
    "coin-collection-identification",
    "food-bank-distribution",
    "gas-meter-exchanges",
    "mediation-panels",
    "train-platforming",
    "youth-camp-groups",
)
"""Pages of five levels that language models wrote (``docs/models.md``), after every gate, a reader, and a
blind audit; some columns were mended by hand."""
MAX_PAGE = 200_000
"""Bytes of a page, or of a lexicon file."""


@cache
def page(domain: str) -> Domain:
    """The page of ``domain`` in the package.

    Raises:
        ConfigError: if there is no such domain.
    """
    known = DOMAINS + DEMOS + WRITTEN
    found = packaged(domain) if domain in known else None
    if found is None:
        raise ConfigError(f"unknown domain {domain!r}", f"known: {', '.join(known)}")
    return found


def load_tasks(domain: str) -> Tasks:
    """Load what makes the tasks of a domain in the package.

    Raises:
        ConfigError: if there is no such domain.
    """
    return tasks_from(page(domain).text)


def page_file(path: str | Path) -> Domain:
    """The page in a TOML file, with the lexicon file beside it if there is one (``my.lexicon.toml``).

    Raises:
        ConfigError: if a file can't be read, or holds no page or lexicon.
    """
    page = Path(path)
    lexicon = page.with_name(page.name.removesuffix(".toml") + LEXICON)
    lexicon_text = _text(lexicon) if page.suffix == ".toml" and lexicon.exists() else ""
    return read_page(_text(page), lexicon_text)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PAGE + 1)
        if len(content) > MAX_PAGE:
            raise ConfigError(f"{str(path)!r} is longer than {MAX_PAGE} bytes", "no page is")
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "give the path of a page in TOML (docs/domains.md)"
        raise ConfigError(f"{str(path)!r} can't be read: {error}", hint) from None

"""The domains in the package, one page each, and pages from elsewhere."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from envgen.core.errors import ConfigError
from envgen.pipelines.general.authoring.page import Domain, page_error
from envgen.pipelines.general.authoring.tasks import Tasks, tasks_from

DOMAINS = ("meetings", "orders", "timetable", "trip")
"""Names of the package's pages."""
MAX_PAGE = 200_000
"""Bytes of a page."""


@cache
def page(domain: str) -> Domain:
    """The page of ``domain`` in the package.

    Raises:
        ConfigError: if there is no such domain.
    """
    if domain not in DOMAINS:
        raise ConfigError(f"unknown domain {domain!r}", f"known: {', '.join(DOMAINS)}")
    return read_page((files(__package__) / f"{domain}.toml").read_text(encoding="utf-8"))


def load_tasks(domain: str) -> Tasks:
    """Load what makes the tasks of a domain in the package.

    Raises:
        ConfigError: if there is no such domain.
    """
    return tasks_from(page(domain).text)


def page_file(path: str | Path) -> Domain:
    """The page in a TOML file.

    Raises:
        ConfigError: if the file can't be read, or holds no page.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_PAGE + 1)
        if len(content) > MAX_PAGE:
            raise ConfigError(f"{str(path)!r} is longer than {MAX_PAGE} bytes", "no page is")
        return read_page(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        hint = "give the path of a page in TOML (docs/domains.md)"
        raise ConfigError(f"{str(path)!r} can't be read: {error}", hint) from None


def read_page(text: str) -> Domain:
    """The domain that a page in TOML describes.

    Raises:
        ConfigError: if the text is no TOML, or says something that a domain can't hold.
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"the page is no TOML: {error}", "mend that line") from None
    try:
        return Domain.model_validate(found)
    except ValidationError as error:
        raise page_error(error, found) from None

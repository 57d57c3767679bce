"""The domains in the package, one page each."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from pydantic import ValidationError

from envgen.core.errors import ConfigError
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.tasks import Tasks

DOMAINS = ("meetings", "orders", "trip")
"""Names of the pages."""


@cache
def load_tasks(domain: str) -> Tasks:
    """What makes tasks of ``domain``.

    Raises:
        ConfigError: if there is no such domain.
    """
    if domain not in DOMAINS:
        raise ConfigError(f"unknown domain {domain!r}", f"known: {', '.join(DOMAINS)}")
    text = (files(__package__) / f"{domain}.toml").read_text(encoding="utf-8")
    return Tasks(read_page(text))


def read_page(text: str) -> Domain:
    """The domain that a page in TOML describes.

    Raises:
        ConfigError: if the text is no TOML, or says something that a domain can't hold.
    """
    try:
        return Domain.model_validate(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"the page is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"the page is no domain: {place}: {first['msg']}") from None

"""Repositories that are named only: fetch their history and their issues, filter and mine them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from envgen.core.code_types import Instance
from envgen.core.errors import ConfigError, EnvgenError, PipelineError
from envgen.pipelines.code.fetch import RepositoryFilter, fetch_texts, is_name, repository_facts
from envgen.pipelines.code.github import ExhaustedError, GitHub, TokenError
from envgen.pipelines.code.mine import MineConfig, Rejected, mine_clone
from envgen.pipelines.code.mirror import mirror
from envgen.pipelines.code.statement import Texts

logger = logging.getLogger(__name__)


class Source(NamedTuple):
    """A repository that can be mined."""

    repo: str
    clone: Path
    texts: tuple[Path, ...] = ()
    """Files of issues and pull requests."""


class Refused(NamedTuple):
    """A repository that can't be mined, or is not worth it."""

    repo: str
    reason: str


def read_names(path: Path) -> tuple[str, ...]:
    """The repositories that a file names, one ``owner/name`` a line; ``#`` starts a comment.

    Raises:
        ConfigError: if the file can't be read, a line is none, or there is none.
    """
    names: list[str] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}", "check the path") from None
    for i, line in enumerate(text.split("\n"), 1):
        name = line.partition("#")[0].strip()
        if name and not is_name(name):
            raise ConfigError(f"{path}:{i}: {name!r} is not a repository", "write owner/name")
        names += [name] if name else []
    if not names:
        raise ConfigError(f"{str(path)!r} lists no repositories", "write owner/name, one a line")
    return tuple(dict.fromkeys(names))


def fetch_sources(
    client: GitHub,
    repos: Sequence[str],
    folder: Path,
    *,
    wanted: RepositoryFilter | None = None,
    since: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Source | Refused]:
    """Bring each repository's clone and issues up to date, below ``folder/owner/name``.

    A repository that fails is refused with its reason, and the next one comes.

    Raises:
        TokenError: if the API refuses the token: then all would fail.
        ExhaustedError: if the rate limit is spent for longer than the client waits.
    """
    for repo in repos:
        try:
            progress(f"{repo}: asking what it is")
            facts = repository_facts(client, repo)
            reasons = list((wanted or RepositoryFilter()).reasons(facts))
            if reasons:
                yield Refused(repo, "; ".join(reasons))
                continue
            place = folder / facts.full_name
            progress(f"{repo}: fetching its history")
            clone = mirror(facts.clone_url, place / "clone.git", token=client.token)
            progress(f"{repo}: fetching its issues")
            texts = fetch_texts(client, facts.full_name, place / "texts", since=since)
            yield Source(facts.full_name, clone, (texts,))
        except (TokenError, ExhaustedError):
            raise
        except EnvgenError as error:
            yield Refused(repo, str(error))


def mine_sources(
    sources: Sequence[Source], config: MineConfig
) -> Iterator[tuple[Source, Instance | Rejected]]:
    """The instances of each repository, by one configuration; its ``repo`` is replaced."""
    for source in sources:
        own = config.model_copy(update={"repo": source.repo})
        try:
            for found in mine_clone(source.clone, own, texts=Texts.load(*source.texts)):
                yield source, found
        except (PipelineError, ConfigError) as error:
            logger.warning("%s is left out: %s", source.repo, error)

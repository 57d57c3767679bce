"""Categories of environments: those of the package, those of a user's file, and draws from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints, ValidationError

from envgen.core.errors import ConfigError
from envgen.core.limits import fault
from envgen.core.seeding import rng
from envgen.core.types import Record

MAX_BYTES = 1 << 22
MAX_CATEGORIES = 5_000
"""Of one file. Each is compared with all drawn before: to draw so many takes half a minute."""
ALIKE = 0.5
"""Two texts with a greater Jaccard similarity of words are near duplicates."""
_STOP_WORDS = frozenset("a an and at by for from in into of on or the to with".split())
_HINT = 'write {"id": ..., "name": ..., "area": ..., "about": ..., "state": ..., "hard": ...}'

Kebab = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Title = Annotated[str, StringConstraints(pattern=r"^\S[^\x00-\x1f\x7f]*$", max_length=200)]
Sentence = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=1_000)]


class Category(Record):
    """A kind of work that an environment can be about."""

    id: Kebab
    name: Title
    area: Kebab = "other"
    """Draws are spread over areas."""
    about: Sentence = ""
    """What the agent is asked to do."""
    state: Sentence = ""
    """Which rows the database holds, and how they refer to each other."""
    hard: Sentence = ""
    """What makes it hard."""


@cache
def categories() -> tuple[Category, ...]:
    """The categories in the package."""
    text = files(__package__).joinpath("data", "categories.jsonl").read_text(encoding="utf-8")
    return tuple(Category.model_validate_json(line) for line in text.splitlines())


def load_categories(path: Path) -> tuple[Category, ...]:
    """The categories of a ``.jsonl`` file, or of a ``.txt`` file with a name a line (``#`` starts a comment).

    Raises:
        ConfigError: if the file can't be read, is empty or too large, or a line is wrong.
    """
    if path.suffix not in (".jsonl", ".txt"):
        raise ConfigError(f"{str(path)!r} is no file of categories", "give a .jsonl or .txt file")
    found: list[Category] = []
    known: dict[str, int] = {}
    for number, line in _lines(path):
        where = f"{str(path)!r}, line {number}"
        try:
            named = path.suffix == ".txt"
            one = _named(line, number, known) if named else Category.model_validate_json(line)
        except ValidationError as error:
            raise ConfigError(f"{where}: {fault(error)}", _HINT) from error
        for key in (one.id, f"name {one.name.casefold()}"):
            if key in known:
                raise ConfigError(f"{where}: {one.name!r} repeats line {known[key]}", "remove one")
            known[key] = number
        found.append(one)
        if len(found) > MAX_CATEGORIES:
            raise ConfigError(f"{where}: more than {MAX_CATEGORIES} categories", "split the file")
    if not found:
        raise ConfigError(f"{str(path)!r} holds no category", "write one a line")
    return tuple(found)


def sample(found: Sequence[Category], n: int, seed: int) -> tuple[Category, ...]:
    """Draw categories area by area, in an order that the seed decides, without near duplicates.

    Raises:
        ConfigError: if ``n`` is below 1, or there are fewer that differ enough.
    """
    if n < 1:
        raise ConfigError(f"{n} categories can't be drawn", "draw one at least")
    areas = sorted({one.area for one in found})
    rng(seed, "areas").shuffle(areas)
    queues = [[one for one in found if one.area == area] for area in areas]
    for area, queue in zip(areas, queues, strict=True):
        rng(seed, "area", area).shuffle(queue)
    drawn: dict[Category, _Words] = {}
    while any(queues) and len(drawn) < n:
        for queue in queues:
            _draw(queue, drawn)
    if len(drawn) < n:
        raise ConfigError(
            f"{n} categories were asked for, but only {len(drawn)} of {len(found)} differ enough",
            "ask for fewer, or add categories",
        )
    return tuple(drawn)[:n]


def near_duplicates(a: Category, b: Category) -> bool:
    """Whether the names of two categories, or what they are about, share most of their words."""
    return _alike(_words(a), _words(b))


_Words = tuple[frozenset[str], frozenset[str]]
"""Of a name, and of what it is about."""


def _draw(queue: list[Category], drawn: dict[Category, _Words]) -> None:
    """Draw the last of a queue that is like none drawn; those behind it are dropped."""
    while queue:
        words = _words(one := queue.pop())
        if not any(_alike(words, other) for other in drawn.values()):
            drawn[one] = words
            return


def _words(one: Category) -> _Words:
    name, about = (
        {word.rstrip("s") for word in re.findall(r"\w+", text.casefold())} - _STOP_WORDS
        for text in (one.name, one.about)
    )
    return frozenset(name), frozenset(about)


def _alike(a: _Words, b: _Words) -> bool:
    for x, y in zip(a, b, strict=True):
        common = len(x & y)
        if common > ALIKE * (len(x) + len(y) - common):
            return True
    return False


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that hold something, with their numbers."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{str(path)!r} is larger than {MAX_BYTES >> 20} MiB", "split it")
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}", "give a text in UTF-8") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not (path.suffix == ".txt" and line.lstrip().startswith("#")):
            yield number, line.strip()


def _named(line: str, number: int, known: dict[str, int]) -> Category:
    """A category of which the name is known; an id that is taken gets the line's number."""
    name = " ".join(line.split())
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:48].strip("-") or "category"
    free = slug not in known and slug != "category"
    return Category(id=slug if free else f"{slug}-{number}", name=name)

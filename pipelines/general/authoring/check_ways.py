"""The ways to say one thing: the same holes as the first, and each reads back what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envgen.core.errors import ConfigError
from envgen.pipelines.general.authoring.page import Domain
from envgen.pipelines.general.authoring.senses import check_sense
from envgen.pipelines.general.authoring.statement import Blueprint
from envgen.pipelines.general.words.frames import FRAMES
from envgen.pipelines.general.words.lexicon import Lexicon, suffix
from envgen.pipelines.general.words.wording import Fields, Template

MAX_SENTENCES = 256
"""Wordings of phrases, and of openings: each is tried on what each other writes."""


def check_sentences(blueprint: Blueprint) -> None:
    """Everything has a text; there are not too many, and none reads what another writes.

    Raises:
        ConfigError: naming what has none, or the two that can't be told apart.
    """
    domain = blueprint.domain
    for what, name, texts in _all(domain):
        if not texts:
            raise ConfigError(
                f"{what} {name!r} has no text", "write one, here or in the lexicon file"
            )
    wordings = sum(len(rule.texts) for rule in domain.phrases.values())
    openings = sum(len(scene.opening) * scene.most for scene in domain.scenes.values())
    if max(wordings, openings) > MAX_SENTENCES:
        raise ConfigError(f"more than {MAX_SENTENCES} wordings", "write fewer")
    ways: dict[str, list[Template]] = {}
    for name, text in blueprint.openings():
        ways.setdefault(name.partition("~")[0], []).append(Template(text))
    for name, found in ways.items():
        _same_holes(f"opening {name!r}", found)
    assert blueprint.lexicon
    for name in FRAMES:
        _same_holes(f"frame {name!r}", [Template(text) for text in blueprint.lexicon.frames[name]])
    for unit, text in domain.units.items():
        found = [Template(one) for one in (text, *domain.more_units.get(unit, ()))]
        _same_holes(f"unit {unit!r}", found)


def _all(domain: Domain) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    yield from (("phrase", name, rule.texts) for name, rule in domain.phrases.items())
    yield from (("the opening of scene", name, s.opening) for name, s in domain.scenes.items())


def check_ways(blueprint: Blueprint, key: str, fields: Fields) -> None:
    """All ways to say the phrase ``key`` leave the same holes, are read back, and say what its rule means.

    Raises:
        ConfigError: naming the text that doesn't.
    """
    lexicon, rule = blueprint.lexicon, blueprint.domain.phrases[key]
    ways = [lexicon.phrase(key + suffix(i)).sentence for i in range(len(rule.texts))]
    _same_holes("it", ways)
    built = lexicon.phrase(key).build(fields)
    for way in ways:
        _read_back(lexicon, way, fields)
        check_sense(way.text, rule, built, fields)


def _same_holes(what: str, ways: list[Template]) -> None:
    for way in ways[1:]:
        if way.holes != ways[0].holes:
            lacks, adds = sorted(ways[0].holes - way.holes), sorted(way.holes - ways[0].holes)
            raise ConfigError(
                f"{what} is also said {way.text!r}, which has other holes than its first text: "
                f"it is missing {lacks} and adds {adds}",
                "put exactly the holes of the first text into it",
            )


def _read_back(lexicon: Lexicon, way: Template, fields: Fields) -> None:
    """``way`` is read as what it was written from."""
    stated: dict[str, Any] = {name: fields[name] for name in way.names if name in fields}
    params = way.sample_params(stated)
    text = way.render(stated, params, lexicon.words)
    reading = way.read(text, lexicon.words)
    if reading is None or (reading.fields, reading.params) != (stated, params):
        raise ConfigError(
            f"its text {way.text!r} is not read back as it was written: {text!r}",
            "put other words between its holes: a hole ends where the words after it come first",
        )

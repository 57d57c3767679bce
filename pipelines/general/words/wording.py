"""Sentence templates that can be read back: text with typed fields and parameters in it.

``{day}`` is a field (an int or a text), ``{city:text}`` a field with a type, ``{param:budget_{day}}`` the
value of the parameter whose name the fields complete, ``{param:open|clock}`` the same in a style.
Types and styles (``TYPES``) say how a value is written and read; both directions are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.ir import Scalar

Fields = Mapping[str, JsonValue]
Params = Mapping[str, Scalar]

_TOKEN = re.compile(
    r"\{param:(?P<param>(?:[^{}|]|\{\w+\})+)(?:\|(?P<style>\w+))?\}|\{(?P<name>\w+)(?::(?P<type>\w+))?\}"
)
_INT = r"-?(?:0|[1-9][0-9]*)"


@dataclass(frozen=True)
class Words:
    """The nouns of a language: how names of slots, columns and relations are written.

    ``slots`` maps a slot name pattern to a phrase with the same holes:
    ``{"hotel_{i}": "the hotel of day {i}"}``.
    """

    nouns: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[str, str] = field(default_factory=dict)
    conjunction: str = "and"

    def noun(self, name: str) -> str:
        """The word for ``name``; the name itself, with spaces for underscores, if there is none."""
        return self.nouns.get(name, name.replace("_", " "))

    def noun_name(self, word: str) -> str:
        """Inverse of ``noun``."""
        names = [name for name, text in self.nouns.items() if text == word]
        return names[0] if names else word.replace(" ", "_")

    def slot(self, name: str) -> str:
        """The phrase for a slot, e.g. "the hotel of day 2"."""
        for pattern, phrase in self.slots.items():
            if (match := _holes(pattern).fullmatch(name)) is not None:
                return phrase.format(**match.groupdict())
        return f"`{name}`"

    def slot_name(self, phrase: str) -> str:
        """Inverse of ``slot``."""
        for pattern, text in self.slots.items():
            if (match := _holes(text).fullmatch(phrase)) is not None:
                return pattern.format(**match.groupdict())
        return phrase.strip("`")

    def join(self, items: Sequence[str]) -> str:
        """One item, ``a and b``, or ``a, b and c``."""
        if len(items) <= 1:
            return "".join(items)
        return f"{', '.join(items[:-1])} {self.conjunction} {items[-1]}"

    def split(self, text: str) -> list[str]:
        """Inverse of ``join``."""
        head, _, last = text.rpartition(f" {self.conjunction} ")
        return [*head.split(", "), last] if head else [last]


def _holes(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", pattern)
    pieces = [re.escape(p) if i % 2 == 0 else f"(?P<{p}>[A-Za-z0-9]+)" for i, p in enumerate(parts)]
    return re.compile("".join(pieces))


@dataclass(frozen=True)
class FieldType:
    """How values of one type are written in a sentence and read from it."""

    regex: str
    write: Callable[[JsonValue, Words], str]
    read: Callable[[str, Words], JsonValue]
    samples: tuple[JsonValue, ...]


def _write_auto(value: JsonValue, _: Words) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"a field without a type holds an int or a text, not {value!r}")
    if isinstance(value, str) and re.fullmatch(_INT, value):
        raise ConfigError(
            f"the text {value!r} reads like a number; write the field as {{name:text}}"
        )
    return str(value)


def _read_auto(text: str, _: Words) -> JsonValue:
    return int(text) if re.fullmatch(_INT, text) else text


def _whole(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"an int was expected, not {value!r}")
    return value


def _text(value: JsonValue) -> str:
    if not isinstance(value, str) or not value or "\n" in value:
        raise ConfigError(f"a text of one line was expected, not {value!r}")
    return value


def _items(value: JsonValue) -> list[str]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"a list of texts was expected, not {value!r}")
    return [_text(item) for item in value]


def _clock(value: JsonValue, _: Words) -> str:
    minute = _whole(value)
    return f"{minute // 60:02d}:{minute % 60:02d} (minute {minute})"


def _tenths(value: JsonValue, _: Words) -> str:
    tenths = _whole(value)
    return f"{tenths} ({tenths // 10}.{tenths % 10})"


def _cents(value: JsonValue, _: Words) -> str:
    cents = _whole(value)
    return f"{cents} ({cents // 100}.{cents % 100:02d})"


TYPES: Mapping[str, FieldType] = {
    "auto": FieldType(r".+?", _write_auto, _read_auto, (7, "Xanadu")),
    "int": FieldType(_INT, lambda v, _: str(_whole(v)), lambda t, _: int(t), (7, -12)),
    "text": FieldType(r".+?", lambda v, _: _text(v), lambda t, _: t, ("Xanadu", "Ü 9, b")),
    "date": FieldType(r"\d{4}-\d{2}-\d{2}", lambda v, _: _text(v), lambda t, _: t, ("2025-10-01",)),
    "clock": FieldType(
        r"\d{2,}:\d{2} \(minute \d+\)",
        _clock,
        lambda t, _: int(t.rpartition(" ")[2].rstrip(")")),
        (540, 1005),
    ),
    "tenths": FieldType(
        r"\d+ \(\d+\.\d\)", _tenths, lambda t, _: int(t.partition(" ")[0]), (40, 7)
    ),
    "cents": FieldType(
        r"\d+ \(\d+\.\d{2}\)", _cents, lambda t, _: int(t.partition(" ")[0]), (4050, 7)
    ),
    "list": FieldType(
        r".+?",
        lambda v, w: w.join(_items(v)),
        lambda t, w: list[JsonValue](w.split(t)),
        (["Xa", "Yb"],),
    ),
    "word": FieldType(
        r".+?", lambda v, w: w.noun(_text(v)), lambda t, w: w.noun_name(t), ("xanadu_code",)
    ),
    "slot": FieldType(r".+?", lambda v, w: w.slot(_text(v)), lambda t, w: w.slot_name(t), ("s_1",)),
    "slots": FieldType(
        r".+?",
        lambda v, w: w.join([w.slot(item) for item in _items(v)]),
        lambda t, w: [w.slot_name(item) for item in w.split(t)],
        (["s_1", "s_2"],),
    ),
}
"""Field type or parameter style -> how it is written and read. A bare ``{name}`` is ``auto``."""


@dataclass(frozen=True)
class Reading:
    """What a sentence says: its fields, and the parameters it states."""

    fields: dict[str, JsonValue]
    params: dict[str, Scalar]


@dataclass(frozen=True)
class Template:
    """One sentence with holes; ``render`` and ``read`` are inverse."""

    text: str

    def __post_init__(self) -> None:
        if "\n" in self.text or self.text != self.text.strip() or not self.text:
            raise ConfigError(f"a template is one trimmed, non-empty line: {self.text!r}")
        for match in _TOKEN.finditer(self.text):
            kind = match["style"] or match["type"] or "auto"
            if kind not in TYPES:
                raise ConfigError(
                    f"unknown field type {kind!r} in {self.text!r}; have {list(TYPES)}"
                )
        if re.search(r"[{}]", _TOKEN.sub("", self.text)):
            raise ConfigError(f"stray brace in {self.text!r}")
        if re.search(r"\0\0", _TOKEN.sub("\0", self.text)):
            raise ConfigError(f"two holes touch in {self.text!r}", "write a word between them")

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the fields, those that only complete a parameter's name included."""
        names = {m["name"] for m in _TOKEN.finditer(self.text) if m["name"]}
        return frozenset(names)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Reads in time linear in the text: a hole ends where what stands after it comes first.

        Each hole is an atomic group with the words after it, so that no later failure makes it longer.
        """
        tokens, seen = list(_TOKEN.finditer(self.text)), set[str]()
        starts = [match.start() for match in tokens] + [len(self.text)]
        parts = [re.escape(self.text[: starts[0]])]
        for i, match in enumerate(tokens):
            name, kind = match["name"], TYPES[match["style"] or match["type"] or "auto"]
            group = f"f_{name}" if name else f"p_{i}"
            hole = f"(?P=f_{name})" if name and name in seen else f"(?P<{group}>{kind.regex})"
            seen.add(name)
            after = re.escape(self.text[match.end() : starts[i + 1]])
            parts.append(f"(?>{hole}{after})" if i < len(tokens) - 1 else hole + after)
        return re.compile("".join(parts))

    def stated(self, fields: Fields) -> set[str]:
        """Names of the parameters that the sentence states with ``fields``."""
        return {m["param"].format(**fields) for m in _TOKEN.finditer(self.text) if m["param"]}

    def render(self, fields: Fields, params: Params, words: Words) -> str:
        """The sentence with ``fields`` and ``params`` filled in.

        Raises:
            ConfigError: for a missing field or parameter, or a value that its type can't write.
        """

        def fill(match: re.Match[str]) -> str:
            kind = TYPES[match["style"] or match["type"] or "auto"]
            try:
                if match["name"]:
                    return kind.write(fields[match["name"]], words)
                return kind.write(params[match["param"].format(**fields)], words)
            except KeyError as error:
                raise ConfigError(f"{error} is missing for the template {self.text!r}") from None

        return _TOKEN.sub(fill, self.text)

    def outline(self, fields: Fields, words: Words) -> str:
        """The sentence with its parameters named, not stated: the same for every re-seed."""

        def fill(match: re.Match[str]) -> str:
            if match["param"]:
                return f"<{match['param'].format(**fields)}>"
            return TYPES[match["type"] or "auto"].write(fields[match["name"]], words)

        return _TOKEN.sub(fill, self.text)

    def read(self, text: str, words: Words) -> Reading | None:
        """The fields and parameters of ``text``, or None if it is not this sentence."""
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        fields: dict[str, JsonValue] = {}
        found: list[tuple[str, JsonValue]] = []
        for i, token in enumerate(_TOKEN.finditer(self.text)):
            kind = TYPES[token["style"] or token["type"] or "auto"]
            if token["name"]:
                fields[token["name"]] = kind.read(match[f"f_{token['name']}"], words)
            else:
                found.append((token["param"], kind.read(match[f"p_{i}"], words)))
        params: dict[str, Scalar] = {}
        for pattern, value in found:
            name = pattern.format(**fields)
            if not isinstance(value, Scalar) or params.setdefault(name, value) != value:
                return None
        return Reading(fields, params)

    def samples(self, words: Words) -> Iterable[str]:
        """A few sentences that this template could render, for telling templates apart."""
        for n in range(2):
            yield _TOKEN.sub(lambda m, n=n: _sample(m, n, words), self.text)  # type: ignore[misc]  # bound n


def _sample(match: re.Match[str], n: int, words: Words) -> str:
    kind = TYPES[match["style"] or match["type"] or "auto"]
    return kind.write(kind.samples[n % len(kind.samples)], words)


@lru_cache(maxsize=1024)
def compiled(text: str) -> Template:
    """The template of ``text``, compiled once.

    Raises:
        ConfigError: as ``Template``.
    """
    return Template(text)

"""Sentence templates that can be read back: text with typed fields and parameters in it.

``{day}`` is a field (an int or a text), ``{city:text}`` a field with a type, ``{param:budget_{day}}`` the
value of the parameter whose name the fields complete, ``{param:open|clock}`` the same in a style.
Types and styles (``TYPES``) say how a value is written and read; both directions are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

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

    def noun(self, name: str) -> str:
        """The word for ``name``; the name itself, with spaces for underscores, if there is none."""
        return self.nouns.get(name, name.replace("_", " "))

    def noun_name(self, word: str) -> str:
        """Inverse of ``noun``."""
        names = [name for name, text in self.nouns.items() if text == word]
        return names[0] if names else word.replace(" ", "_")

    def slot(self, name: str) -> str:
        """The phrase for a slot, e.g. "the hotel of day 2"."""
        found = matched(name, self.slots)
        return f"`{name}`" if found is None else found


def matched(name: str, patterns: Mapping[str, str]) -> str | None:
    """The text of the first pattern ("hotel_{i}") that ``name`` fits, its holes filled in."""
    for pattern, text in patterns.items():
        if (match := _holes(pattern).fullmatch(name)) is not None:
            return text.format(**match.groupdict())
    return None


@lru_cache(maxsize=1_024)
def _holes(pattern: str) -> re.Pattern[str]:
    regex = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[A-Za-z0-9]+)", re.escape(pattern))
    return re.compile(regex)


def joined(items: Sequence[str]) -> str:
    """One item, ``a and b``, or ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def _split(text: str) -> list[JsonValue]:
    """Inverse of ``joined``."""
    head, _, last = text.rpartition(" and ")
    return [*head.split(", "), last] if head else [last]


@dataclass(frozen=True)
class FieldType:
    """The way in which values of one type are written in a sentence and read from it."""

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


def _list(value: JsonValue, _: Words) -> str:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"a list of texts was expected, not {value!r}")
    return joined([_text(item) for item in value])


def _clock(value: JsonValue, _: Words) -> str:
    minute = _whole(value)
    return f"{minute // 60:02d}:{minute % 60:02d} (minute {minute})"


def _first_number(text: str, _: Words) -> int:
    return int(text.partition(" ")[0])


def _scaled(scale: int) -> FieldType:
    """A whole number of tenths or hundredths, its decimal fraction behind it."""

    def write(value: JsonValue, _: Words) -> str:
        whole, rest = divmod(_whole(value), 10**scale)
        return f"{value} ({whole}.{rest:0{scale}d})"

    return FieldType(rf"\d+ \(\d+\.\d{{{scale}}}\)", write, _first_number, (40 * scale, 7))


_ANY = r".+?"
_DATE = r"\d{4}-\d{2}-\d{2}"
TYPES: Mapping[str, FieldType] = {
    "auto": FieldType(_ANY, _write_auto, _read_auto, (7, "Xanadu")),
    "int": FieldType(_INT, lambda v, _: str(_whole(v)), lambda t, _: int(t), (7, -12)),
    "text": FieldType(_ANY, lambda v, _: _text(v), lambda t, _: t, ("Xanadu", "Ü 9, b")),
    "date": FieldType(_DATE, lambda v, _: _text(v), lambda t, _: t, ("2025-10-01",)),
    "clock": FieldType(
        r"\d{2,}:\d{2} \(minute \d+\)",
        _clock,
        lambda t, _: int(t.rpartition(" ")[2].rstrip(")")),
        (540, 1005),
    ),
    "tenths": _scaled(1),
    "cents": _scaled(2),
    "list": FieldType(_ANY, _list, lambda t, _: _split(t), (["Xa", "Yb"],)),
    "word": FieldType(
        _ANY, lambda v, w: w.noun(_text(v)), lambda t, w: w.noun_name(t), ("xanadu_code",)
    ),
}
"""Field type or parameter style -> how it is written and read. A bare ``{name}`` is ``auto``."""


def _type(token: re.Match[str]) -> FieldType:
    return TYPES[token["style"] or token["type"] or "auto"]


@dataclass(frozen=True)
class Reading:
    """The content of a sentence: its fields, and the parameters it states."""

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
        return frozenset(m["name"] for m in _TOKEN.finditer(self.text) if m["name"])

    @cached_property
    def holes(self) -> frozenset[str]:
        """Its holes as they are written, types and styles included."""
        return frozenset(match[0] for match in _TOKEN.finditer(self.text))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Reads in time linear in the text: a hole ends where what stands after it comes first.

        Each hole is an atomic group with the words after it, so that no later failure makes it longer.
        """
        tokens, seen = list(_TOKEN.finditer(self.text)), set[str]()
        starts = [match.start() for match in tokens] + [len(self.text)]
        parts = [re.escape(self.text[: starts[0]])]
        for i, match in enumerate(tokens):
            name, kind = match["name"], _type(match)
            group = f"f_{name}" if name else f"p_{i}"
            hole = f"(?P=f_{name})" if name and name in seen else f"(?P<{group}>{kind.regex})"
            seen.add(name)
            after = re.escape(self.text[match.end() : starts[i + 1]])
            parts.append(f"(?>{hole}{after})" if i < len(tokens) - 1 else hole + after)
        return re.compile("".join(parts))

    def stated(self, fields: Fields) -> set[str]:
        """Names of the parameters that the sentence states with ``fields``."""
        return {m["param"].format(**fields) for m in _TOKEN.finditer(self.text) if m["param"]}

    def sample_params(self, fields: Fields) -> dict[str, Scalar]:
        """A value that could stand in each hole of a parameter."""
        found: dict[str, Scalar] = {}
        for match in _TOKEN.finditer(self.text):
            value = _type(match).samples[0]
            if match["param"] and isinstance(value, Scalar):
                found[match["param"].format(**fields)] = value
        return found

    def render(self, fields: Fields, params: Params, words: Words) -> str:
        """The sentence with ``fields`` and ``params`` filled in.

        Raises:
            ConfigError: for a missing field or parameter, or a value that its type can't write.
        """

        def fill(match: re.Match[str]) -> str:
            try:
                name, param = match["name"], match["param"]
                value = fields[name] if name else params[param.format(**fields)]
                return _type(match).write(value, words)
            except KeyError as error:
                raise ConfigError(f"{error} is missing for the template {self.text!r}") from None

        return _TOKEN.sub(fill, self.text)

    def outline(self, fields: Fields, words: Words) -> str:
        """The sentence with its parameters named, not stated: the same for every re-seed."""

        def fill(match: re.Match[str]) -> str:
            if match["param"]:
                return f"<{match['param'].format(**fields)}>"
            return _type(match).write(fields[match["name"]], words)

        return _TOKEN.sub(fill, self.text)

    def read(self, text: str, words: Words) -> Reading | None:
        """The fields and parameters of ``text``, or None if it is not this sentence."""
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        fields: dict[str, JsonValue] = {}
        found: list[tuple[str, JsonValue]] = []
        for i, token in enumerate(_TOKEN.finditer(self.text)):
            kind = _type(token)
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

        def sample(match: re.Match[str], n: int) -> str:
            kind = _type(match)
            return kind.write(kind.samples[n % len(kind.samples)], words)

        return [_TOKEN.sub(partial(sample, n=n), self.text) for n in range(2)]

"""The words of a domain: for each rule one sentence, and the builder that gives the rule back.

A ``Lexicon`` turns a Problem into plain language (``prompt.py``) and back. The fields of a sentence fix
what it says: ``build(fields)`` is the clause, so two problems with equal sentences have equal rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import permutations
from typing import Literal, NamedTuple, TypeVar

from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.ir import (
    Clause,
    Equals,
    Expr,
    Goal,
    Layout,
    Optimise,
    Reach,
    Satisfy,
    Scalar,
    Slot,
)
from envgen.pipelines.general.words.frames import FRAMES
from envgen.pipelines.general.words.wording import Fields, Template, Words

T = TypeVar("T")

ESCALATION = "escalation"
"""The field of a problem that says in which words its policy's escalation stands, where not in the first."""


@dataclass(frozen=True)
class Phrase:
    """A sentence and what it means.

    ``build`` is pure and gives, by ``kind``: "clause" and "effect" a Clause, "goal" an Equals, "optimise" an
    Optimise,
    "escalate" the Expr of ``Reach.escalate_when`` (its fields are the Problem's own). It leaves
    ``text_key`` and ``fields`` of what it builds alone: ``Lexicon`` fills them in.
    """

    template: str
    build: Callable[[Fields], Clause | Equals | Optimise | Expr]
    kind: Literal["clause", "effect", "goal", "optimise", "escalate"] = "clause"

    @cached_property
    def sentence(self) -> Template:
        """The template, compiled."""
        return Template(self.template)


class AnswerForm(NamedTuple):
    """The slots and where they stand in the answer."""

    slots: tuple[Slot, ...]
    layout: Layout


@dataclass(frozen=True)
class PromptContent:
    """The content of a prompt: a Problem's parts of the same names."""

    slots: tuple[Slot, ...]
    layout: Layout
    clauses: tuple[Clause, ...]
    goal: Goal
    params: dict[str, Scalar]
    fields: dict[str, JsonValue]


@dataclass(frozen=True)
class Lexicon:
    """The sentences of one domain.

    Templates are single lines over the Problem's ``fields`` and params; see ``wording.TYPES``.
    """

    id: str
    title: str
    openings: Mapping[str, str]
    """Name -> opening paragraph; ``Problem.fields["opening"]`` names one ("default" if absent).
    Together with the other templates here it must state every Problem field."""
    frame: Callable[[Fields], AnswerForm]
    """Problem.fields -> slots and layout."""
    phrases: Mapping[str, Phrase]
    """text_key -> phrase."""
    words: Words = field(default_factory=Words)
    units: Mapping[str, str] = field(default_factory=dict)
    """Column unit -> a sentence about it; needed for each unit that the problem's rules touch."""
    more_units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column unit -> further sentences about it."""
    frames: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: FRAMES)
    """Sentence that is the same in all domains -> ways to say it."""
    placeholders: Mapping[str, str] = field(default_factory=dict)
    """Slot name pattern ("hotel_{i}") -> what stands in the answer format ("hotel name")."""
    reach: Callable[[Fields, tuple[Clause, ...]], Reach] | None = None
    """Problem.fields and effects -> the goal, with its write set, ``escalate_when`` and key."""
    gives_way: Callable[[Fields, tuple[Clause, ...]], tuple[Clause, ...]] | None = None
    """Problem.fields and clauses -> the clauses, one of which may give way."""

    def __post_init__(self) -> None:
        """Refuse a sentence that reads what another one writes; openings stand apart."""
        for among in (self.opening_templates, self.sentences):
            for name, other in permutations(among, 2):
                for text in among[name].samples(self.words):
                    if among[other].read(text, self.words) is not None:
                        raise ConfigError(
                            f"lexicon {self.id!r}: {other!r} also reads what {name!r} writes: {text!r}"
                        )

    @cached_property
    def opening_templates(self) -> dict[str, Template]:
        """Openings, compiled."""
        return {name: Template(text) for name, text in self.openings.items()}

    @cached_property
    def sentences(self) -> dict[str, Template]:
        """Every other sentence by its name: a text_key, "unit NAME", "write rule", "tie-break"."""
        found = {
            f"{name}{suffix(i)}": Template(text)
            for name, ways in self._ways.items()
            for i, text in enumerate(ways)
        }
        return found | {key: phrase.sentence for key, phrase in self.phrases.items()}

    @cached_property
    def _ways(self) -> dict[str, tuple[str, ...]]:
        """Note -> the ways to say it."""
        found = {name: self.frames[name] for name in ("write rule", "tie-break")}
        more = self.more_units
        return found | {f"unit {u}": (text, *more.get(u, ())) for u, text in self.units.items()}

    def way(self, name: str, fields: Fields) -> str:
        """The name of that way to say the note ``name`` which goes with the opening that ``fields`` names."""
        ways = self._ways.get(name, ("",))
        return name + suffix(wording_of(fields) % len(ways))

    def framed(self, name: str, fields: Fields) -> str:
        """The text of the frame ``name`` that goes with the opening that ``fields`` names."""
        ways = self.frames[name]
        return ways[wording_of(fields) % len(ways)]

    def named(self, name: str, among: Mapping[str, T]) -> T:
        """The opening, sentence or phrase ``name``; ConfigError, with similar names, if there is none."""
        if name not in among:
            near = get_close_matches(name, among) or among
            raise ConfigError(f"lexicon {self.id!r} has no {name!r}", f"it has: {', '.join(near)}")
        return among[name]

    def phrase(self, key: str) -> Phrase:
        """The phrase ``key``; ConfigError, with similar names, if there is none."""
        return self.named(key, self.phrases)

    def rule(self, key: str, fields: Fields) -> Clause | Equals | Optimise:
        """Build the rule that the sentence ``key`` states with ``fields``.

        Raises:
            ConfigError: if the sentence is unknown, or states none.
        """
        built = self.phrase(key).build(fields)
        if not isinstance(built, Clause | Equals | Optimise):
            raise ConfigError(f"phrase {key!r} of lexicon {self.id!r} states no rule")
        return built.model_copy(update={"text_key": key, "fields": dict(fields)})

    def request(
        self,
        fields: dict[str, JsonValue],
        sentences: Iterable[tuple[str, Fields]],
        params: dict[str, Scalar],
    ) -> PromptContent:
        """Build the content that an opening with ``fields`` and ``sentences`` (key, fields) make."""
        slots, layout = self.frame(fields)
        rules = [self.rule(key, own) for key, own in sentences]
        stated = [rule for rule in rules if isinstance(rule, Clause)]
        kinds = {key: phrase.kind for key, phrase in self.phrases.items()}
        clauses = tuple(rule for rule in stated if kinds[rule.text_key] == "clause")
        effects = tuple(rule for rule in stated if kinds[rule.text_key] == "effect")
        asked = (rule for rule in rules if isinstance(rule, Equals | Optimise))
        goal: Goal = next(asked, Satisfy())
        if effects and self.reach is not None:
            goal = self.reach(fields, effects)
        if self.gives_way is not None and isinstance(goal, Satisfy):
            clauses = self.gives_way(fields, clauses)
        return PromptContent(slots, layout, clauses, goal, params, fields)


def suffix(way: int) -> str:
    """The end of the name of a sentence's ``way``: nothing for the first, "~2" for the second."""
    return f"~{way + 1}" if way else ""


def wording_of(fields: Fields) -> int:
    """The way in which a problem's opening is said: 0 for the first."""
    number = str(fields.get("opening", "")).partition("~")[2]
    return int(number) - 1 if number.isdecimal() else 0


LEXICONS: dict[str, Lexicon] = {}
"""The lexicons of the pages that were read: their ids name the pages' content, so none is ever replaced."""


def register(lexicon: Lexicon) -> Lexicon:
    """Make a page's lexicon known to ``lexicon``."""
    return LEXICONS.setdefault(lexicon.id, lexicon)


def lexicon(lexicon_id: str) -> Lexicon:
    """The lexicon ``lexicon_id``.

    Raises:
        ConfigError: if its page was not read.
    """
    if lexicon_id not in LEXICONS:
        raise ConfigError(
            f"unknown lexicon {lexicon_id!r}", "its page is stored with the dataset's environments"
        )
    return LEXICONS[lexicon_id]


def outline(lexicon_id: str, rule: Clause | Equals | Optimise) -> str:
    """The sentence of a rule with its parameters named, not stated: a comment for generated code.

    It is "" if the lexicon is not registered.
    """
    if lexicon_id not in LEXICONS:
        return ""
    known = LEXICONS[lexicon_id]
    return known.phrase(rule.text_key).sentence.outline(rule.fields, known.words)

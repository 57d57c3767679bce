"""The words of a domain: for each rule one sentence, and the builder that gives the rule back.

A ``Lexicon`` turns a Problem into plain language (``prompt.py``) and back. What a sentence says is fixed
by its fields: ``build(fields)`` is the clause, so two problems with equal sentences have equal rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

from pydantic import JsonValue

from envgen.core.errors import ConfigError
from envgen.core.ir import Clause, Equals, Expr, Goal, Layout, Optimise, Reach, Slot
from envgen.pipelines.general.words.wording import Fields, Template, Words

Built = Clause | Equals | Optimise | Expr


@dataclass(frozen=True)
class Phrase:
    """A sentence and what it means.

    ``build`` is pure and gives, by ``kind``: "clause" and "effect" a Clause, "goal" an Equals or
    Optimise, "escalate" the Expr of ``Reach.escalate_when`` (its fields are the Problem's own).
    It leaves ``text_key`` and ``fields`` of what it builds alone: ``Lexicon`` fills them in.
    """

    template: str
    build: Callable[[Fields], Built]
    kind: Literal["clause", "effect", "goal", "escalate"] = "clause"

    @cached_property
    def sentence(self) -> Template:
        """The template, compiled."""
        return Template(self.template)


@dataclass(frozen=True)
class AnswerForm:
    """What is asked for: the slots and where they stand in the answer."""

    slots: tuple[Slot, ...]
    layout: Layout


@dataclass(frozen=True)
class Lexicon:
    """How one domain speaks.

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
    placeholders: Mapping[str, str] = field(default_factory=dict)
    """Slot name pattern ("hotel_{i}") -> what stands in the answer format ("hotel name")."""
    reach: Callable[[Fields, tuple[Clause, ...]], Reach] | None = None
    """Problem.fields and effects -> the goal, with its write set, ``escalate_when`` and key."""
    rules_heading: str = "Please keep to these rules:"
    effects_heading: str = "What I need:"
    notes_heading: str = "Good to know:"
    policy_heading: str = "Policy. These rules hold for every request:"
    write_rule: str = (
        "Change nothing else in the system: everything not mentioned above must stay as it is."
    )
    tie_break: str = (
        "Among equals, take the one whose {key:word} comes first in alphabetical order."
    )
    tie_break_set: str = "The order of the list does not matter."
    submit: str = (
        "When you are done, call `submit_result` once. Its `answer_text` must be a JSON text in exactly "
        "this form, with the parts in angle brackets filled in:"
    )
    language: str = "en"

    def __post_init__(self) -> None:
        sentences = {f"phrase {key!r}": phrase.sentence for key, phrase in self.phrases.items()}
        sentences |= {f"unit {unit!r}": Template(text) for unit, text in self.units.items()}
        sentences |= {
            "write rule": Template(self.write_rule),
            "tie-break": Template(self.tie_break),
        }
        sentences |= {"tie-break for sets": Template(self.tie_break_set)}
        openings = {f"opening {name!r}": Template(text) for name, text in self.openings.items()}
        _refuse_ambiguous(self.id, sentences, self.words)
        _refuse_ambiguous(self.id, openings, self.words)

    @cached_property
    def opening_templates(self) -> dict[str, Template]:
        """Openings, compiled."""
        return {name: Template(text) for name, text in self.openings.items()}

    def clause(self, key: str, /, **fields: JsonValue) -> Clause:
        """The clause (or effect) that the sentence ``key`` states with ``fields``."""
        built = self.phrase(key).build(fields)
        if not isinstance(built, Clause):
            raise ConfigError(f"phrase {key!r} of lexicon {self.id!r} is no clause")
        return built.model_copy(update={"text_key": key, "fields": dict(fields)})

    def goal(self, key: str, /, **fields: JsonValue) -> Equals | Optimise:
        """The goal that the sentence ``key`` states with ``fields``."""
        built = self.phrase(key).build(fields)
        if not isinstance(built, Equals | Optimise):
            raise ConfigError(f"phrase {key!r} of lexicon {self.id!r} is no goal")
        return built.model_copy(update={"text_key": key, "fields": dict(fields)})

    def reach_goal(self, fields: Fields, effects: tuple[Clause, ...]) -> Goal:
        """The Reach goal of a workflow with these Problem fields and effects."""
        if self.reach is None:
            raise ConfigError(f"lexicon {self.id!r} has no workflow goal")
        return self.reach(fields, effects).model_copy(update={"effects": effects})

    def phrase(self, key: str) -> Phrase:
        """The phrase ``key``.

        Raises:
            ConfigError: if there is none; the message names similar ones.
        """
        if key not in self.phrases:
            near = ", ".join(get_close_matches(key, self.phrases)) or ", ".join(self.phrases)
            raise ConfigError(f"lexicon {self.id!r} has no phrase {key!r}", f"it has: {near}")
        return self.phrases[key]

    def outline(self, rule: Clause | Equals | Optimise) -> str:
        """The sentence of a rule with its parameters named, not stated."""
        return self.phrase(rule.text_key).sentence.outline(rule.fields, self.words)


def outline(lexicon_id: str, rule: Clause | Equals | Optimise) -> str:
    """``Lexicon.outline`` by id, for comments in generated code; "" if the lexicon is not registered."""
    return lexicon(lexicon_id).outline(rule) if lexicon_id in LEXICONS else ""


def _refuse_ambiguous(lexicon_id: str, sentences: Mapping[str, Template], words: Words) -> None:
    for name, template in sentences.items():
        for text in template.samples(words):
            for other, reader in sentences.items():
                if other != name and reader.read(text, words) is not None:
                    raise ConfigError(
                        f"lexicon {lexicon_id!r}: {other} also reads what {name} writes: {text!r}"
                    )


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

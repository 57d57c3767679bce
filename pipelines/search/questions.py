"""What a question asks, and which entities fit it.

A query picks the entities of one class that every clause holds of; a clause may hold a query of its own about
the entity that a value names. A clause holds only of entities that have a value of its attribute: what no
document states counts neither for nor against.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from envgen.core.limits import Label, Language, Real, Whole
from envgen.core.types import Id, Record
from envgen.store.corpus import AttributeSpec, Corpus, CorpusDocument, CorpusHeader, Fact, Name

Value = str | int | float
MAX_DEPTH = 4
MAX_CLAUSES = 24
"""Of a query, nested ones included."""
_KEPT = 2_000
Shape = Literal["one", "set", "count", "least", "most", "none"]
"""What is asked of the entities that fit: about the one; all of them; how many; the one with the least or the
most of something; or, of a twin that nothing fits, what its sibling asks."""
NONE = ("none", "\u65e0", "\u7121")
"""The answer where nothing fits."""
TITLE = "title"
"""What a question asks for that asks for no attribute."""


class Clue(Record):
    """One thing that holds of the entities that are meant."""

    attribute: Name
    op: Literal["is", "between", "entity"]
    value: Label | Whole | Real | None = None
    """Of ``is``."""
    low: Whole | Real | None = None
    high: Whole | Real | None = None
    """Of ``between``; both bounds count."""
    entity: EntityQuery | None = None
    """Of ``entity``: the value names a document about such an entity."""


class EntityQuery(Record):
    """The entities of a class that all clauses hold of."""

    kind: Name
    clauses: tuple[Clue, ...] = Field(min_length=1, max_length=8)

    @property
    def depth(self) -> int:
        """How deep its clauses are nested: 1 for none."""
        inner = (one.entity.depth for one in self.clauses if one.entity is not None)
        return 1 + max(inner, default=0)

    @property
    def size(self) -> int:
        """How many clauses it has, nested ones included."""
        inner = (one.entity.size for one in self.clauses if one.entity is not None)
        return len(self.clauses) + sum(inner)

    def without(self) -> Iterator[EntityQuery]:
        """The query with each of its clauses left out, and with each of those inside it."""
        for i, clause in enumerate(self.clauses):
            rest = self.clauses[:i] + self.clauses[i + 1 :]
            if rest:
                yield EntityQuery(kind=self.kind, clauses=rest)
            if clause.entity is not None:
                for inner in clause.entity.without():
                    changed = clause.model_copy(update={"entity": inner})
                    yield EntityQuery(
                        kind=self.kind, clauses=(*self.clauses[:i], changed, *self.clauses[i + 1 :])
                    )


Clue.model_rebuild()


class SearchQuestion(Record):
    """A question with one answer, and what it was made of: the solution of a search task."""

    shape: Shape
    query: EntityQuery
    ask: Name
    """The attribute that is asked for, or ``title``."""
    by: Name | None = None
    """The attribute that ``least`` and ``most`` compare."""
    language: Language
    wording: Whole
    """Seeds the choice of words."""
    group: Id
    """The entity that the question was drawn from: questions of one are never in two splits."""
    targets: tuple[Id, ...]
    """The entities that fit, by id."""
    evidence: tuple[Id, ...]
    """The documents that hold what is needed, in the order in which a reader finds them."""

    @model_validator(mode="after")
    def _bounded(self) -> SearchQuestion:
        """A stranger's question may not be counted for hours: each clause left out is one more count."""
        if self.query.depth > MAX_DEPTH or self.query.size > MAX_CLAUSES:
            raise ValueError(f"a query has at most {MAX_DEPTH} levels and {MAX_CLAUSES} clauses")
        return self

    @property
    def level(self) -> int:
        """How hard it is by its form, 1 to 10: three for each nesting, one for each clause more and shape."""
        several = self.shape != "one"
        return min(10, 3 * (self.query.depth - 1) + len(self.query.clauses) - 1 + several)


@dataclass
class FactTable:
    """The facts of a corpus, by attribute: which entities have which values.

    A set of entities of one class is an integer whose bits are their places in ``members``: those of a
    large class share tens of thousands of values, and two such sets are compared at once.
    """

    header: CorpusHeader
    titles: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Class -> entities."""
    facts: dict[str, dict[str, list[Fact]]] = field(default_factory=dict)
    """Entity -> attribute -> facts."""
    with_value: dict[tuple[str, str], dict[Value, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """(class, attribute) -> value -> places of the entities that have it."""
    naming: dict[tuple[str, str], dict[str, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """(class, attribute) -> document named -> places of the entities that name it."""
    languages: dict[str, str] = field(default_factory=dict)
    _held: dict[tuple[str, int], tuple[Clue, int]] = field(default_factory=dict)
    """What ``holding`` found: a query's clauses are asked again with each of the others left out. By the
    clause's identity, which nothing else gets while it is kept here."""
    _bits: dict[tuple[str, str, Value], int] = field(default_factory=dict)
    """(class, attribute, value) -> the entities that have it."""
    _named: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(class, attribute, document named) -> the entities that name it."""
    _sorted: dict[tuple[str, str], tuple[list[float], NDArray[np.int64]]] = field(
        default_factory=dict
    )
    """(class, attribute) -> its numbers in order, and the places of the entities that have them."""
    _known: dict[tuple[str, str], int] = field(default_factory=dict)
    """(class, attribute) -> how many entities have a value."""

    @classmethod
    def of(cls, corpus: Corpus) -> FactTable:
        """All facts of a corpus, in memory."""
        table = cls(corpus.header)
        for document in corpus.documents():
            table.add(document)
        return table

    def add(self, document: CorpusDocument) -> None:
        """Take in the facts of one document."""
        name, kind = document.id, document.kind
        self.titles[name], self.kinds[name] = document.title, kind
        self.languages[name] = document.language
        place = len(self.members[kind])
        self.members[kind].append(name)
        own = self.facts.setdefault(name, {})
        for fact in document.facts:
            own.setdefault(fact.attribute, []).append(fact)
            _note(self.with_value[kind, fact.attribute][fact.value], place)
            if fact.ref is not None:
                _note(self.naming[kind, fact.attribute][fact.ref], place)

    def spec(self, kind: str, attribute: str) -> AttributeSpec | None:
        """What the corpus says of an attribute."""
        return self.header.attributes.get(f"{kind}.{attribute}")

    def matching(self, query: EntityQuery) -> int:
        """The entities that a query picks, as bits."""
        found = -1
        for clause in query.clauses:
            found &= self.holding(query.kind, clause)
        return found

    def names(self, kind: str, picked: int) -> list[str]:
        """The ids of a set of entities."""
        members = self.members[kind]
        bits = np.frombuffer(picked.to_bytes(len(members) // 8 + 1, "little"), np.uint8)
        return [members[place] for place in np.flatnonzero(np.unpackbits(bits, bitorder="little"))]

    def holding(self, kind: str, clause: Clue) -> int:
        """The entities of a class that one clause holds of, as bits."""
        known = self._held.get((kind, id(clause)))
        if known is None:
            if len(self._held) >= _KEPT:
                self._held.clear()
            known = self._held[kind, id(clause)] = clause, self._holding(kind, clause)
        return known[1]

    def _holding(self, kind: str, clause: Clue) -> int:
        if clause.op == "is":
            assert clause.value is not None
            key = kind, clause.attribute, clause.value
            if key not in self._bits:
                if len(self._bits) >= _KEPT:
                    self._bits.clear()
                having = self.with_value.get(key[:2], {}).get(clause.value, [])
                self._bits[key] = self._picked(kind, having)
            return self._bits[key]
        if clause.op == "between":
            assert clause.low is not None
            assert clause.high is not None
            numbers, places = self._numbers(kind, clause.attribute)
            inside = slice(bisect_left(numbers, clause.low), bisect_right(numbers, clause.high))
            return self._picked(kind, places[inside])
        assert clause.entity is not None
        named = self.naming.get((kind, clause.attribute), {})
        found = 0
        for one in self.names(clause.entity.kind, self.matching(clause.entity)):
            if one in named:
                full = kind, clause.attribute, one
                if full not in self._named:
                    self._named[full] = self._picked(kind, named[one])
                found |= self._named[full]
        return found

    def _picked(self, kind: str, places: Sequence[int] | NDArray[np.int64]) -> int:
        mask = np.zeros(len(self.members[kind]), np.uint8)
        mask[np.asarray(places, np.int64)] = 1
        return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")

    def _numbers(self, kind: str, attribute: str) -> tuple[list[float], NDArray[np.int64]]:
        if (kind, attribute) not in self._sorted:
            pairs = sorted(
                (value, place)
                for value, having in self.with_value.get((kind, attribute), {}).items()
                if not isinstance(value, str)
                for place in having
            )
            places = np.array([one[1] for one in pairs], np.int64)
            self._sorted[kind, attribute] = [one[0] for one in pairs], places
        return self._sorted[kind, attribute]

    def answers(self, target: str, ask: str) -> list[Value]:
        """What is true of an entity, where it is asked for."""
        if ask == TITLE:
            return [self.titles[target]]
        return [fact.value for fact in self.facts[target].get(ask, ())]

    def extreme(self, among: Collection[str], by: str, shape: str) -> str | None:
        """The one of these entities with the least or most of an attribute; None if it is not one."""
        values: dict[str, float] = {}
        for name in among:
            facts = self.facts[name].get(by, ())
            if len(facts) != 1 or isinstance(facts[0].value, str):
                return None
            values[name] = facts[0].value
        if not values:
            return None
        best = (min if shape == "least" else max)(values.values())
        found = [name for name, value in values.items() if value == best]
        return found[0] if len(found) == 1 else None

    def share(self, kind: str, ask: str, answer: Value) -> float:
        """How often a value is right: its share of the class's entities that have a value there."""
        if ask == TITLE:
            return 1 / max(1, len(self.members[kind]))
        values = self.with_value[kind, ask]
        if (kind, ask) not in self._known:
            self._known[kind, ask] = len(set[int]().union(*values.values()))
        return len(values.get(answer, ())) / max(1, self._known[kind, ask])


def _note(places: list[int], place: int) -> None:
    if not places or places[-1] != place:
        places.append(place)

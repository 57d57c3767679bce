"""Draw questions: clues of a target that all together fit it alone, none of which can be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from envgen.pipelines.search.questions import (
    TITLE,
    Clue,
    EntityQuery,
    FactTable,
    SearchQuestion,
    Shape,
    Value,
)
from envgen.pipelines.search.wording import can_clue, can_word
from envgen.store.corpus import Fact

_TRIES = 30
"""Sets of clues tried for one entity."""
_TARGETS = 200
"""Entities tried for one question."""
MAX_SHARE = 1 / 3
"""An answer that is right more often than that, blind, is not asked for."""
_FREE_TEXT = 80
"""A value that is longer is a text, which neither clues nor answers take."""


class Sizes(NamedTuple):
    """How many entities may fit a query."""

    low: int
    high: int


SIZES: dict[Shape, Sizes] = {
    "one": Sizes(1, 1),
    "set": Sizes(2, 8),
    "count": Sizes(2, 12),
    "least": Sizes(3, 12),
    "most": Sizes(3, 12),
    "none": Sizes(1, 1),
}


def draw_question(
    table: FactTable, rng: Random, *, depth: int, breadth: int, language: str, shape: Shape = "one"
) -> SearchQuestion | None:
    """A question of this form, or None where the corpus gave none in many tries.

    Args:
        table: the corpus's facts.
        rng: the only source of randomness.
        depth: of nesting: at each step one value is replaced by clues that identify it.
        breadth: clues about the target.
        language: of the question; its target has the nouns and phrases for it.
        shape: what is asked of the entities that fit.
    """
    kinds = [kind for kind in sorted(table.members) if can_word(kind, language, table)]
    kinds = [kind for kind in kinds if any(table.facts[one] for one in table.members[kind][:50])]
    for _ in range(_TARGETS if kinds else 0):
        target = rng.choice(table.members[rng.choice(kinds)])
        asks = _asks(table, target, language) if shape in ("one", "none") else [TITLE]
        by = _compared(table, rng, target) if shape in ("least", "most") else None
        if not asks or (shape in ("least", "most") and by is None):
            continue
        ask = rng.choice(asks)
        taboo = {ask, *_same(table, target, ask)} | ({by} if by else set())
        found = identify(table, rng, target, depth, breadth, taboo, language, SIZES[shape])
        if found is None:
            continue
        query, behind = found
        if shape == "none":
            twin = _twin(table, rng, query)
            if twin is None:
                continue
            query = twin
        targets = tuple(sorted(table.names(query.kind, table.matching(query))))
        if not {target, *targets}.isdisjoint(behind):
            continue
        question = SearchQuestion(
            shape=shape, query=query, ask=ask, by=by, language=language, wording=rng.getrandbits(40),
            group=target, targets=targets, evidence=(*behind, *(targets or (target,))),
        )  # fmt: skip
        if _decided(table, question):
            return question
    return None


def identify(
    table: FactTable,
    rng: Random,
    target: str,
    depth: int,
    breadth: int,
    taboo: set[str],
    language: str,
    sizes: Sizes = SIZES["one"],
    passed: frozenset[str] = frozenset(),
) -> tuple[EntityQuery, tuple[str, ...]] | None:
    """A query that picks ``target`` and few others, and needs every clause; and the documents behind it.

    None of those is one that was ``passed`` on the way, or the target.
    """
    kind = table.kinds[target]
    head: tuple[Clue, ...] = ()
    behind: tuple[str, ...] = ()
    plain = _clues(table, rng, target, taboo, language)
    if depth > 1:
        nested = _nested(table, rng, target, depth, taboo, language, passed | {target})
        if nested is None:
            return None
        head, behind = (nested[0],), nested[1]
        plain = [one for one in plain if one.attribute != head[0].attribute]
    wanted = breadth - len(head)
    if len(plain) < wanted:
        return None
    for _ in range(_TRIES):
        chosen = rng.sample(plain, wanted)
        if len({one.attribute for one in chosen}) < len(chosen):
            continue
        clauses = [*head, *chosen]
        rng.shuffle(clauses)
        query = EntityQuery(kind=kind, clauses=tuple(clauses))
        found = table.matching(query)
        size = found.bit_count()
        if sizes.low <= size <= sizes.high and is_minimal(table, query, size):
            return query, behind
    return None


def is_minimal(table: FactTable, query: EntityQuery, size: int) -> bool:
    """Whether more entities than ``size`` fit without any one of its clauses, and fit each clause alone."""
    alone = (table.holding(query.kind, clause) for clause in query.clauses)
    most = max(1, size)
    return all(found.bit_count() > most for found in alone) and all(
        table.matching(rest).bit_count() > size for rest in query.without()
    )


def _twin(table: FactTable, rng: Random, query: EntityQuery) -> EntityQuery | None:
    """The query with one value exchanged: nothing fits it, and something does without any one clause."""
    places = [i for i, clause in enumerate(query.clauses) if clause.op == "is"]
    rng.shuffle(places)
    for i in places:
        values = sorted(table.with_value[query.kind, query.clauses[i].attribute], key=str)
        for value in rng.sample(values, min(len(values), _TRIES)):
            changed = query.clauses[i].model_copy(update={"value": value})
            twin = query.model_copy(
                update={"clauses": (*query.clauses[:i], changed, *query.clauses[i + 1 :])}
            )
            if not table.matching(twin) and is_minimal(table, twin, 0):
                return twin
    return None


def _compared(table: FactTable, rng: Random, target: str) -> str | None:
    """A number of the target by which it can be compared with others."""
    found = [
        attribute
        for attribute, facts in sorted(table.facts[target].items())
        if len(facts) == 1 and not isinstance(facts[0].value, str)
    ]
    return rng.choice(found) if found else None


def _decided(table: FactTable, question: SearchQuestion) -> bool:
    """Whether the entities that fit give one answer, which changes without any one of the clauses."""
    names = [table.titles[one] for one in question.targets]
    if len(set(names)) < len(names):
        return False
    if question.by is None:
        return True
    best = table.extreme(question.targets, question.by, question.shape)
    kind = question.query.kind
    rest = (table.names(kind, table.matching(one)) for one in question.query.without())
    return best is not None and all(
        table.extreme(
            [one for one in names if question.by in table.facts[one]], question.by, question.shape
        )
        not in (None, best)
        for names in rest
    )


def _nested(
    table: FactTable,
    rng: Random,
    target: str,
    depth: int,
    taboo: set[str],
    language: str,
    passed: frozenset[str],
) -> tuple[Clue, tuple[str, ...]] | None:
    """A clause about an entity that the target's facts name, identified by clues of its own."""
    facts = [
        fact
        for attribute, own in table.facts[target].items()
        if attribute not in taboo and can_clue(table.kinds[target], attribute, language, table)
        for fact in own
        if fact.ref in table.facts
        and fact.ref not in passed
        and can_word(table.kinds[fact.ref], language, table)
        and len(table.naming[table.kinds[target], attribute][fact.ref]) > 1
    ]
    rng.shuffle(facts)
    for fact in facts:
        assert fact.ref is not None
        breadth = rng.choice((2, 2, 3))
        found = identify(table, rng, fact.ref, depth - 1, breadth, set(), language, passed=passed)
        if found is not None:
            query, behind = found
            return Clue(attribute=fact.attribute, op="entity", entity=query), (*behind, fact.ref)
    return None


def _clues(
    table: FactTable, rng: Random, target: str, taboo: set[str], language: str
) -> list[Clue]:
    """One clause for each fact of the target that some other entity shares, exact or blurred."""
    kind = table.kinds[target]
    found = []
    for attribute in sorted(table.facts[target]):
        spec = table.spec(kind, attribute)
        known = can_clue(kind, attribute, language, table)
        if attribute in taboo or not known or (spec is not None and spec.kind == "key"):
            continue
        for fact in table.facts[target][attribute]:
            if (clause := _clue(table, rng, kind, attribute, fact)) is not None:
                found.append(clause)
    return found


def _clue(table: FactTable, rng: Random, kind: str, attribute: str, fact: Fact) -> Clue | None:
    value = fact.value
    if isinstance(value, str):
        shared = len(table.with_value[kind, attribute][value]) > 1
        short = len(value) <= _FREE_TEXT
        return Clue(attribute=attribute, op="is", value=value) if shared and short else None
    spec = table.spec(kind, attribute)
    if spec is not None and spec.kind == "year":
        low = max(1, int(value) - rng.randint(0, 6))
        high = int(value) + rng.randint(1, 6)
        return Clue(attribute=attribute, op="between", low=low, high=high)
    step = 10 ** max(0, len(str(int(abs(value)))) - 2)
    low = int(value) // step * step - rng.randint(0, 2) * step
    low = max(0, low) if value >= 0 else low
    high = low + rng.randint(3, 6) * step
    return Clue(attribute=attribute, op="between", low=low, high=high)


def _asks(table: FactTable, target: str, language: str) -> list[str]:
    """What may be asked about an entity: one value, not too common, in words of the language."""
    kind = table.kinds[target]
    found = [TITLE] if kind in table.header.classes or not table.header.classes else []
    for attribute, facts in sorted(table.facts[target].items()):
        spec = table.spec(kind, attribute)
        if len(facts) != 1 or (spec is not None and spec.many):
            continue
        worded = spec is not None and bool(spec.clue or spec.ask)
        if worded and not (spec and spec.ask.get(language)):
            continue  # whoever worded the attribute left this out
        if len(str(facts[0].value)) <= _FREE_TEXT:
            found.append(attribute)
    return [ask for ask in found if _rare(table, kind, target, ask)]


def _rare(table: FactTable, kind: str, target: str, ask: str) -> bool:
    return all(table.share(kind, ask, one) <= MAX_SHARE for one in table.answers(target, ask))


def _same(table: FactTable, target: str, ask: str) -> Sequence[str]:
    """Attributes whose value for the target is the answer, too: they would give it away."""
    answers: set[Value] = set(table.answers(target, ask))
    texts = [str(one).casefold() for one in answers]
    return [
        attribute
        for attribute, facts in table.facts[target].items()
        if any(
            fact.value in answers or any(text in str(fact.value).casefold() for text in texts)
            for fact in facts
        )
    ]

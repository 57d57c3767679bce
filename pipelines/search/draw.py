"""Draw questions: clues of a target that all together fit it alone, none of which can be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from envgen.pipelines.search.questions import (
    TITLE,
    Clue,
    EntityQuery,
    FactTable,
    SearchQuestion,
    Value,
)
from envgen.pipelines.search.wording import can_word
from envgen.store.corpus import Fact

_TRIES = 30
"""Sets of clues tried for one entity."""
_TARGETS = 200
"""Entities tried for one question."""
MAX_SHARE = 1 / 3
"""An answer that is right more often than that, blind, is not asked for."""
_FREE_TEXT = 80
"""A value that is longer is a text, which neither clues nor answers take."""


def draw_question(
    table: FactTable, rng: Random, *, depth: int, breadth: int, language: str
) -> SearchQuestion | None:
    """A question of this form, or None where the corpus gave none in many tries.

    Args:
        table: the corpus's facts.
        rng: the only source of randomness.
        depth: of nesting: at each step one value is replaced by clues that identify it.
        breadth: clues about the target.
        language: of the question; its target has the nouns and phrases for it.
    """
    kinds = [kind for kind in sorted(table.members) if can_word(kind, language, table)]
    kinds = [kind for kind in kinds if any(table.facts[one] for one in table.members[kind][:50])]
    for _ in range(_TARGETS):
        kind = rng.choice(kinds) if kinds else None
        if kind is None:
            return None
        target = rng.choice(table.members[kind])
        asks = _asks(table, target, language)
        if not asks:
            continue
        ask = rng.choice(asks)
        found = identify(table, rng, target, depth, breadth, {ask, *_same(table, target, ask)})
        if found is None:
            continue
        query, evidence = found
        return SearchQuestion(
            shape="intersection" if depth == 1 else "chain",
            query=query,
            ask=ask,
            language=language,
            wording=rng.getrandbits(40),
            target=target,
            evidence=evidence,
        )
    return None


def identify(
    table: FactTable, rng: Random, target: str, depth: int, breadth: int, taboo: set[str]
) -> tuple[EntityQuery, tuple[str, ...]] | None:
    """A query that picks ``target`` alone and needs every clause, and the documents behind it."""
    kind = table.kinds[target]
    head: tuple[Clue, ...] = ()
    behind: tuple[str, ...] = ()
    plain = _clues(table, rng, target, taboo)
    if depth > 1:
        nested = _nested(table, rng, target, depth, taboo)
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
        if table.matching(query) == {target} and is_minimal(table, query):
            return query, (*behind, target)
    return None


def is_minimal(table: FactTable, query: EntityQuery) -> bool:
    """Whether no clause can be dropped, and none says it all."""
    alone = (table.holding(query.kind, clause) for clause in query.clauses)
    return all(len(found) > 1 for found in alone) and all(
        len(table.matching(rest)) > 1 for rest in query.without()
    )


def _nested(
    table: FactTable, rng: Random, target: str, depth: int, taboo: set[str]
) -> tuple[Clue, tuple[str, ...]] | None:
    """A clause about an entity that the target's facts name, identified by clues of its own."""
    facts = [
        fact
        for attribute, own in table.facts[target].items()
        if attribute not in taboo
        for fact in own
        if fact.ref in table.facts
        and len(table.naming[table.kinds[target], attribute][fact.ref]) > 1
    ]
    rng.shuffle(facts)
    for fact in facts:
        assert fact.ref is not None
        found = identify(table, rng, fact.ref, depth - 1, rng.choice((2, 2, 3)), set())
        if found is not None:
            query, evidence = found
            return Clue(attribute=fact.attribute, op="entity", entity=query), evidence
    return None


def _clues(table: FactTable, rng: Random, target: str, taboo: set[str]) -> list[Clue]:
    """One clause for each fact of the target that some other entity shares, exact or blurred."""
    kind = table.kinds[target]
    found = []
    for attribute in sorted(table.facts[target]):
        spec = table.spec(kind, attribute)
        if attribute in taboo or (spec is not None and spec.kind == "key"):
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
        low = int(value) - rng.randint(0, 6)
        high = int(value) + rng.randint(1, 6)
        return Clue(attribute=attribute, op="between", low=low, high=high)
    step = 10 ** max(0, len(str(int(abs(value)))) - 2)
    low = int(value) // step * step - rng.randint(0, 2) * step
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
        if table.header.attributes and not (spec and spec.ask.get(language)):
            continue
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

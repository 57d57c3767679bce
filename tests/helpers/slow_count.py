"""The slow reference of ``Census.count``: document by document, clause by clause."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from envgen.pipelines.search.questions import Clue, EntityQuery
from envgen.pipelines.search.readings import Statements
from envgen.store.corpus import CorpusDocument


def slow_count(
    query: EntityQuery, documents: Collection[CorpusDocument], *, by_text: bool = False
) -> list[str]:
    """The entities that a query picks, found by looking at every document of the class.

    See ``Census.count``.
    """
    of_class = [one for one in documents if one.kind == query.kind]
    said = Statements(of_class)
    fits = set(range(len(of_class)))
    for clause in query.clauses:
        inner = None
        if clause.entity is not None:
            inner = set(slow_count(clause.entity, documents, by_text=by_text))
        good = {row for row in fits if _holds(of_class[row], clause, inner)}
        if by_text:
            titles = [one.title for one in documents if one.id in (inner or ())]
            good |= set(_may_hold(of_class, clause, said, titles))
        fits &= good
    return [of_class[row].id for row in sorted(fits)]


def _may_hold(
    documents: Sequence[CorpusDocument], clause: Clue, said: Statements, titles: Collection[str]
) -> Iterator[int]:
    """The places of documents whose texts state what a clause asks for, beside their facts."""
    if clause.entity is not None:
        yield from said.naming(clause.attribute, titles)
    elif isinstance(clause.value, str):
        yield from said.naming(clause.attribute, [clause.value])
        for row, document in enumerate(documents):
            known = any(fact.attribute == clause.attribute for fact in document.facts)
            if not known and clause.value.casefold() in document.text.casefold():
                yield row
    else:
        low, high = clause.low, clause.high
        assert low is not None
        assert high is not None
        for row, one in said.numbers(clause.attribute, years="year" in clause.attribute):
            if one.low <= high and low <= one.high:
                yield row


def _holds(document: CorpusDocument, clause: Clue, inner: set[str] | None) -> bool:
    for fact in document.facts:
        if fact.attribute != clause.attribute:
            continue
        if inner is not None:
            good = fact.ref in inner
        elif clause.op == "is":
            good = fact.value == clause.value and isinstance(fact.value, str) == isinstance(
                clause.value, str
            )
        else:
            low, high = clause.low, clause.high
            number = not isinstance(fact.value, str) and low is not None and high is not None
            good = number and low <= fact.value <= high  # type: ignore[operator]  # numbers all
        if good:
            return True
    return False

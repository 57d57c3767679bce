"""The slow reference of ``Census.count``: document by document, clause by clause."""

from __future__ import annotations

from collections.abc import Collection

from envgen.pipelines.search.questions import Clue, EntityQuery
from envgen.store.corpus import CorpusDocument


def slow_count(
    query: EntityQuery, documents: Collection[CorpusDocument], *, by_text: bool = False
) -> list[str]:
    """The entities that a query picks, found by looking at every document of the class.

    See ``Census.count``.
    """
    inner = {
        i: set(slow_count(clause.entity, documents, by_text=by_text))
        for i, clause in enumerate(query.clauses)
        if clause.entity is not None
    }
    return [
        document.id
        for document in documents
        if document.kind == query.kind
        and all(
            _holds(document, clause, inner.get(i)) or (by_text and _may_hold(document, clause))
            for i, clause in enumerate(query.clauses)
        )
    ]


def _may_hold(document: CorpusDocument, clause: Clue) -> bool:
    if clause.op != "is" or not isinstance(clause.value, str):
        return False
    known = any(fact.attribute == clause.attribute for fact in document.facts)
    return not known and clause.value.casefold() in document.text.casefold()


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

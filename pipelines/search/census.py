"""Count which entities fit a query by looking at every document: how the gates count.

Questions are drawn from tables of postings (``FactTable``); this was written apart from them, so that a
mistake of one is not one of both. Here a clause is a row of yes and no over all documents of a class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envgen.pipelines.search.questions import Clue, EntityQuery
from envgen.store.corpus import CorpusDocument

Mask = NDArray[np.bool_]
_KEPT = 400
"""Clauses whose masks are kept: a question's are asked again with each of the others left out."""


class _FactColumn(NamedTuple):
    """All facts of an attribute in a class. Values stay Python's: their comparisons are exact."""

    rows: list[int]
    values: list[str | int | float]
    refs: list[str | None]


class Census:
    """The documents of a corpus, to be counted.

    Args:
        documents: all of them.
    """

    def __init__(self, documents: Iterable[CorpusDocument]) -> None:
        self._ids: defaultdict[str, list[str]] = defaultdict(list)
        self._texts: defaultdict[str, list[str]] = defaultdict(list)
        self._columns: defaultdict[tuple[str, str], _FactColumn] = defaultdict(
            lambda: _FactColumn([], [], [])
        )
        self._masks: dict[tuple[str, str, bool], Mask] = {}
        for document in documents:
            row = len(self._ids[document.kind])
            self._ids[document.kind].append(document.id)
            self._texts[document.kind].append(document.text.casefold())
            for fact in document.facts:
                column = self._columns[document.kind, fact.attribute]
                column.rows.append(row)
                column.values.append(fact.value)
                column.refs.append(fact.ref)

    def count(self, query: EntityQuery, *, by_text: bool = False) -> list[str]:
        """The entities that a query picks.

        Args:
            query: what is counted.
            by_text: also take a document that has no fact of a clause's attribute, and the value in its
                text: a reader might.
        """
        fits = np.ones(len(self._ids[query.kind]), bool)
        for clause in query.clauses:
            fits &= self._mask(query.kind, clause, by_text)
        names = self._ids[query.kind]
        return [names[row] for row in np.flatnonzero(fits)]

    def _mask(self, kind: str, clause: Clue, by_text: bool) -> Mask:
        key = kind, clause.model_dump_json(), by_text
        if key not in self._masks:
            if len(self._masks) >= _KEPT:
                self._masks.clear()
            self._masks[key] = self._stated(kind, clause, by_text)
            if by_text and clause.op == "is" and isinstance(clause.value, str):
                self._masks[key] |= self._unstated(kind, clause.attribute, clause.value)
        return self._masks[key]

    def _stated(self, kind: str, clause: Clue, by_text: bool) -> Mask:
        """The documents with a fact that a clause holds of."""
        column = self._columns[kind, clause.attribute]
        if clause.entity is not None:
            inner = set(self.count(clause.entity, by_text=by_text))
            good = [ref in inner for ref in column.refs]
        elif clause.op == "is":
            good = [value == clause.value for value in column.values]
        else:
            low, high = clause.low, clause.high
            assert low is not None
            assert high is not None
            good = [not isinstance(one, str) and low <= one <= high for one in column.values]
        return self._rows(kind, column, good)

    def _unstated(self, kind: str, attribute: str, value: str) -> Mask:
        """The documents without a fact of the attribute that have the value in their text."""
        wanted = value.casefold()
        column = self._columns[kind, attribute]
        known = self._rows(kind, column, [True] * len(column.rows))
        found: Mask = np.array([wanted in text for text in self._texts[kind]], bool)
        return found & ~known

    def _rows(self, kind: str, column: _FactColumn, good: list[bool]) -> Mask:
        mask = np.zeros(len(self._ids[kind]), bool)
        mask[np.array(column.rows, int)[np.array(good, bool)]] = True
        return mask

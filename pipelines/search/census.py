"""Count which entities fit a query by looking at every document: how the gates count.

Questions are drawn from tables of postings (``FactTable``); this was written apart from them, so that a
mistake of one is not one of both. Here a clause is a row of yes and no over all documents of a class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from envgen.pipelines.search.questions import Clue, EntityQuery
from envgen.store.corpus import CorpusDocument

Mask = NDArray[np.bool_]
_LEAST, _NEAR = 4, 0.8
_KEPT = 400
"""Clauses whose masks are kept: a question's are asked again with each of the others left out."""


class _FactColumn(NamedTuple):
    """All facts of an attribute in a class. Values stay Python's: their comparisons are exact."""

    rows: list[int]
    values: list[str | int | float]
    refs: list[str | None]


class NearDuplicates:
    """Texts that share most of their runs of three words.

    Two texts with a Jaccard similarity of J share the least hash of their runs with probability J (Broder,
    1997); of the least four, near duplicates share at least one as good as always. Those are compared whole.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._buckets: defaultdict[int, list[int]] = defaultdict(list)
        for row, text in enumerate(texts):
            for least in nsmallest(_LEAST, _runs(text)):
                self._buckets[least].append(row)

    def of(self, row: int, among: Mask | None = None) -> list[int]:
        """Other rows, of those ``among`` has, whose texts are nearly this row's."""
        own = _runs(self._texts[row])
        near = {one for least in nsmallest(_LEAST, own) for one in self._buckets[least]} - {row}
        return [
            one
            for one in sorted(near)
            if (among is None or among[one]) and _similarity(own, _runs(self._texts[one])) >= _NEAR
        ]


def _runs(text: str) -> set[int]:
    """Hashes of a text's runs of three words; of three characters where there are no spaces."""
    words = text.split()
    parts: Sequence[str] = words if len(words) > len(text) / 12 else text
    return {crc32(" ".join(parts[i : i + 3]).encode()) for i in range(max(1, len(parts) - 2))}


def _similarity(one: set[int], other: set[int]) -> float:
    return len(one & other) / max(1, len(one | other))


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
        self._alike: dict[str, NearDuplicates] = {}
        for document in documents:
            row = len(self._ids[document.kind])
            self._ids[document.kind].append(document.id)
            self._texts[document.kind].append(document.text.casefold())
            for fact in document.facts:
                column = self._columns[document.kind, fact.attribute]
                column.rows.append(row)
                column.values.append(fact.value)
                column.refs.append(fact.ref)

    def twins(self, query: EntityQuery, name: str) -> list[str]:
        """Documents that say nearly the same as one that a query picks, and of which no clause is false.

        A copy that lacks a fact does not fit by the facts, and a reader may mean it all the same.
        """
        kind = query.kind
        if kind not in self._alike:
            self._alike[kind] = NearDuplicates(self._texts[kind])
        possible = np.ones(len(self._ids[kind]), bool)
        for clause in query.clauses:
            column = self._columns[kind, clause.attribute]
            known = self._rows(kind, column, [True] * len(column.rows))
            possible &= self._mask(kind, clause, False) | ~known
        found = self._alike[kind].of(self._ids[kind].index(name), possible)
        return [self._ids[kind][one] for one in found]

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

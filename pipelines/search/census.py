"""Count which entities fit a query by looking at every document: how the gates count.

Questions are drawn from tables of postings (``FactTable``); this was written apart from them, so that a
mistake of one is not one of both. Here a clause is a row of yes and no over all documents of a class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from envgen.pipelines.search.questions import Clue, EntityQuery
from envgen.pipelines.search.readings import StatedNumber, Statements, saying
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
        years: keys (``class.attribute``) of the attributes whose values are years.
    """

    def __init__(self, documents: Iterable[CorpusDocument], years: Collection[str] = ()) -> None:
        self._years = years
        self._titles: dict[str, str] = {}
        self._documents: defaultdict[str, list[CorpusDocument]] = defaultdict(list)
        self._said: dict[str, Statements] = {}
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
            self._titles[document.id] = document.title
            self._documents[document.kind].append(document)
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
            by_text: also take a document whose text states what a clause asks for and no fact holds: a
                reader might.
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
            if by_text:
                self._masks[key] |= self._unstated(kind, clause)
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

    def _unstated(self, kind: str, clause: Clue) -> Mask:
        """The documents whose texts state what a clause asks for, where no fact does.

        A name may stand anywhere in a text that has no fact of the attribute; numbers, and names beside other
        facts, only where texts speak of the attribute.
        """
        said, attribute = self._statements(kind), clause.attribute
        mask = np.zeros(len(self._ids[kind]), bool)
        if clause.entity is not None:
            inner = self.count(clause.entity, by_text=True)
            mask[list(said.naming(attribute, [self._titles[one] for one in inner]))] = True
        elif isinstance(clause.value, str):
            wanted = saying(clause.value)
            column = self._columns[kind, attribute]
            known = self._rows(kind, column, [True] * len(column.rows))
            mask = (
                np.array([wanted.search(text) is not None for text in self._texts[kind]], bool)
                & ~known
            )
            mask[list(said.naming(attribute, [clause.value]))] = True
        else:
            low = clause.value if clause.op == "is" else clause.low
            high = clause.value if clause.op == "is" else clause.high
            assert low is not None
            assert high is not None
            numbers = said.numbers(attribute, years=f"{kind}.{attribute}" in self._years)
            mask[[row for row, one in numbers if one.low <= high and low <= one.high]] = True
        return mask

    def stated_beside(self, kind: str, attribute: str, name: str) -> list[StatedNumber]:
        """Numbers that a document's text states of an attribute, and no fact of it holds."""
        row = self._ids[kind].index(name)
        numbers = self._statements(kind).numbers(
            attribute, years=f"{kind}.{attribute}" in self._years
        )
        return [one for where, one in numbers if where == row]

    def named_beside(self, kind: str, attribute: str, name: str) -> list[str]:
        """Other values of an attribute that a document's text states, and no fact of it is."""
        return self._statements(kind).others(attribute, self._ids[kind].index(name))

    def _statements(self, kind: str) -> Statements:
        if kind not in self._said:
            self._said[kind] = Statements(self._documents[kind])
        return self._said[kind]

    def _rows(self, kind: str, column: _FactColumn, good: list[bool]) -> Mask:
        mask = np.zeros(len(self._ids[kind]), bool)
        mask[np.array(column.rows, int)[np.array(good, bool)]] = True
        return mask

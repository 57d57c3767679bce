"""Which learnt tokens carry the form of a reply and which decide: what two tokens before do not foretell.

Most of what a teacher writes follows from the format: brackets, argument names, the end of the turn. In a
small model these many easy tokens take most of the gradient from the few hard ones, such as the name that
answers the question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from envgen.train.sft import SFTRow


class Foretold:
    """How often a learnt token follows the two before it, counted over a teacher's rows."""

    def __init__(self, rows: Sequence[SFTRow]) -> None:
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._triples: Counter[tuple[int, int, int]] = Counter()
        for row in rows:
            for a, b, c in _triples(row):
                self._pairs[a, b] += 1
                self._triples[a, b, c] += 1

    def weighted(self, row: SFTRow, form: float) -> SFTRow:
        """The row with each weight times 1 where nothing foretells the token, ``form`` where all does."""
        if form == 1:
            return row
        share = [self._triples[t] / max(1, self._pairs[t[:2]]) for t in _triples(row)]
        weights = np.asarray([1 - (1 - form) * one for one in share], np.float32)
        return replace(row, weights=weights if row.weights is None else weights * row.weights)


def _triples(row: SFTRow) -> list[tuple[int, int, int]]:
    """Each learnt token with the two before it; -1 where there is none."""
    ids = [-1, -1, *row.ids.tolist()]
    return [(ids[i], ids[i + 1], ids[i + 2]) for i in row.places.tolist()]

"""A trick of the training demo: tokens that decide are learnt before those that carry the form of a reply.

Most of what a teacher writes follows from the format: brackets, argument names, the end of the turn. In a
small model these many easy tokens take most of the gradient from the few hard ones, such as the name that
answers the question. What it gains: ``docs/training.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from envgen.train.sft import SFTRow

FIRST = 0.6
"""In this first part of the run, tokens that are foretold count nothing,"""
FORM = 0.1
"""and then this much."""


class DecidingFirst:
    """Counts how often a learnt token follows the two before it, over a teacher's rows.

    A ``weighting`` of ``train_sft``.
    """

    def __init__(self, rows: Sequence[SFTRow]) -> None:
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._triples: Counter[tuple[int, int, int]] = Counter()
        for row in rows:
            for a, b, c in _triples(row):
                self._pairs[a, b] += 1
                self._triples[a, b, c] += 1

    def __call__(self, row: SFTRow, done: float) -> SFTRow:
        """The row with each weight times 1 where nothing foretells the token, less where all does.

        Args:
            row: learnt from.
            done: share of the run that is over.
        """
        form = 0.0 if done < FIRST else FORM
        share = [self._triples[t] / max(1, self._pairs[t[:2]]) for t in _triples(row)]
        weights = np.asarray([1 - (1 - form) * one for one in share], np.float32)
        return replace(row, weights=weights if row.weights is None else weights * row.weights)


def _triples(row: SFTRow) -> list[tuple[int, int, int]]:
    """Each learnt token with the two before it; -1 where there is none."""
    ids = [-1, -1, *row.ids.tolist()]
    return [(ids[i], ids[i + 1], ids[i + 2]) for i in row.places.tolist()]

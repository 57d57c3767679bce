"""What long rollouts lose: a share between 0 and 1, by one of three rules.

* ``ranked`` (the default): among the passing rollouts of a group, linear from 0 for the shortest to 1 for
  the longest (as in Kimi k1.5, section 2.3.3, for correct responses). Failing ones lose nothing, so a policy
  that can't solve a task yet is not taught to give up early.
* ``additive``: tokens over a limit's worth of them, for every rollout.
* ``overlong``: DAPO's soft overlong punishment (Yu et al. 2025, eq. 13): nothing up to ``limit - buffer``
  tokens, then linear, all of it from ``limit`` on; for every rollout.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

LengthForm = Literal["ranked", "additive", "overlong", "off"]

Floats = NDArray[np.float64]


def length_shares(
    form: LengthForm,
    lengths_I: NDArray[np.int64],
    passed_I: NDArray[np.bool_],
    group_I: NDArray[np.int64],
    *,
    limit: int,
    buffer: int,
) -> Floats:
    """The share of the length penalty that each rollout gets: [I], 0 to 1.

    Args:
        form: which rule; ``off`` gives zeros.
        lengths_I: model tokens of the rollouts.
        passed_I: whether their verifiers passed them.
        group_I: number of each rollout's group, 0 or more.
        limit: tokens at which ``additive`` and ``overlong`` take all.
        buffer: tokens before ``limit`` at which ``overlong`` begins.
    """
    if form == "off":
        return np.zeros(len(lengths_I))
    if form == "additive":
        return np.clip(lengths_I / limit, 0.0, 1.0)
    if form == "overlong":
        return np.clip((lengths_I - (limit - buffer)) / buffer, 0.0, 1.0)
    return ranked_shares(lengths_I, passed_I, group_I)


def ranked_shares(
    lengths_I: NDArray[np.int64], passed_I: NDArray[np.bool_], group_I: NDArray[np.int64]
) -> Floats:
    """(length - shortest) / (longest - shortest) over each group's passing rollouts; 0 for the others."""
    num_groups = int(group_I.max(initial=-1)) + 1
    shortest, longest = np.full(num_groups, np.inf), np.full(num_groups, -np.inf)
    np.minimum.at(shortest, group_I[passed_I], lengths_I[passed_I])
    np.maximum.at(longest, group_I[passed_I], lengths_I[passed_I])
    span_I = (longest - shortest)[group_I]
    ranked_I = passed_I & (span_I > 0)
    shares = np.zeros(len(lengths_I))
    shares[ranked_I] = (lengths_I - shortest[group_I])[ranked_I] / span_I[ranked_I]
    return shares

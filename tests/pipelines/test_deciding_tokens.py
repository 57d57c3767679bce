"""Which tokens decide, and what the others count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.pipelines.deciding_tokens import FIRST, FORM, DecidingFirst
from envgen.train.config import SFTConfig
from envgen.train.sft import SFTRow, sft_batch, sft_loss


def row(*ids: int, learnt: int) -> SFTRow:
    """The last ``learnt`` of the tokens are learnt."""
    places = np.arange(len(ids) - learnt, len(ids), dtype=np.int64)
    return SFTRow(np.array(ids, np.int32), places)


ROWS = [row(1, 2, 7, 3, learnt=3), row(1, 2, 8, 3, learnt=3), row(1, 2, 9, 3, learnt=3)]
"""After 1 comes 2, after (1, 2) anything, after that always 3."""


def test_what_always_follows_counts_little() -> None:
    begun = DecidingFirst(ROWS)(ROWS[0], 0.0).weights
    late = DecidingFirst(ROWS)(ROWS[0], FIRST).weights
    assert begun is not None
    assert late is not None
    assert begun.tolist() == pytest.approx([0, 1 - 1 / 3, 0])
    assert late.tolist() == pytest.approx([FORM, 1 - (1 - FORM) / 3, FORM])


def test_a_row_s_own_weight_stays_a_factor() -> None:
    halved = SFTRow(ROWS[0].ids, ROWS[0].places, weights=np.full(3, 0.5, np.float32))
    weights = DecidingFirst(ROWS)(halved, 0.0).weights
    assert weights is not None
    assert weights.tolist() == pytest.approx([0, 0.5 * 2 / 3, 0])


@pytest.mark.parametrize("pack_tokens", [0, 512])
def test_the_loss_is_the_weighted_mean_of_the_tokens(pack_tokens: int) -> None:
    model = DSAForCausalLM(preset("tiny", vocab_size=16, num_hidden_layers=1))
    model.reset_parameters(0)
    model.eval()
    weigh = DecidingFirst(ROWS)
    rows = [weigh(one, 0.9) for one in ROWS]
    found = sft_loss(model, sft_batch(rows, pack_tokens=pack_tokens), SFTConfig()).loss
    total = norm = 0.0
    with torch.no_grad():
        for one in rows:
            logits = model(torch.from_numpy(one.ids).long()[None]).logits[0]
            for place, weight in zip(one.places, one.weights, strict=True):  # type: ignore[arg-type]
                target = torch.tensor(int(one.ids[place]))
                total += float(weight) * float(cross_entropy(logits[place - 1], target))
                norm += float(weight)
    assert found.item() == pytest.approx(total / norm, rel=1e-5)

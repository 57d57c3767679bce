"""The k best keys are those of a plain sort, in whatever blocks and groups they are looked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from envgen.model import indexer
from envgen.model.indexer import HIDDEN, IndexQueries, index_scores, select, visible


def queries(batch: int, count: int, heads: int, width: int, levels: int) -> IndexQueries:
    """Small whole numbers, so that scores are exact and often equal."""
    draws = torch.Generator().manual_seed(count)
    q_BTJF = torch.randint(-levels, levels + 1, (batch, count, heads, width), generator=draws)
    w_BTJ = torch.randint(-2, 3, (batch, count, heads), generator=draws)
    return IndexQueries(q_BTJF.float(), w_BTJ.float())


def keys(batch: int, slots: int, width: int, levels: int) -> Tensor:
    draws = torch.Generator().manual_seed(slots)
    return torch.randint(-levels, levels + 1, (batch, slots, width), generator=draws).float()


def sorted_choice(scores_S: Tensor, seen_S: Tensor, num_kept: int) -> set[int]:
    order = sorted(
        (slot for slot in range(len(scores_S)) if seen_S[slot]),
        key=lambda slot: (-float(scores_S[slot]), slot),
    )
    return set(order[:num_kept])


def assert_best(
    asked: IndexQueries,
    keys_BSF: Tensor,
    slots_BT: Tensor,
    num_kept: int,
    valid_BS: Tensor | None = None,
    until_BS: Tensor | None = None,
) -> None:
    kept_BTK = select(asked, keys_BSF, slots_BT, num_kept, valid_BS, until_BS)
    assert kept_BTK.dtype is torch.int32
    assert kept_BTK.shape[2] == min(num_kept, keys_BSF.shape[1])
    scores_BTS = index_scores(asked, keys_BSF)
    seen_BTS = visible(slots_BT, keys_BSF.shape[1], valid_BS, until_BS)
    for row in range(len(slots_BT)):
        for query in range(slots_BT.shape[1]):
            kept = [slot for slot in kept_BTK[row, query].tolist() if slot != HIDDEN]
            assert len(set(kept)) == len(kept)
            wanted = sorted_choice(scores_BTS[row, query], seen_BTS[row, query], num_kept)
            assert set(kept) == wanted


@pytest.mark.parametrize("levels", [0, 1, 50], ids=["all equal", "many equal", "few equal"])
@pytest.mark.parametrize("num_kept", [1, 3, 8, 64])
@pytest.mark.parametrize("block", [1, 100, 1 << 19])
def test_a_whole_sequence(
    levels: int, num_kept: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "SCORE_BLOCK", block)
    slots_BT = torch.arange(61).expand(2, -1)
    assert_best(queries(2, 61, 3, 4, levels), keys(2, 61, 4, levels), slots_BT, num_kept)


@pytest.mark.parametrize("group", [2, 3, 8])
@pytest.mark.parametrize("num_slots", [96, 97, 103])
@pytest.mark.parametrize("levels", [0, 1, 50])
def test_groups_of_slots_change_nothing(
    group: int, num_slots: int, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "GROUP", group)
    slots_BT = torch.arange(num_slots - 20, num_slots).expand(1, -1)
    for num_kept in (1, 4, 5):
        assert_best(queries(1, 20, 3, 4, levels), keys(1, num_slots, 4, levels), slots_BT, num_kept)


@pytest.mark.parametrize("count", [1, 2])
def test_rows_of_a_batch_may_be_anywhere_in_their_sequences(count: int) -> None:
    slots_BT = torch.tensor([[0, 3], [40, 2], [199, 198], [5, 150]])[:, :count]
    assert_best(queries(4, count, 2, 4, 3), keys(4, 200, 4, 3), slots_BT, 6)


@pytest.mark.parametrize("block", [1, 1 << 19])
def test_padding_is_seen_by_itself_only(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "SCORE_BLOCK", block)
    slots_BT = torch.arange(100).expand(2, -1)
    valid_BS = torch.stack((torch.arange(100) >= 37, torch.arange(100) < 70))
    assert_best(queries(2, 100, 2, 4, 2), keys(2, 100, 4, 2), slots_BT, 3, valid_BS)


@pytest.mark.parametrize("block", [1, 300, 1 << 19])
def test_branches_of_a_prefix_do_not_see_one_another(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "SCORE_BLOCK", block)
    slots_BT = torch.arange(100).expand(2, -1)
    until_BS = torch.full((2, 100), 100)
    until_BS[0, 30:60], until_BS[0, 35:50], until_BS[1, 80:90] = 60, 50, 90
    asked, keys_BSF = queries(2, 100, 2, 4, 2), keys(2, 100, 4, 2)
    assert_best(asked, keys_BSF, slots_BT, 3, None, until_BS)
    valid_BS = torch.arange(100).expand(2, -1) < 95
    assert_best(asked, keys_BSF, slots_BT, 3, valid_BS, until_BS)

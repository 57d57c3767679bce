"""Rows from records, and their scores by the model that wrote them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from envgen.core.errors import ConfigError
from envgen.core.types import Message, StopReason, Trajectory, Turn
from envgen.model.config import preset
from envgen.model.engine import Engine, EngineConfig
from envgen.model.modeling import DSAForCausalLM
from envgen.model.requests import Request
from envgen.model.sampling import SamplingParams
from envgen.policies.dsa import reply_tokens
from envgen.train.batch import row_batch, score_batch
from envgen.train.rows import NOT_ROUTED, Row, rollout_rows, turn_rows

Arrays = dict[str, NDArray[Any]]


def trajectory(turns: int, capture: Any = "exact") -> Trajectory:
    return Trajectory(
        task_id="t",
        sample=0,
        policy="dsa",
        seed=0,
        messages=(Message(role="user", content="x"),),
        turns=tuple(Turn(message_index=i, capture=capture) for i in range(turns)),
        stop=StopReason.SUBMITTED,
    )


def turn(prompt: list[int], wrote: list[int], **more: Any) -> Arrays:
    found: Arrays = {
        "prompt_ids": np.array(prompt, np.int32),
        "completion_ids": np.array(wrote, np.int32),
        "logprobs": -np.arange(1, len(wrote) + 1, dtype=np.float32),
    }
    return found | more


def test_turns_that_extend_each_other_are_one_row() -> None:
    first, second = turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 9, 9], [5])
    (row,) = rollout_rows(trajectory(2), {0: first, 1: second}, 7)
    assert row.ids.tolist() == [1, 2, 3, 4, 9, 9, 5]
    assert row.places.tolist() == [2, 3, 6]
    assert row.old.tolist() == [-1, -2, -1]
    assert row.rollout == 7


@pytest.mark.parametrize("prompt", [[1, 2, 9], [1, 7, 3, 4, 9], [1, 2, 3, 8, 9], [1, 2, 3]])
def test_a_past_that_was_rendered_again_begins_a_row(prompt: list[int]) -> None:
    tokens = {0: turn([1, 2], [3, 4]), 1: turn(prompt, [5])}
    first, second = rollout_rows(trajectory(2), tokens, 0)
    assert first.ids.tolist() == [1, 2, 3, 4]
    assert second.ids.tolist() == [*prompt, 5]


def test_masks_of_turns_with_and_without_truncation_join() -> None:
    mask = {
        "mask_offsets": np.array([0, 2, 3], np.int32),
        "mask_ids": np.array([3, 8, 4], np.int32),
    }
    tokens = {0: turn([1], [3, 4], **mask), 1: turn([1, 3, 4, 9], [5])}
    (row,) = rollout_rows(trajectory(2), tokens, 0)
    assert row.mask_offsets is not None
    assert row.mask_ids is not None
    assert row.mask_offsets.tolist() == [0, 2, 3, 3]
    assert row.mask_ids.tolist() == [3, 8, 4]


def records(tokens: int, value: int, **more: Any) -> Arrays:
    """Routing and key sets of so many tokens, all alike."""
    return {
        "routing": np.full((tokens, 1, 2), value, np.uint16),
        "topk": np.full((tokens, 1, min(4, tokens)), value, np.int32),
        **more,
    }


@pytest.mark.parametrize("whole", [True, False])
def test_each_token_has_the_records_of_the_turn_that_went_on_from_it(whole: bool) -> None:
    """A later turn computes the end of a reply again, and may choose otherwise."""
    second = records(6, 2) if whole else records(3, 2, captured_from=np.array(3))
    tokens = {
        0: turn([1, 2], [3, 4], **records(3, 1)),
        1: turn([1, 2, 3, 4, 9, 9], [5], **second),
    }
    (row,) = rollout_rows(trajectory(2), tokens, 0)
    assert row.routing is not None
    assert row.topk is not None
    assert row.routing[:, 0, 0].tolist() == [1, 1, 1, 2, 2, 2, NOT_ROUTED]
    assert row.topk[:, 0, 0].tolist() == [1, 1, 1, 2, 2, 2]
    assert row.topk.shape == (6, 1, 4 if whole else 3)


def test_records_with_a_gap_are_refused() -> None:
    late = records(2, 2, captured_from=np.array(4))
    tokens = {
        0: turn([1, 2], [3, 4], **records(3, 1)),
        1: turn([1, 2, 3, 4, 9, 9], [5], **late),
    }
    with pytest.raises(ConfigError, match="from token 4 on, where 3 are known"):
        rollout_rows(trajectory(2), tokens, 0)


@pytest.mark.parametrize("known", [True, False])
def test_turns_of_an_engine_score_as_they_were_drawn(known: bool) -> None:
    """The second turn computes the end of the first again by other weights; what was drawn with counts."""
    model = DSAForCausalLM(preset("tiny", vocab_size=60, index_topk=8, num_hidden_layers=2)).eval()
    sets = SamplingParams(max_new_tokens=9, capture_topk=True)
    first = Engine(model, EngineConfig()).generate([Request(list(range(20)), sets)])[0]
    prompt = [*range(20), *first.ids.tolist(), 7, 8, 9]
    with torch.no_grad():
        for weight in (*model.indexer_parameters(), *(gate.weight for gate in model.gates())):
            weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(3))
    start = len(prompt) - 4 if known else 0
    again = replace(sets, capture_from=start)
    second = Engine(model, EngineConfig()).generate([Request(prompt, again)])[0]
    (row,) = turn_rows([reply_tokens(first).arrays(), reply_tokens(second).arrays()], 0)
    assert row.topk is not None
    assert row.routing is not None
    assert row.topk is not None
    assert first.topk is not None
    assert second.topk is not None
    assert second.topk.shape[0] == len(prompt) + 8 - start
    assert np.array_equal(row.topk[:28], first.topk)
    assert np.array_equal(row.topk[28:], second.topk[28 - start :])
    assert first.routing is not None
    assert np.array_equal(row.routing[:28], first.routing)
    whole = Engine(model, EngineConfig()).generate([Request(prompt, sets)])[0]
    assert whole.topk is not None
    assert not np.array_equal(whole.topk[:28], first.topk)  # the end alone would not show it
    assert np.array_equal(whole.topk[start:], second.topk)


def test_routing_covers_all_but_the_last_token() -> None:
    routing = np.arange(3, dtype=np.uint16).reshape(3, 1, 1)
    (row,) = rollout_rows(trajectory(1), {0: turn([1, 2], [3, 4], routing=routing)}, 0)
    assert row.routing is not None
    assert row.routing[:, 0, 0].tolist() == [0, 1, 2, NOT_ROUTED]
    short = turn([1, 2], [3, 4], routing=routing[:2])
    with pytest.raises(ConfigError, match="routing for 2, not 3"):
        rollout_rows(trajectory(1), {0: short}, 0)


@pytest.mark.parametrize(
    ("tokens", "match"),
    [
        ({}, "captured as text"),
        ({0: {k: v for k, v in turn([1], [2]).items() if k != "logprobs"}}, "no log-prob"),
        ({0: turn([1], [2], raw_logprobs=np.array(True))}, "raw log-prob"),
    ],
)
def test_records_that_can_not_be_trained_on_are_refused(
    tokens: dict[int, Arrays], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        rollout_rows(trajectory(1), tokens, 0)


def test_captured_as_text_is_refused_even_with_arrays() -> None:
    with pytest.raises(ConfigError, match="captured as text"):
        rollout_rows(trajectory(1, "text"), {0: turn([1], [2])}, 0)


def sampled_row(model: DSAForCausalLM, length: int, prompt: int, rollout: int, seed: int) -> Row:
    """What an engine would record of random ids, by the model's own forward pass."""
    ids = torch.randint(
        0, model.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(seed)
    )
    with torch.no_grad():
        output = model(ids, capture_topk=True)
    logp = output.logits.float().log_softmax(-1)[0, torch.arange(length - 1), ids[0, 1:]]
    assert output.routing_BTXA is not None
    assert output.topk is not None
    routing = output.routing_BTXA[0].numpy().astype(np.uint16)
    routing[-1] = NOT_ROUTED
    return Row(
        rollout=rollout,
        ids=ids[0].numpy().astype(np.int32),
        places=np.arange(prompt, length),
        old=logp[prompt - 1 :].numpy(),
        routing=routing,
        topk=torch.stack([kept[0, :-1] for kept in output.topk], 1).numpy(),
    )


@pytest.mark.parametrize("replay", [True, False])
def test_padded_rows_score_as_they_were_sampled(replay: bool) -> None:
    model = DSAForCausalLM(preset("tiny", vocab_size=60, index_topk=8)).eval()
    rows = [sampled_row(model, 30, 10, 0, 1), sampled_row(model, 17, 4, 1, 2)]
    batch = row_batch(rows)
    with torch.no_grad():
        scored = score_batch(model, batch, 1.0, keep_routing=replay, keep_topk=replay)
    torch.testing.assert_close(scored.scores.logp_N, batch.old_N, atol=1e-5, rtol=0)
    assert batch.rollout_N.tolist() == [0] * 20 + [1] * 13
    torch.testing.assert_close(scored.scores.kept_mass_N, torch.ones(33))


def test_replay_repeats_choices_after_the_weights_moved() -> None:
    model = DSAForCausalLM(preset("tiny", vocab_size=60, index_topk=8)).eval()
    rows = [sampled_row(model, 40, 10, 0, 3)]
    with torch.no_grad():
        for gate in model.gates():
            gate.weight.normal_(0, 1)
    batch = row_batch(rows)
    with torch.no_grad():
        kept = score_batch(model, batch, 1.0).routing_BTXA
        own = score_batch(model, batch, 1.0, keep_routing=False).routing_BTXA
    assert kept is not None
    assert own is not None
    recorded = batch.routing_BTXA
    assert recorded is not None
    assert torch.equal(kept[:, :-1], recorded[:, :-1])
    assert not torch.equal(own.sort(-1).values[:, :-1], recorded.sort(-1).values[:, :-1])

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from envgen.core.errors import ConfigError
from envgen.core.types import Message, ToolCall
from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.model.tokenizer import train_tokenizer
from envgen.policies.encoding import Encoding, EncodingConfig, make_encoding, tokenizer_config
from envgen.train.config import SFTConfig
from envgen.train.sft import SFTRow, batches_by_length, sft_batch, sft_loss, sft_rows


@pytest.fixture(scope="module", params=["compact", "dsml"])
def encoding(request: pytest.FixtureRequest) -> Encoding:
    config = EncodingConfig(kind=request.param, thinking=True)
    tokenizer = train_tokenizer(
        ["which room has a floor"] * 4, tokenizer_config(config, vocab_size=400)
    )
    return make_encoding(config, tokenizer)


def call(name: str, turn: int) -> Message:
    tool_call = ToolCall(id=f"call_{turn}_0", name=name, arguments={"n": turn})
    return Message(role="assistant", content="", reasoning="let me look", tool_calls=(tool_call,))


CONVERSATION = (
    Message(role="user", content="Which room?"),
    call("list_rooms", 0),
    Message(role="tool", content="[1,2]", tool_call_id="call_0_0"),
    Message(role="assistant", content="Room 1.", reasoning="one is first"),
    Message(role="user", content="And the last?"),
    Message(role="assistant", content="Room 2.", reasoning="two is last"),
)


def test_a_new_user_message_begins_a_row_in_which_reasoning_is_forgotten(
    encoding: Encoding,
) -> None:
    first, second = sft_rows(encoding, CONVERSATION, [])
    prompt = encoding.prompt(CONVERSATION[:5], [])
    assert second.ids[: len(prompt)].tolist() == prompt
    assert second.places.tolist() == list(range(len(prompt), len(second.ids)))
    decoded = encoding.tokenizer.decode(first.ids)
    assert "let me look" in decoded
    assert "one is first" in decoded
    assert "one is first" not in encoding.tokenizer.decode(second.ids)


def test_exactly_the_models_own_tokens_are_learnt(encoding: Encoding) -> None:
    first, second = sft_rows(encoding, CONVERSATION, [])
    learnt = [first.ids[first.places].tolist(), second.ids[second.places].tolist()]
    completions = [encoding.completion(CONVERSATION[i]) for i in (1, 3, 5)]
    assert learnt == [completions[0] + completions[1], completions[2]]


def test_a_conversation_without_replies_is_refused(encoding: Encoding) -> None:
    with pytest.raises(ConfigError, match="teaches nothing"):
        sft_rows(encoding, CONVERSATION[:1], [])


def test_the_loss_is_the_mean_over_learnt_tokens_and_padding_changes_nothing() -> None:
    model = DSAForCausalLM(preset("tiny", vocab_size=50)).eval()
    rows = [
        SFTRow(np.arange(1, 9, dtype=np.int32), np.array([3, 4, 7])),
        SFTRow(np.arange(20, 25, dtype=np.int32), np.array([2])),
    ]
    losses = []
    for row in rows:
        logits = model(torch.from_numpy(row.ids.astype(np.int64))[None]).logits[0]
        losses += [
            cross_entropy(logits[place - 1], torch.tensor(int(row.ids[place])))
            for place in row.places
        ]
    found = sft_loss(model, sft_batch(rows), SFTConfig())
    torch.testing.assert_close(found.loss, torch.stack(losses).mean())
    weighted = sft_loss(model, sft_batch(rows), SFTConfig(context_weight=0.1))
    torch.testing.assert_close(weighted.learnt_loss, found.loss)
    assert weighted.loss > found.loss


def test_batches_hold_every_row_once_and_like_lengths() -> None:
    rows = [SFTRow(np.zeros(n, np.int32), np.array([1])) for n in (5, 60, 7, 55, 6, 8, 58, 5, 500)]
    batches = list(batches_by_length(rows, 120, Random(0)))
    assert sorted(i for batch in batches for i in batch) == list(range(9))
    sizes = [[len(rows[i].ids) for i in batch] for batch in batches]
    assert all(len(batch) * max(batch) <= 120 or len(batch) == 1 for batch in sizes)
    padded = sum(len(batch) * max(batch) for batch in sizes)
    assert padded < 1.2 * sum(map(sum, sizes))


def test_batches_mix_what_is_alike_in_length() -> None:
    """Where length tells the kind of task, no batch is of one kind."""
    rows = [SFTRow(np.zeros(50 + i % 4, np.int32), np.array([1])) for i in range(400)]
    batches = list(batches_by_length(rows, 1_100, Random(0)))
    kinds = [{len(rows[i].ids) for i in batch} for batch in batches[:-1]]
    assert sum(len(kind) == 4 for kind in kinds) > 0.8 * len(kinds)

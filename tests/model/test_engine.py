"""Replies are exact whatever happens beside them: batching, chunks, reuse, preemption."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dsa_samples import small_model
from engine_samples import (
    assert_alike,
    assert_exact,
    assert_nothing_leaks,
    mixed_requests,
    request,
    small_engine,
)

from envgen.core.errors import ConfigError
from envgen.model.engine import Engine, EngineConfig
from envgen.model.requests import Completion, PromptTooLongError, Request
from envgen.model.sampling import SamplingParams


def bytes_of(reply: Completion) -> list[bytes | None]:
    return [
        array if array is None else array.tobytes()
        for array in (reply.ids, reply.logprobs, reply.full_logprobs, reply.mask_ids, reply.routing)
    ]


# One reply


def test_a_batch_equals_one_by_one() -> None:
    model, requests = small_model(), mixed_requests(24)
    together = small_engine(model).generate(requests)
    for asked, reply in zip(requests, together, strict=True):
        alone = small_engine(model, max_batch=1).generate([asked])[0]
        assert_alike(reply, alone)


@pytest.mark.parametrize("chunk", [4, 16, 512])
def test_every_record_equals_the_models_own_pass(chunk: int) -> None:
    model = small_model()
    engine = small_engine(model, prefill_chunk_tokens=chunk)
    requests = mixed_requests(30, seed=chunk)
    for asked, reply in zip(requests, engine.generate(requests), strict=True):
        assert_exact(model, asked, reply)
        assert_exact(model, asked, reply, replay=True)
    assert_nothing_leaks(engine)


@pytest.mark.parametrize(
    "changes",
    [
        {"first_k_dense_replace": 2},
        {"first_k_dense_replace": 0, "index_hadamard": True, "indexer_rope_interleave": True},
        {"attention_bias": True, "n_shared_experts": 0, "norm_topk_prob": False},
        {"tie_word_embeddings": True, "index_topk": 1000},
        {"n_shared_experts": 2, "index_topk": 1, "rms_norm_eps": 1e-3},
    ],
    ids=str,
)
def test_every_kind_of_model_is_served_exactly(changes: dict[str, Any]) -> None:
    model = small_model(**changes)
    requests = mixed_requests(12, capture_topk=True)
    for asked, reply in zip(requests, small_engine(model).generate(requests), strict=True):
        assert_exact(model, asked, reply)
        assert (reply.routing is None) == (not model.config.has_experts)


def test_the_same_requests_give_the_same_bytes() -> None:
    model, requests = small_model(), mixed_requests(20)
    first, second = (small_engine(model).generate(requests) for _ in range(2))
    assert [bytes_of(reply) for reply in first] == [bytes_of(reply) for reply in second]


def test_the_seed_matters_and_nothing_else_does() -> None:
    engine = small_engine()
    asked = [request(9, seed=1), request(9, seed=1), request(9, seed=2)]
    ids = [reply.ids.tolist() for reply in engine.generate(asked)]
    assert ids[0] == ids[1]
    other = Request(asked[0].prompt_ids, SamplingParams(max_new_tokens=12, seed=2))
    assert engine.generate([other])[0].ids.tolist() != ids[0]


def test_replies_end_by_stop_id_length_and_context() -> None:
    engine = small_engine(max_context=20)
    free = engine.generate([request(6)])[0]
    assert free.finish_reason == "length"
    assert len(free.ids) == 12
    stop = int(free.ids[3])
    before = free.ids.tolist().index(stop)
    ended = engine.generate([request(6, stop_ids=(stop,))])[0]
    assert ended.finish_reason == "stop"
    assert ended.ids.tolist() == free.ids.tolist()[: before + 1]
    cut = engine.generate([request(15)])[0]
    assert cut.finish_reason == "length"
    assert len(cut.ids) == 5


def test_unwanted_records_are_left_out() -> None:
    engine = small_engine()
    reply = engine.generate([request(5, capture_routing=False)])[0]
    assert (reply.routing, reply.topk, reply.mask_ids, reply.mask_offsets) == (None,) * 4
    assert reply.policy_version == ""


def test_masks_are_rows_that_hold_the_drawn_id() -> None:
    reply = small_engine().generate([request(5, top_p=0.8, max_kept=9)])[0]
    assert reply.mask_offsets is not None
    assert reply.mask_ids is not None
    assert reply.mask_offsets.dtype == reply.mask_ids.dtype == np.int32
    for row, token in enumerate(reply.ids):
        kept = reply.mask_ids[reply.mask_offsets[row] : reply.mask_offsets[row + 1]]
        assert token in kept
        assert 1 <= len(kept) <= 9
        assert (np.diff(kept) > 0).all()


# Requests that can't be served


@pytest.mark.parametrize("length", [16, 40])
def test_a_prompt_without_room_is_refused_and_others_are_not(length: int) -> None:
    engine = small_engine(max_context=16)
    with pytest.raises(PromptTooLongError, match=f"{length} tokens; the engine holds 16"):
        engine.generate([request(5), request(length)])
    assert len(engine.generate([request(15)])[0].ids) == 1
    with engine, pytest.raises(PromptTooLongError):
        engine.submit(request(length))


def test_a_prompt_that_the_cache_can_never_hold_is_refused() -> None:
    with pytest.raises(PromptTooLongError, match="holds 24"):
        small_engine(cache_tokens=24).generate([request(24)])


@pytest.mark.parametrize(("ids", "message"), [([], "no tokens"), ([1, 96], "96"), ([-1], "-1")])
def test_prompts_that_are_no_text_are_refused(ids: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small_engine().generate([Request(ids)])


def test_a_cache_smaller_than_a_page_is_refused() -> None:
    with pytest.raises(ConfigError, match="less than a page"):
        Engine(small_model(), EngineConfig(cache_bytes=100))


# Reuse


def test_a_group_prefills_once() -> None:
    model = small_model()
    engine = small_engine(model)
    prompt = request(50).prompt_ids
    group = [Request(prompt, SamplingParams(seed=i, max_new_tokens=9)) for i in range(8)]
    replies = engine.generate(group)
    assert engine.stats().prefilled_tokens == 49
    assert sorted(reply.cached_tokens for reply in replies) == [0, *[49] * 7]
    for asked, reply in zip(group, replies, strict=True):
        assert_exact(model, asked, reply)
    assert_nothing_leaks(engine)


def test_a_group_larger_than_the_batch_prefills_its_pages_once() -> None:
    engine = small_engine(max_batch=2)
    prompt = request(50).prompt_ids
    engine.generate([Request(prompt, SamplingParams(seed=i, max_new_tokens=5)) for i in range(6)])
    # 48 tokens fill pages; the 49th is computed again by whoever finds no sibling to copy from.
    assert engine.stats().prefilled_tokens <= 49 + 4


def test_a_later_turn_computes_only_what_is_new() -> None:
    model = small_model()
    engine = small_engine(model)
    first_ask = request(30, capture_topk=True)
    first = engine.generate([first_ask])[0]
    before = engine.stats().prefilled_tokens
    longer = [*first_ask.prompt_ids, *first.ids.tolist(), *request(7, seed=9).prompt_ids]
    asked = Request(longer, SamplingParams(max_new_tokens=8, capture_topk=True))
    reply = engine.generate([asked])[0]
    # 30 + 12 - 1 tokens were computed; 40 of them fill pages.
    assert reply.cached_tokens == 40
    assert engine.stats().prefilled_tokens - before == len(longer) - 1 - 40
    assert_exact(model, asked, reply)


def test_prompts_with_a_common_beginning_share_it_while_it_is_computed() -> None:
    model = small_model()
    engine = small_engine(model)
    tools = list(request(32).prompt_ids)
    asked = [
        Request(
            [*tools, *request(10 + i, seed=i).prompt_ids], SamplingParams(seed=i, max_new_tokens=4)
        )
        for i in range(5)
    ]
    replies = engine.generate(asked)
    assert engine.stats().prefilled_tokens == 32 + sum(10 + i - 1 for i in range(5))
    for one, reply in zip(asked, replies, strict=True):
        assert_exact(model, one, reply)


def test_without_reuse_everything_is_computed() -> None:
    engine = small_engine(prefix_reuse=False)
    prompt = request(21).prompt_ids
    replies = engine.generate([Request(prompt, SamplingParams(max_new_tokens=2))] * 3)
    assert engine.stats().prefilled_tokens == 60
    assert [reply.cached_tokens for reply in replies] == [0, 0, 0]
    assert engine.stats().free_pages == engine.num_pages


def test_key_sets_are_never_taken_from_pages_without_them() -> None:
    model = small_model()
    engine = small_engine(model)
    engine.generate([request(40)])
    asked = request(40, capture_topk=True)
    reply = engine.generate([asked])[0]
    assert reply.cached_tokens == 0
    assert_exact(model, asked, reply)


def test_old_pages_make_room_least_recently_used_first() -> None:
    engine = small_engine(cache_tokens=96)
    engine.generate([request(40, seed=1, max_new=1)])
    engine.generate([request(40, seed=2, max_new=1)])
    assert engine.generate([request(40, seed=1, max_new=1)])[0].cached_tokens == 39 // 4 * 4
    engine.generate([request(40, seed=3, max_new=1)])
    assert engine.generate([request(40, seed=1, max_new=1)])[0].cached_tokens == 39 // 4 * 4
    assert engine.generate([request(40, seed=2, max_new=1)])[0].cached_tokens < 39 // 4 * 4


def test_new_weights_are_used_after_refresh() -> None:
    model = small_model()
    engine = small_engine(model, policy_version="step-1")
    asked = request(30)
    before = engine.generate([asked])[0]
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.3)
    engine.refresh("step-2")
    after = engine.generate([asked])[0]
    assert (before.policy_version, after.policy_version) == ("step-1", "step-2")
    assert after.cached_tokens == 0
    assert_exact(model, asked, after)


# Too little memory


@pytest.mark.parametrize("cache_tokens", [80, 128, 256])
def test_preempted_replies_are_the_same(cache_tokens: int) -> None:
    model = small_model()
    requests = [
        *mixed_requests(20, seed=4),
        *[request(30, seed=50 + i, max_new=45) for i in range(6)],
    ]
    easy = small_engine(model).generate(requests)
    tight = small_engine(model, cache_tokens=cache_tokens, max_context=80)
    replies = tight.generate(requests)
    assert tight.stats().preemptions > 0
    for asked, reply, relaxed in zip(requests, replies, easy, strict=True):
        assert_alike(reply, relaxed)
        assert_exact(model, asked, reply)
    assert_nothing_leaks(tight)


@pytest.mark.parametrize("capture_from", [0, 5])
def test_a_preempted_reply_keeps_the_routes_and_key_sets_that_it_was_sampled_with(
    capture_from: int,
) -> None:
    model = small_model()
    settings = {"max_new": 20, "capture_topk": True, "capture_from": capture_from}
    requests = [request(24, seed=1, **settings), request(24, seed=2, **settings)]
    firsts = small_engine(model, fused=False, prefix_reuse=False).generate(requests)
    tight = small_engine(model, cache_tokens=64, fused=False, prefix_reuse=False)

    bias = torch.tensor([9.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    opposite = [-weight.detach() for weight in model.indexer_parameters()]

    def choose_otherwise(*_: Any) -> None:
        """As rounding might, when tokens are computed again: other experts, other keys."""
        if tight.stats().preemptions:
            for gate in model.gates():
                gate.e_score_correction_bias.copy_(bias)
            for weight, other in zip(model.indexer_parameters(), opposite, strict=True):
                weight.data.copy_(other)

    hook = model.register_forward_pre_hook(choose_otherwise)
    older, younger = tight.generate(requests)
    hook.remove()
    assert tight.stats().preemptions == 1
    for reply, first in zip((older, younger), firsts, strict=True):
        # Both were under way until the 64 tokens of the cache were full: 32 each.
        known = slice(0, 30 - capture_from)
        assert reply.routing is not None
        assert reply.topk is not None
        assert first.routing is not None
        assert first.topk is not None
        np.testing.assert_array_equal(reply.routing[known], first.routing[known])
        np.testing.assert_array_equal(reply.topk[known], first.topk[known])
    assert younger.routing is not None
    again = younger.routing[32 - capture_from :]
    assert (np.sort(again) == [0, 1, 2]).all()


def test_the_cache_may_be_sized_in_bytes() -> None:
    model = small_model()
    row_bytes = (16 + 8 + 16) * 4 * 2
    engine = Engine(model, EngineConfig(cache_bytes=row_bytes * 100, page_tokens=8))
    assert engine.num_pages == 12
    assert engine.max_context == 96

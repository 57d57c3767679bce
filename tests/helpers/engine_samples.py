"""Engines over small models, random requests for them, and what their replies must satisfy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from dsa_samples import small_model

from envgen.model.engine import Engine, EngineConfig
from envgen.model.modeling import DSAForCausalLM, Replay
from envgen.model.requests import Completion, Request
from envgen.model.sampling import SamplingParams

VOCAB = 96


def small_engine(model: DSAForCausalLM | None = None, **settings: Any) -> Engine:
    """An engine that pages by 4 tokens and prefills by 16, so that a few dozen tokens meet every border."""
    defaults: dict[str, Any] = {
        "page_tokens": 4,
        "prefill_chunk_tokens": 16,
        "cache_tokens": 2048,
        "max_batch": 8,
    }
    return Engine(model or small_model(), EngineConfig(**{**defaults, **settings}))


def request(length: int, seed: int = 0, max_new: int = 12, **settings: Any) -> Request:
    """A random prompt."""
    draws = random.Random(1000 + seed)
    ids = [draws.randrange(VOCAB) for _ in range(length)]
    return Request(ids, SamplingParams(max_new_tokens=max_new, seed=seed, **settings))


def mixed_requests(count: int, seed: int = 0, **settings: Any) -> list[Request]:
    """Prompts of 1 to 60 tokens, all ways to sample."""
    draws = random.Random(seed)
    return [
        request(
            draws.randint(1, 60),
            seed=seed * 1000 + i,
            max_new=draws.randint(1, 20),
            **{
                "temperature": draws.choice([0.0, 0.7, 1.0]),
                "top_p": draws.choice([1.0, 0.9]),
                "top_k": draws.choice([-1, 20]),
                "stop_ids": draws.choice([(), (3, 5, 8)]),
                "capture_topk": draws.random() < 0.3,
                **settings,
            },
        )
        for i in range(count)
    ]


@torch.no_grad()
def assert_exact(
    model: DSAForCausalLM, asked: Request, reply: Completion, *, replay: bool = False
) -> None:
    """Every record of a reply agrees with one pass of the model over the whole text, to 1e-5.

    Args:
        model: that made the reply.
        asked: what it answers.
        reply: what is judged.
        replay: repeat the recorded experts and key sets instead of choosing live.
    """
    params, start = asked.params, len(asked.prompt_ids)
    assert reply.prompt_ids.tolist() == list(asked.prompt_ids)
    whole = torch.tensor([[*asked.prompt_ids, *reply.ids.tolist()]])[:, :-1]
    given = None
    if replay:
        experts = None
        if reply.routing is not None:
            experts = torch.from_numpy(reply.routing.astype(np.int64))[None]
        kept = None
        if reply.topk is not None:
            kept = [torch.from_numpy(reply.topk[None, :, i]) for i in range(reply.topk.shape[1])]
        given = Replay(experts, kept)
    out = model(whole, replay=given, capture_topk=params.capture_topk)
    x = out.logits[0, start - 1 :].double() / (params.temperature or 1.0)
    chosen = torch.from_numpy(reply.ids).long()[:, None]
    full = x.log_softmax(-1).gather(1, chosen)[:, 0]
    np.testing.assert_allclose(reply.full_logprobs, full.numpy(), atol=1e-5)
    masked = x
    if reply.mask_ids is not None and reply.mask_offsets is not None:
        masked = torch.full_like(x, float("-inf"))
        for row, (a, b) in enumerate(
            zip(reply.mask_offsets[:-1], reply.mask_offsets[1:], strict=True)
        ):
            kept_ids = torch.from_numpy(reply.mask_ids[a:b]).long()
            masked[row, kept_ids] = x[row, kept_ids]
    logprobs = masked.log_softmax(-1).gather(1, chosen)[:, 0]
    np.testing.assert_allclose(reply.logprobs, logprobs.numpy(), atol=1e-5)
    if reply.routing is not None:
        assert out.routing_BTXA is not None
        mine = np.sort(out.routing_BTXA[0].numpy(), -1)
        assert (np.sort(reply.routing, -1) == mine).all()
    if params.capture_topk:
        assert out.topk is not None
        assert_same_sets(reply, out.topk)


def assert_same_sets(reply: Completion, topk: Sequence[torch.Tensor]) -> None:
    """The recorded key sets are those of a pass."""
    assert reply.topk is not None
    assert reply.topk.shape[:2] == (len(reply.prompt_ids) + len(reply.ids) - 1, len(topk))
    for layer, kept_BTK in enumerate(topk):
        for recorded, seen in zip(reply.topk[:, layer].tolist(), kept_BTK[0].tolist(), strict=True):
            kept = [slot for slot in recorded if slot >= 0]
            assert len(set(kept)) == len(kept)
            assert set(kept) == {slot for slot in seen if slot >= 0}


def assert_alike(one: Completion, other: Completion) -> None:
    """The same reply, but for rounding."""
    assert one.ids.tolist() == other.ids.tolist()
    assert one.finish_reason == other.finish_reason
    np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)
    np.testing.assert_allclose(one.full_logprobs, other.full_logprobs, atol=1e-5)


def assert_nothing_leaks(engine: Engine) -> None:
    """Nobody runs, and all pages are free once what is known is forgotten."""
    total = engine.stats()
    assert (total.waiting, total.running) == (0, 0)
    assert total.free_pages + total.known_pages == engine.num_pages
    engine.refresh()
    assert engine.stats().free_pages == engine.num_pages

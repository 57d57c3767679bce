"""Decoding by prepared weights gives what the model's own forward pass gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dsa_samples import YARN, sets_of, shake, small_model, tokens
from engine_samples import assert_exact, mixed_requests, request, small_engine
from torch import Tensor

from envgen.model.config import preset
from envgen.model.decode import Decoder, fusing_pays
from envgen.model.modeling import DSAForCausalLM, Output
from envgen.model.paged import CacheView, PagedCache

PAGE = 4
KINDS: list[dict[str, Any]] = [
    {},
    {"first_k_dense_replace": 2},
    {"first_k_dense_replace": 0, "n_shared_experts": 2, "topk_group": 2},
    {"attention_bias": True, "n_shared_experts": 0, "norm_topk_prob": False},
    {"index_hadamard": True, "indexer_rope_interleave": True, "rope": YARN},
    {"index_fp8": True, "index_hadamard": True, "tie_word_embeddings": True},
    {"num_attention_heads": 1, "index_topk": 1, "rms_norm_eps": 1e-3},
    {"index_topk": 1000, "routed_scaling_factor": 2.5},
]


class Twins:
    """One batch decoded twice, by the model and by prepared weights, on caches of their own."""

    def __init__(self, model: DSAForCausalLM, lengths: list[int], most: int) -> None:
        self.model = model
        per_row = -(-most // PAGE)
        self.caches = [PagedCache(model.config, len(lengths) * per_row, PAGE) for _ in range(2)]
        pages = [self.caches[0].take(per_row) for _ in lengths]
        draws = torch.Generator().manual_seed(len(lengths))
        # Neighbours in a sequence are no neighbours in the pool.
        shuffled = torch.randperm(len(lengths) * per_row, generator=draws)
        self.pages_Bn = torch.tensor(pages).flatten()[shuffled].view(len(lengths), per_row)
        self.lengths = torch.tensor(lengths)
        self.decoder = Decoder(model, self.caches[1])
        self._prefill(tokens(len(lengths), max(lengths)))

    def places(self, num_slots: int) -> Tensor:
        return (self.pages_Bn.unsqueeze(2) * PAGE + torch.arange(PAGE)).flatten(1)[:, :num_slots]

    def _prefill(self, ids_BT: Tensor) -> None:
        for row, length in enumerate(self.lengths.tolist()):
            place = self.places(length)[row : row + 1]
            slots = torch.arange(length)[None]
            view = CacheView(self.caches[0], place, place)
            self.model(ids_BT[row : row + 1, :length], view=view, slots_BT=slots)
        for ours, theirs in zip(self.pools(1), self.pools(0), strict=True):
            ours.copy_(theirs)

    def pools(self, which: int) -> list[Tensor]:
        return [*self.caches[which].rows, *self.caches[which].index]

    def step(self, ids_B: Tensor) -> None:
        """Decode one token of each sequence both ways; all that is written and returned agrees."""
        slots_B, longest = self.lengths, int(self.lengths.max()) + 1
        place_BS = self.places(longest)
        view = CacheView(self.caches[0], place_BS, place_BS.gather(1, slots_B[:, None]))
        wanted: Output = self.model(
            ids_B[:, None], view=view, slots_BT=slots_B[:, None], capture_topk=True
        )
        got = self.decoder.run(ids_B, slots_B, self.pages_Bn[:, : -(-longest // PAGE)], longest)
        torch.testing.assert_close(got.logits_BV, wanted.logits[:, 0], atol=1e-5, rtol=1e-5)
        # A number that lies between two of e4m3 may be rounded to either.
        apart = 2**-3 if self.model.config.index_fp8 else 1e-5
        for ours, theirs in zip(self.pools(1), self.pools(0), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=apart)
        assert (got.routing_BXA is None) == (wanted.routing_BTXA is None)
        if got.routing_BXA is not None and wanted.routing_BTXA is not None:
            mine, model_s = got.routing_BXA.sort(-1).values, wanted.routing_BTXA[:, 0].sort(-1)
            assert torch.equal(mine, model_s.values)
        assert (got.topk is None) == (longest <= self.model.config.index_topk)
        if got.topk is not None:
            assert wanted.topk is not None
            for kept_BK, kept_B1K in zip(got.topk, wanted.topk, strict=True):
                assert sets_of(kept_BK[:, None]) == sets_of(kept_B1K)
        self.lengths = slots_B + 1


@pytest.mark.parametrize("changes", KINDS, ids=str)
@torch.inference_mode()
def test_every_step_equals_the_models(changes: dict[str, Any]) -> None:
    model = small_model(**changes)
    # From fewer keys than are kept to many more, over borders of pages, beside one another.
    for lengths in ([2, 1], [3, 5, 17, 40], [64]):
        twins = Twins(model, lengths, max(lengths) + 12)
        for round_ in range(12):
            twins.step(tokens(len(lengths), 1, seed=round_)[:, 0])


@torch.inference_mode()
def test_weights_are_prepared_anew_by_refresh() -> None:
    model = small_model()
    twins = Twins(model, [9, 20], 40)
    for weight in model.parameters():
        weight.mul_(1.1)
    twins.decoder.refresh()
    twins.step(tokens(2, 1)[:, 0])


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_replies_are_those_of_the_plain_engine(changes: dict[str, Any]) -> None:
    model = small_model(**changes)
    requests = mixed_requests(10, seed=3, capture_topk=True)
    plain = small_engine(model, fused=False).generate(requests)
    fused = small_engine(model).generate(requests)
    for asked, one, other in zip(requests, plain, fused, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        for reply in (one, other):
            assert_exact(model, asked, reply)
        for mine, theirs in ((one.routing, other.routing), (one.topk, other.topk)):
            if mine is None or theirs is None:
                assert mine is theirs
            else:
                assert np.array_equal(np.sort(mine, -1), np.sort(theirs, -1))


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_presets_are_served_exactly_around_index_topk(name: str) -> None:
    config = preset(name, vocab_size=96, num_hidden_layers=2)
    model = DSAForCausalLM(config).eval()
    shake(model)
    lengths = [3, *(config.index_topk + more for more in (-12, -1, 0, 40))]
    requests = [request(length, seed=length, capture_topk=True, max_new=24) for length in lengths]
    engine = small_engine(model, cache_tokens=4096, prefill_chunk_tokens=256)
    for asked, reply in zip(requests, engine.generate(requests), strict=True):
        assert_exact(model, asked, reply)


def test_it_is_done_where_it_pays() -> None:
    paying = {name: fusing_pays(preset(name)) for name in ("tiny", "small", "medium", "large")}
    assert paying == {"tiny": True, "small": True, "medium": False, "large": False}


def test_a_model_in_bfloat16_is_decoded_by_its_own_pass() -> None:
    model = small_model().cast(torch.bfloat16)
    requests = [request(20, seed=i, temperature=0.0) for i in range(3)]
    one, other = (small_engine(model, fused=fused).generate(requests) for fused in (True, False))
    assert [reply.ids.tolist() for reply in one] == [reply.ids.tolist() for reply in other]
    assert [bytes(reply.full_logprobs) for reply in one] == [
        bytes(reply.full_logprobs) for reply in other
    ]

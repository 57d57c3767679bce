"""Other blocks in a layer: forward, files and engine use them, without a copy of ``forward``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from envgen.model.attention import Ask, Attended, LatentAttention
from envgen.model.config import DSAConfig, preset
from envgen.model.engine import Engine, EngineConfig
from envgen.model.indexer import Indexer, IndexQueries
from envgen.model.layer import Blocks
from envgen.model.modeling import DSAForCausalLM
from envgen.model.moe import MLP
from envgen.model.requests import Request
from envgen.model.rope import Angles
from envgen.model.sampling import SamplingParams
from envgen.model.span import Span

CONFIG = preset("tiny", vocab_size=64, num_hidden_layers=2, first_k_dense_replace=2, index_topk=8)
IDS = torch.randint(0, 64, (2, 20), generator=torch.Generator().manual_seed(0))


class Doubled(MLP):
    """Twice what an MLP says."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Mute(LatentAttention):
    """Says nothing."""

    def forward(
        self, x_BTD: Tensor, angles: Angles, span: Span, ask: Ask, given_BTK: Tensor | None = None
    ) -> Attended:
        return Attended(torch.zeros_like(x_BTD))


class Contrary(Indexer):
    """Likes what the other one does not."""

    def queries(self, x_BTD: Tensor, latent_BTQ: Tensor, angles: Angles) -> IndexQueries:
        found = super().queries(x_BTD, latent_BTQ, angles)
        return found._replace(w_BTJ=-found.w_BTJ)


def doubled_mlp(config: DSAConfig, layer: int) -> nn.Module:
    return Doubled(config.hidden_size, config.intermediate_size)


class OtherMLP(DSAForCausalLM):
    blocks = Blocks(mlp=doubled_mlp)


class OtherAttention(DSAForCausalLM):
    blocks = Blocks(attention=Mute)


class OtherIndexer(DSAForCausalLM):
    blocks = Blocks(indexer=Contrary)


def scaled(name: str, factor: float) -> DSAForCausalLM:
    """The plain model, with the weights of one module times a factor."""
    model = DSAForCausalLM(CONFIG).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if name in key:
                weight.mul_(factor)
    return model


@pytest.mark.parametrize(
    ("other", "name", "factor"),
    [
        (OtherMLP, "mlp.down_proj", 2.0),
        (OtherAttention, "o_proj", 0.0),
        (OtherIndexer, "indexer.weights_proj", -1.0),
    ],
)
@torch.no_grad()
def test_forward_files_and_engine_use_the_other_block(
    other: type[DSAForCausalLM], name: str, factor: float, tmp_path: Path
) -> None:
    model = other(CONFIG).eval()
    plain, wanted = DSAForCausalLM(CONFIG).eval(), scaled(name, factor)
    found = model(IDS).logits
    torch.testing.assert_close(found, wanted(IDS).logits, atol=1e-5, rtol=0)
    assert (found - plain(IDS).logits).abs().max() > 1e-3
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(other.from_pretrained(tmp_path)(IDS).logits, found)
    if other is not OtherAttention:  # a mute one writes no cache
        assert greedy(model) == greedy(wanted)
        assert greedy(model) != greedy(plain)


def greedy(model: DSAForCausalLM) -> list[int]:
    engine = Engine(model, EngineConfig(max_batch=2, cache_tokens=256))
    params = SamplingParams(temperature=0.0, max_new_tokens=24)
    done = engine.generate([Request(row, params) for row in IDS.tolist()])
    return [i for one in done for i in one.ids.tolist()]


@torch.no_grad()
def test_a_hook_sees_every_layer_s_attention() -> None:
    model, seen = DSAForCausalLM(CONFIG).eval(), []
    for layer in model.layers():
        layer.self_attn.register_forward_hook(
            lambda module, given, out: seen.append(out.out_BTD.shape)
        )
    model(IDS)
    assert seen == [(2, 20, CONFIG.hidden_size)] * 2

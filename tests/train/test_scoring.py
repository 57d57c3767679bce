from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from envgen.train import scoring
from envgen.train.scoring import Support, score


def support_of(rows: list[list[int]]) -> Support:
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    ids = torch.tensor([i for row in rows for i in row], dtype=torch.int64)
    return Support(lengths.cumsum(0), ids)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_equals_a_slow_reference(data: st.DataObject) -> None:
    vocabulary, count = 9, data.draw(st.integers(1, 5))
    temperature = data.draw(st.sampled_from([0.5, 1.0, 2.0]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    logits = torch.randn(count, vocabulary, generator=generator, requires_grad=True)
    rows = [
        data.draw(st.lists(st.integers(0, vocabulary - 1), max_size=5, unique=True))
        for _ in range(count)
    ]
    tokens = torch.tensor(
        [data.draw(st.sampled_from(row or list(range(vocabulary)))) for row in rows]
    )
    found = score(logits, tokens, temperature, support_of(rows))
    expected: list[Tensor] = []
    for i, row in enumerate(rows):
        kept = row or list(range(vocabulary))
        over = (logits[i, kept] / temperature).log_softmax(-1)
        expected.append(over[kept.index(int(tokens[i]))])
        whole = (logits[i] / temperature).softmax(-1)
        torch.testing.assert_close(found.kept_mass_N[i], whole[kept].sum().detach())
        torch.testing.assert_close(found.entropy_N[i], -(over.exp() * over).sum().detach())
    torch.testing.assert_close(found.logp_N, torch.stack(expected))
    (ours,) = torch.autograd.grad(found.logp_N.sum(), logits, retain_graph=True)
    (reference,) = torch.autograd.grad(torch.stack(expected).sum(), logits)
    torch.testing.assert_close(ours, reference)


class _Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Notes the elements of every new array that an operation gives, but of views and in-place ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.found: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {one.untyped_storage().data_ptr() for one in args if isinstance(one, Tensor)}
        for one in out if isinstance(out, tuple | list) else [out]:
            if isinstance(one, Tensor) and one.untyped_storage().data_ptr() not in given:
                self.found.append(one.numel())
        return out


def test_entropy_takes_the_same_memory_for_any_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scoring, "ENTROPY_VALUES", 1000)
    for count in (20, 200):
        logits = torch.randn(count, 100, generator=torch.Generator().manual_seed(1))
        whole = logits.logsumexp(-1)
        with _Sizes() as sizes:
            found = scoring._entropy(logits, whole, torch.arange(count))
        assert max(sizes.found) == 1000
        p = logits.softmax(-1)
        torch.testing.assert_close(found, -(p * p.log()).sum(-1))


def test_rows_that_were_truncated_ask_nothing_of_the_whole_vocabulary() -> None:
    logits, tokens = torch.randn(50, 100).requires_grad_(), torch.zeros(50, dtype=torch.int64)
    truncated = support_of([[0, 1]] * 50)
    with _Sizes() as sizes:
        one = score(logits, tokens, 1.0, truncated)
    assert sum(count >= logits.numel() for count in sizes.found) == 1  # the scaled logits
    mixed = score(logits, tokens, 1.0, support_of([[0, 1]] * 49 + [[]]))
    assert torch.equal(one.entropy_N[:49], mixed.entropy_N[:49])
    p = logits[49].detach().softmax(-1)
    torch.testing.assert_close(mixed.entropy_N[49], -(p * p.log()).sum())


def test_a_token_outside_its_support_is_refused() -> None:
    with pytest.raises(ValueError, match="sampling mask"):
        score(torch.zeros(1, 4), torch.tensor([3]), 1.0, support_of([[0, 1]]))


def test_temperature_zero_has_no_probabilities() -> None:
    with pytest.raises(ValueError, match="above 0"):
        score(torch.zeros(1, 4), torch.tensor([0]), 0.0)


def top_p(logits: Tensor, mass: float) -> list[int]:
    order = logits.argsort(descending=True)
    before = logits.softmax(-1)[order].cumsum(0) - logits.softmax(-1)[order]
    return sorted(int(i) for i in order[before < mass])


@pytest.mark.parametrize("seed", range(5))
def test_the_mask_gives_sampler_and_trainer_one_action_space(seed: int) -> None:
    """With it every ratio is 1 before an update and E_old[r] = 1 after one; without it r is the kept mass."""
    generator = torch.Generator().manual_seed(seed)
    old = 2 * torch.randn(12, generator=generator, dtype=torch.float64)
    new = old + 0.3 * torch.randn(12, generator=generator, dtype=torch.float64)
    kept = top_p(old, 0.8)
    sampler = old[kept].log_softmax(-1)
    tokens, rows = torch.tensor(kept), [kept] * len(kept)

    def ratios(logits: Tensor, support: Support | None) -> Tensor:
        repeated = logits.float().expand(len(kept), -1)
        return (score(repeated, tokens, 1.0, support).logp_N.double() - sampler).exp()

    torch.testing.assert_close(
        ratios(old, support_of(rows)), torch.ones(len(kept), dtype=torch.float64), atol=1e-6, rtol=0
    )
    expected = (sampler.exp() * ratios(new, support_of(rows))).sum()
    assert expected.item() == pytest.approx(1.0, abs=1e-6)
    mass = old.softmax(-1)[kept].sum().item()
    assert mass < 0.999
    assert (ratios(old, None) - mass).abs().max() < 1e-6

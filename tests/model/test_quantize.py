"""Simulated e4m3 and Hadamard turns."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen.model.quantize import dequantize_blocks, fake_fp8, hadamard, hadamard_matrix

GRID = sorted(
    sign * size
    for sign in (1, -1)
    for exponent in range(16)
    for step in range(8)
    if not (exponent == 15 and step == 7)
    for size in [step / 8 * 2.0**-6 if exponent == 0 else (1 + step / 8) * 2.0 ** (exponent - 7)]
)
"""Every finite e4m3 number, from its definition."""


def nearest(x: float) -> float:
    """By distance; of two, the one whose last bit is 0 (numbers of even place from zero)."""
    ranked = sorted(GRID, key=lambda size: abs(size - x))
    ties = [size for size in ranked[:3] if abs(size - x) == abs(ranked[0] - x)]
    positive = sorted({abs(size) for size in GRID})
    return next(size for size in ties if len(ties) == 1 or positive.index(abs(size)) % 2 == 0)


def by_element(row: list[float]) -> list[float]:
    ratio = max(max(abs(x) for x in row), 1e-4) / 448
    part, exponent = math.frexp(ratio)  # ratio = part * 2^exponent, 0.5 <= part < 1
    scale = 2.0 ** (exponent - 1 if part == 0.5 else exponent)
    return [nearest(x / scale) * scale for x in row]


def test_the_grid_is_torchs() -> None:
    bits = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    assert sorted(set(bits[bits.isfinite()].tolist())) == sorted(set(GRID))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=6), st.integers(-30, 10))
def test_rounding_is_that_of_e4m3_with_a_power_of_two_scale(row: list[float], power: int) -> None:
    scaled = [x * 2.0**power for x in row]
    x = torch.tensor([scaled], dtype=torch.float32)
    assert fake_fp8(x)[0].tolist() == by_element(x[0].tolist())


@pytest.mark.parametrize("power", [-12, -3, 0, 5])
def test_rounding_at_the_edge_of_a_scale(power: int) -> None:
    edge = torch.tensor(448.0 * 2.0**power)
    for top in (edge, edge.nextafter(torch.tensor(0.0)), edge.nextafter(torch.tensor(1e9))):
        x = torch.stack((top, top / 3, -top / 7, top / 6000, -top / 90_000)).unsqueeze(0)
        assert fake_fp8(x)[0].tolist() == pytest.approx(by_element(x[0].tolist()), rel=1e-6)


def test_gradients_pass_straight_and_dtypes_stay() -> None:
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weight = torch.randn(3, 8)
    (grad,) = torch.autograd.grad((fake_fp8(x) * weight).sum(), x)
    assert torch.equal(grad, weight)
    narrow = x.detach().bfloat16()
    assert fake_fp8(narrow).dtype == torch.bfloat16
    assert fake_fp8(narrow)[0].tolist() == by_element(narrow[0].tolist())
    assert fake_fp8(torch.zeros(1, 8)).eq(0).all()


@pytest.mark.parametrize("width", [1, 2, 16, 128])
def test_a_hadamard_turn_is_its_own_inverse(width: int) -> None:
    matrix = hadamard_matrix(width)
    assert set((matrix * width**0.5).round().flatten().tolist()) <= {1.0, -1.0}
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(width), atol=1e-6, rtol=0)
    x = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(hadamard(hadamard(x)), x, atol=1e-5, rtol=0)


def test_block_scales_multiply_their_blocks() -> None:
    weight = torch.ones(5, 7).to(torch.float8_e4m3fn)
    scale = torch.arange(1.0, 7.0).view(3, 2)
    wide = dequantize_blocks(weight, scale, (2, 4))
    assert wide.shape == (5, 7)
    assert all(wide[i, j] == scale[i // 2, j // 4] for i in range(5) for j in range(7))

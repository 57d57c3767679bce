"""Rotary angles: YaRN's published numbers, layouts, and what turning must keep."""

from __future__ import annotations

import math

import pytest
import torch

from envgen.model.config import RopeConfig, preset
from envgen.model.rope import (
    Angles,
    RopeTable,
    _ramp_bounds,
    angle_gain,
    inverse_frequencies,
    rotate_halves,
    rotate_pairs,
)

RELEASE = preset("deepseek-v3.2")


def test_yarn_has_the_numbers_of_the_release() -> None:
    assert _ramp_bounds(RELEASE.rope, 64) == (10, 23)
    assert RELEASE.softmax_scale == pytest.approx(0.135234, abs=5e-7)
    assert angle_gain(RELEASE.rope) == 1.0
    frequencies = inverse_frequencies(RELEASE.rope, 64)
    plain = 10_000.0 ** (-torch.arange(0, 64, 2) / 64)
    torch.testing.assert_close(frequencies[:11], plain[:11])
    torch.testing.assert_close(frequencies[23:], plain[23:] / 40)
    share = (15 - 10) / (23 - 10)
    assert frequencies[15].item() == pytest.approx(plain[15].item() * (1 - share + share / 40))


def test_without_yarn_the_scale_is_plain() -> None:
    plain = RELEASE.model_copy(update={"rope": RopeConfig()})
    assert plain.softmax_scale == pytest.approx(192**-0.5)
    assert angle_gain(plain.rope) == 1.0


def test_unequal_mscales_stretch_the_angles_gain() -> None:
    rope = RELEASE.rope.model_copy(update={"mscale": 0.5})
    wanted = (0.05 * math.log(40) + 1) / (0.1 * math.log(40) + 1)
    assert angle_gain(rope) == pytest.approx(wanted)
    table = RopeTable(rope, 64).at(torch.zeros(1, 1, dtype=torch.long), 0, torch.float32)
    torch.testing.assert_close(table.cos, torch.full((1, 1, 32), wanted))


def angles_at(position: int, width: int = 8) -> Angles:
    table = RopeTable(RopeConfig(), width)
    return table.at(torch.tensor([[position]]), position, torch.float32)


def test_pairs_are_neighbours_and_halves_are_halves() -> None:
    angles = angles_at(3, 4)
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    turned = torch.complex(x[..., 0::2], x[..., 1::2]) * torch.complex(*angles)
    torch.testing.assert_close(rotate_pairs(x, angles), torch.cat((turned.real, turned.imag), -1))
    turned = torch.complex(x[..., :2], x[..., 2:]) * torch.complex(*angles)
    torch.testing.assert_close(rotate_halves(x, angles), torch.cat((turned.real, turned.imag), -1))


@pytest.mark.parametrize("rotate", [rotate_pairs, rotate_halves])
def test_dot_products_depend_on_distance_only(rotate: object) -> None:
    assert callable(rotate)
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    near = (rotate(q, angles_at(9)) * rotate(k, angles_at(4))).sum()
    far = (rotate(q, angles_at(1009)) * rotate(k, angles_at(1004))).sum()
    torch.testing.assert_close(near, far, atol=1e-3, rtol=0)


def test_a_table_grows_and_keeps_what_it_said() -> None:
    table = RopeTable(RELEASE.rope, 64)
    places = torch.tensor([[0, 7, 255]])
    before = table.at(places, 255, torch.float32)
    table.at(torch.tensor([[5000]]), 5000, torch.float32)
    after = table.at(places, 255, torch.float32)
    assert torch.equal(before.cos, after.cos)
    assert torch.equal(before.sin, after.sin)
    assert table.at(places, 255, torch.bfloat16).cos.dtype == torch.bfloat16

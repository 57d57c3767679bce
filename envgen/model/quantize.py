"""Low-precision arithmetic of the release, simulated in wide types: e4m3 with scales, Hadamard turns."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

E4M3_MAX = 448.0
SMALLEST_AMAX = 1e-4


@lru_cache(maxsize=8)
def hadamard_matrix(
    width: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Tensor:
    """Sylvester's matrix, orthonormal: [width, width]; ``width`` is a power of two."""
    with torch.inference_mode(False):  # it is kept, and training may be next to use it
        matrix = torch.ones(1, 1, dtype=torch.float64, device="cpu")
        while matrix.shape[0] < width:
            matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
        return (matrix * float(width**-0.5)).to(device, dtype)


def hadamard(x: Tensor) -> Tensor:
    """Turn the last axis by the orthonormal Hadamard matrix; dot products stay as they are."""
    return x @ hadamard_matrix(x.shape[-1], x.device, x.dtype)


def fake_fp8(x: Tensor) -> Tensor:
    """Round to e4m3 with one power-of-two scale per last-axis row, and back; gradients pass straight.

    s = max(amax, 1e-4) / 448, rounded up to a power of two (ue8m0); x -> e4m3(x / s) * s. Rounded by its
    bits, as in the release's kernel: a logarithm can't tell the next number above a power from it.
    """
    wide = x.detach().float()
    amax = wide.abs().amax(-1, keepdim=True).clamp_min(SMALLEST_AMAX)
    part, exponent = torch.frexp(amax / E4M3_MAX)  # part in [0.5, 1): 0.5 is a power of two
    scale = torch.ldexp(torch.ones_like(amax), exponent - (part == 0.5).int())
    rounded = (wide / scale).to(torch.float8_e4m3fn).float() * scale
    return x + (rounded.to(x.dtype) - x.detach())


def dequantize_blocks(weight: Tensor, scale_inv: Tensor, block: tuple[int, int]) -> Tensor:
    """An e4m3 weight [..., O, I] with one scale per block -> float32 [..., O, I].

    ``scale_inv`` [..., ceil(O / block[0]), ceil(I / block[1])] multiplies, whatever its name says.
    """
    rows, columns = weight.shape[-2:]
    spread = scale_inv.float().repeat_interleave(block[0], -2)[..., :rows, :]
    return weight.float() * spread.repeat_interleave(block[1], -1)[..., :columns]

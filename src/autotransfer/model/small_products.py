"""Batched products of matrices with a short side, by a Triton kernel where there is one.

EEGNet mixes a few channels over thousands of positions: (16 × 16) times (16 × 8192), thousands of times. Libraries
reach half of the memory's speed or less on such shapes; this kernel reads every number once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

SHORT = 64  # a side that fits into one tile


def product(a: Tensor, b: Tensor) -> Tensor:
    """torch.bmm for tensors on a GPU: (P, m, k) × (P, k, n), factors rounded as in TF32."""
    m, k, n = a.shape[1], a.shape[2], b.shape[2]
    kernel = _kernel()
    if kernel is None or m > SHORT or (k > SHORT and n > SHORT):
        return torch.bmm(a, b)
    out = torch.empty(a.shape[0], m, n, dtype=a.dtype, device=a.device)
    long = k <= SHORT  # many columns: tiles of them; else one tile that sums over k
    tile_m, tile_n = _tile(m), 128 if long else _tile(n)
    tile_k = _tile(k) if long else 64
    grid = (a.shape[0], -(-n // tile_n))
    kernel[grid](
        a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k,
        num_warps=4 if long else 1, num_stages=3,
    )  # fmt: skip
    return out


def _tile(side: int) -> int:
    """The next power of 2; tensor cores want 16 at least."""
    return max(16, 1 << (side - 1).bit_length())


@cache
def _kernel() -> Any:
    """None where there is no Triton."""
    try:
        from .triton_product import multiply
    except ImportError:
        return None
    return multiply

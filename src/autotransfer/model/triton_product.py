"""The kernel behind small_products.py. Imported only where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiply(
    a, b, out, m, n, k, a_batch, a_row, a_column, b_batch, b_row, b_column, out_batch, out_row, out_column,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """out[p] = a[p] @ b[p]. A program makes all m rows and TILE_N columns of one product."""
    batch = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for start in range(0, k, TILE_K):
        at = start + inner
        left = tl.load(
            a + batch * a_batch + rows[:, None] * a_row + at[None, :] * a_column,
            mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0,
        )  # fmt: skip
        right = tl.load(
            b + batch * b_batch + at[:, None] * b_row + columns[None, :] * b_column,
            mask=(at[:, None] < k) & (columns[None, :] < n), other=0.0,
        )  # fmt: skip
        total += tl.dot(left, right, input_precision="tf32")
    place = out + batch * out_batch + rows[:, None] * out_row + columns[None, :] * out_column
    tl.store(place, total, mask=(rows[:, None] < m) & (columns[None, :] < n))

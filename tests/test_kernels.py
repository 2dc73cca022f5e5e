"""Distances, length scales, kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.manifold._utils import _binary_search_perplexity

from autotransfer.censoring import kernel_matrices
from autotransfer.censoring.groups import find_groups
from censor_problems import batch, single_term


def test_distances_are_exact_far_from_the_origin_in_float32():
    z = torch.randn(2, 20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    far = (z + 1000).float()
    direct = (far[:, :, None].double() - far[:, None].double()).square().sum(-1)
    torch.testing.assert_close(kernel_matrices.pairwise_distances(far).double(), direct, rtol=1e-4, atol=1e-4)
    assert (kernel_matrices.pairwise_distances(far).diagonal(dim1=-2, dim2=-1) == 0).all()


@pytest.mark.parametrize("mode", ["marginal", "conditional"])
@pytest.mark.parametrize("blocks", ["context", "group"])
def test_the_median_is_taken_over_the_pairs_of_each_block(mode: str, blocks: str):
    z, y, s = batch(rows=31)
    groups = find_groups(single_term(z, y, s, mode), 2)
    same = getattr(groups, blocks)
    d2 = kernel_matrices.pairwise_distances(z)
    found = kernel_matrices.median_distances(d2, same)
    for p in range(len(z)):
        for i in range(z.shape[1]):
            rows = same[p, i].nonzero().flatten()
            a, b = torch.triu_indices(len(rows), len(rows), 1)
            if len(a) == 0:
                assert found[p, i] == 0
                continue
            distances = (z[p, rows[a]] - z[p, rows[b]]).norm(dim=-1)
            assert float(found[p, i]) == pytest.approx(float(np.median(distances.numpy())), rel=1e-10)


def neighbor_probabilities(d2: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    weight = torch.exp(-beta[..., None] * d2).masked_fill(torch.eye(d2.shape[-1], dtype=torch.bool), 0.0)
    return weight / weight.sum(-1, keepdim=True)


@pytest.mark.parametrize(("rows", "target"), [(100, 30.0), (40, 13.0)])
def test_perplexity_agrees_with_scikit_learn(rows: int, target: float):
    z = torch.randn(1, rows, 4, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    d2 = kernel_matrices.pairwise_distances(z)
    beta = kernel_matrices.perplexity_scales(d2, torch.ones(1, rows, rows, dtype=torch.bool))
    reference = _binary_search_perplexity(d2[0].numpy().astype(np.float32), target, 0)
    np.testing.assert_allclose(neighbor_probabilities(d2, beta)[0].numpy(), reference, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length_scale", ["median", "perplexity", 2.0])
def test_small_blocks_and_coinciding_points_have_finite_scales(rows: int, length_scale: str | float):
    spread = torch.randn(1, rows, 3, generator=torch.Generator().manual_seed(0))
    clump = spread.clone()
    clump[:, : (rows + 2) // 2] = 0.0
    same = torch.ones(1, rows, rows, dtype=torch.bool)
    for z in (spread, clump, torch.zeros_like(spread)):
        beta = kernel_matrices.inverse_scales(kernel_matrices.pairwise_distances(z), same, length_scale)
        assert beta.isfinite().all()
        assert (beta > 0).all()
    nothing = kernel_matrices.inverse_scales(
        kernel_matrices.pairwise_distances(spread), torch.zeros_like(same), length_scale
    )
    assert nothing.isfinite().all()

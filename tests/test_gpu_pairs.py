"""Triton kernels on pairs of rows equal the torch code of the censors, on a GPU or interpreted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autotransfer.censoring import groups as rule
from autotransfer.censoring import kernel_matrices, mige, mmd, scores
from autotransfer.censoring.groups import Groups
from autotransfer.gpu import pairs
from triton_device import DEVICE

# (members, rows, contexts, nuisances): several contexts; so many groups that some have one row; hardly any rows
BATCHES = [(2, 37, 3, 4), (2, 21, 2, 9), (1, 1, 1, 1)]


def labels(members: int, rows: int, contexts: int, nuisances: int) -> tuple[Tensor, Tensor]:
    """Context and nuisance (P, B), every ninth row padding."""
    draw = torch.Generator().manual_seed(rows)
    context = torch.randint(contexts, (members, rows), generator=draw)
    nuisance = torch.randint(nuisances, (members, rows), generator=draw)
    padding = torch.arange(rows) % 9 == 8
    return context.masked_fill(padding, -1), nuisance.masked_fill(padding, -1)


def problem(members: int, rows: int, contexts: int, nuisances: int, min_rows: int = 2) -> tuple[Tensor, Groups]:
    """Points (P, B, 5) and the groups, by the torch code."""
    context, nuisance = labels(members, rows, contexts, nuisances)
    z = torch.randn(members, rows, 5, generator=torch.Generator().manual_seed(1))
    return z, rule._find_groups(context, nuisance, min_rows, z.dtype)


def there(groups: Groups) -> Groups:
    return Groups(*(field.to(DEVICE) for field in groups))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("min_rows", [2, 4])
def test_find_groups(batch: tuple[int, int, int, int], min_rows: int) -> None:
    context, nuisance = labels(*batch)
    expected = rule._find_groups(context, nuisance, min_rows, torch.float32)
    found = Groups(*pairs.find_groups(context.to(DEVICE), nuisance.to(DEVICE), min_rows))
    for name, one, other in zip(Groups._fields, found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.cpu(), other), name


@pytest.mark.parametrize("batch", BATCHES)
def test_score_differences(batch: tuple[int, int, int, int]) -> None:
    _, groups = problem(*batch)
    z = 3.0 + torch.randn(*groups.valid.shape, 40, dtype=torch.float64)
    given = torch.randn(2, *z.shape, dtype=torch.float64)
    same = torch.stack([groups.group, groups.context])
    exact = mige.project_scores(given, z, same, groups.context)
    exact = (exact[0] - exact[1]) / groups.valid.sum(-1).clamp(min=1)[:, None, None]
    masks = (same.to(DEVICE), groups.valid.to(DEVICE))
    found = pairs.score_differences(given.float().to(DEVICE), z.float().to(DEVICE), *masks).cpu()
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("length_scale", ["median", "perplexity"])
def test_score_matrices(batch: tuple[int, int, int, int], length_scale: str) -> None:
    z, groups = problem(*batch)
    mask = torch.cat([groups.group, groups.context])
    d2, twice = kernel_matrices.pairwise_distances(z), z.repeat(2, 1, 1)
    beta = kernel_matrices.inverse_scales(d2, mask, length_scale)
    expected = scores._normalize_kernel(
        twice, d2.repeat(2, 1, 1), kernel_matrices.pair_scales(beta, length_scale), mask
    )
    kernel, weights, sums, rows = pairs.score_matrices(
        d2.to(DEVICE), beta.to(DEVICE), mask.to(DEVICE), by_row=length_scale == "perplexity"
    )
    zeta = sums.cpu()[..., None] * twice - weights.cpu() @ twice
    for one, other in zip((kernel.cpu(), zeta, rows.cpu()), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [*BATCHES, (1, 70, 2, 3)])
@pytest.mark.parametrize("grain", [0.0, 3.0])  # coarse: many distances are equal, many 0
def test_median_distances(batch: tuple[int, int, int, int], grain: float) -> None:
    z, groups = problem(*batch)
    z = (z / grain).round() if grain else z
    d2 = kernel_matrices.pairwise_distances(z)
    mask = torch.cat([groups.group, groups.context, torch.ones_like(groups.context)])
    expected = kernel_matrices._median_distances(d2, mask)
    found = pairs.median_distances(d2.to(DEVICE), mask.to(DEVICE)).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_medians_take_pairs_above_the_diagonal_and_bear_signs_and_nan() -> None:
    mask = torch.ones(2, 5, 5, dtype=torch.bool)
    d2 = torch.rand(2, 5, 5)
    d2[0, 0, 1:] = -0.0
    d2[1, 0, 1:] = torch.nan
    d2[1, 3, 4] = torch.nan
    expected = kernel_matrices._median_distances(d2, mask)
    found = pairs.median_distances(d2.to(DEVICE), mask.to(DEVICE)).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0, equal_nan=True)
    assert found[1].isnan().all()


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("length_scale", ["median", "perplexity"])
@pytest.mark.parametrize("pairwise", [False, True])
def test_mmd_and_its_gradient(batch: tuple[int, int, int, int], length_scale: str, pairwise: bool) -> None:
    z, groups = problem(*batch)
    d2 = kernel_matrices.pairwise_distances(z).requires_grad_()
    # Pairs of subjects, not of rows: their number is whole. One may be selected in one order only.
    subject = labels(*batch)[1]
    chosen = torch.rand(batch[3], batch[3], generator=torch.Generator().manual_seed(2)) < 0.6
    selection = chosen[subject[:, :, None], subject[:, None]]
    beta = kernel_matrices.inverse_scales(d2.detach(), groups.context, length_scale)
    scales, by_row = kernel_matrices.pair_scales(beta, length_scale), length_scale == "perplexity"
    again, on_device = d2.detach().to(DEVICE).requires_grad_(), there(groups)
    if pairwise:
        expected = mmd.pairwise_discrepancy(d2, scales, groups, selection)
        masks = (on_device.context, on_device.group, selection.to(DEVICE))
        found = pairs.pairwise_discrepancy(again, beta.to(DEVICE), *masks, on_device.group_rows, by_row=by_row)
    else:
        expected = mmd.mean_discrepancy(mmd.off_diagonal_kernel(d2, scales), groups)
        found = pairs.mean_discrepancy(again, beta.to(DEVICE), *on_device, by_row=by_row)
    torch.testing.assert_close(found.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-6)
    weight = torch.tensor([1.5, -0.7])[: len(z)]
    (expected * weight).sum().backward()
    (found * weight.to(DEVICE)).sum().backward()
    torch.testing.assert_close(again.grad.cpu(), d2.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("batch", BATCHES)
def test_perplexity_scales(batch: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    target = 3.0  # what bounds it in batches as small as these
    monkeypatch.setattr(kernel_matrices, "PERPLEXITY", target)
    z, groups = problem(*batch)
    d2, mask = kernel_matrices.pairwise_distances(z), torch.cat([groups.group, groups.context])
    expected = kernel_matrices.perplexity_scales(d2.double().repeat(2, 1, 1), mask)
    found = pairs.perplexity_scales(
        d2.to(DEVICE), mask.to(DEVICE), target, kernel_matrices._MIN_PERPLEXITY, bracket=kernel_matrices._BRACKET,
        steps=kernel_matrices._GPU_BISECTIONS,
    )  # fmt: skip
    torch.testing.assert_close(found.cpu().double(), expected, rtol=3e-4, atol=0)


@pytest.mark.parametrize("rows", [1, 37])
def test_pairwise_distances_and_their_gradient(rows: int) -> None:
    z = torch.randn(2, rows, 5, generator=torch.Generator().manual_seed(rows))
    z[:, rows // 2] = z[:, 0]  # two rows coincide
    z = (z - z.mean(1, keepdim=True)).requires_grad_()
    weight = torch.randn(2, rows, rows)
    again = z.detach().to(DEVICE).requires_grad_()
    distances = (z[:, :, None] - z[:, None]).square().sum(-1)
    found = pairs.pairwise_distances(again)
    torch.testing.assert_close(found.detach().cpu(), distances.detach(), rtol=1e-4, atol=1e-5)
    assert (found.detach().diagonal(dim1=1, dim2=2) == 0).all()
    (distances * weight).sum().backward()
    (found * weight.to(DEVICE)).sum().backward()
    torch.testing.assert_close(again.grad.cpu(), z.grad, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        again[1, 0] = torch.nan
        assert pairs.pairwise_distances(again).isnan().sum() == 2 * (rows - 1)

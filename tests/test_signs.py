"""Signs of matrices by products, and the solvers that use them on a GPU, against a decomposition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.censoring import filters, signs


def symmetric(values: Tensor) -> Tensor:
    """A matrix with these eigenvalues: (N,) -> (1, N, N)."""
    basis, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=values.dtype))
    matrix = basis * values @ basis.mT
    return ((matrix + matrix.mT) / 2)[None]


@pytest.fixture(autouse=True)
def draws() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("rounding", [0.0, 1e-4])
def test_all_eigenvalues_end_at_one(rounding: float) -> None:
    """From 1e-5 to a little above 1, whatever rounding does on the way; smaller ones stay between 0 and 1."""
    x = 1.004 * torch.logspace(-5, 0, 40001, dtype=torch.float64)
    tiny = torch.logspace(-12, -5, 1001, dtype=torch.float64)
    for a, b, c in signs.STEPS:
        x = x * (a + b * x.square() + c * x.square().square()) * (1 + rounding * torch.randn_like(x))
        tiny = tiny * (a + b * tiny.square() + c * tiny.square().square())
    assert (x - 1).abs().max() < 1e-5 + 10 * rounding
    assert tiny.min() > 0
    assert tiny.max() < 1.00001


def test_sign_of_a_matrix() -> None:
    values = torch.cat([torch.logspace(-5, 0, 20), -torch.logspace(-5, 0, 12)]).double()
    matrix = symmetric(values)
    found = signs.sign(matrix)
    ends = torch.linalg.eigvalsh(found)[0]
    torch.testing.assert_close(ends, values.sign().sort().values, rtol=0, atol=1e-5)
    torch.testing.assert_close(found @ matrix, matrix @ found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positive_part_and_projector(dtype: torch.dtype) -> None:
    matrix = symmetric(torch.linspace(-0.4, 0.9, 24, dtype=dtype))
    values, basis = torch.linalg.eigh(matrix)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(signs.positive_part(matrix), (basis * values.clamp(min=0)) @ basis.mT, **close)
    kept = (basis * (values > 0.21)[..., None, :]) @ basis.mT
    torch.testing.assert_close(signs.project_above(matrix, torch.tensor([0.21], dtype=dtype)), kept, **close)


@pytest.mark.parametrize("length_scale", ["median", "perplexity"])
@pytest.mark.parametrize(
    ("estimator", "gamma"), [("ssge", 0.02), ("stein", 1e-4), ("tikhonov", 1e-4), ("nu_method", 1e-3)]
)
def test_scores_by_products_are_scores_by_decomposition(
    estimator: str, gamma: float, length_scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = torch.randn(2, 60, 6, dtype=torch.float64)
    same = (torch.arange(60) // 20)[:, None] == torch.arange(60) // 20
    keywords = {"same": same.expand(2, 60, 60), "length_scale": length_scale, "regularization": gamma}
    expected = getattr(at.scores, estimator)(z, **keywords)
    monkeypatch.setattr(filters, "uses_products", lambda matrix: True)
    torch.testing.assert_close(getattr(at.scores, estimator)(z, **keywords), expected, rtol=1e-3, atol=1e-4)

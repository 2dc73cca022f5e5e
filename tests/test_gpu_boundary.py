"""Launchers of Triton kernels check their tensors; neither Triton nor a GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from autotransfer import gpu
from autotransfer.gpu import loading, pairs
from autotransfer.gpu.loading import CONTIGUOUS, Argument
from test_kernel_boundary import WRONG

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused(wrong: str, dtype: torch.dtype) -> None:
    given = torch.ones(3, 4, 5).to(dtype)
    assert torch.equal(Argument(given, (3, 4, 5), dtype).check("test", "x", CPU).to(dtype), given)
    with pytest.raises(RuntimeError, match="expected x to be"):
        Argument(WRONG[wrong](given), (3, 4, 5), dtype).check("test", "x", CPU)


def test_a_tensor_is_copied_unless_the_kernel_writes_to_it() -> None:
    turned = torch.rand(3, 5, 4).mT
    assert Argument(turned, (3, 4, 5)).check("test", "x", CPU).is_contiguous()
    with pytest.raises(RuntimeError, match="not contiguous"):
        Argument(turned, (3, 4, 5), layout=CONTIGUOUS).check("test", "x", CPU)


class Launched:
    """Stand-in for a file of kernels and for each kernel: nothing is launched."""

    arg_names = tuple(f"argument {number}" for number in range(30))

    def __getattr__(self, name: str) -> Launched:
        return self

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments, **options: None


P, B, D = 3, 5, 4
FLOATS, SQUARES, MASKS = torch.rand(P, B), torch.rand(P, B, B), torch.ones(P, B, B, dtype=torch.bool)
POINTS, INDICES = torch.rand(P, B, D), torch.zeros(P, B, dtype=torch.int64)
LAUNCHES: list[tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]] = [
    (gpu.product, (POINTS, torch.rand(P, D, 7)), {}),
    (gpu.correlate, (POINTS, torch.rand(P, 3)), {"left": 1}),
    (gpu.correlate_gradient, (POINTS, POINTS), {"kernel": 3, "left": 1}),
    (gpu.solve_, (SQUARES, POINTS), {}),
    (pairs.find_groups, (INDICES, INDICES), {"min_rows": 2}),
    (pairs.score_matrices, (SQUARES, FLOATS, MASKS), {"by_row": False}),
]


@pytest.mark.parametrize(("launch", "tensors", "options"), LAUNCHES)
def test_launchers_say_what_their_kernels_expect(
    monkeypatch: pytest.MonkeyPatch, launch: Callable[..., Any], tensors: tuple[Tensor, ...], options: dict[str, Any]
) -> None:
    monkeypatch.setattr(loading, "_import_kernels", lambda name: Launched())
    launch(*tensors, **options)
    last = tensors[-1]
    with pytest.raises((RuntimeError, NotImplementedError)):  # in another place than the first
        launch(*tensors[:-1], last.to("meta"), **options)
    with pytest.raises(RuntimeError):  # another kind of numbers
        launch(*tensors[:-1], last.to(torch.float16), **options)

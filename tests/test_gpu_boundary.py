"""All tensors that launchers of Triton kernels are given are checked. Needs neither Triton nor a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from autotransfer import gpu
from autotransfer.gpu import Dropping, elementwise, loading, pairs
from test_kernel_boundary import WRONG

P, G, B, C, T, F = 3, 2, 5, 6, 24, 4


def floats(*size: int) -> Tensor:
    return torch.rand(size)


def index(*size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.int64)


def mask(*size: int) -> Tensor:
    return torch.ones(size, dtype=torch.bool)


def draws() -> dict[str, Tensor]:
    return {"halves": torch.zeros(G, F * B * (T // 4), dtype=torch.int16), "group": index(P), "drop": floats(P)}


def numbers(*names: str) -> dict[str, Tensor]:
    return {name: floats(P, F) for name in names}


def pooled(launcher: Callable[..., Any]) -> Callable[..., Any]:
    return lambda halves, group, drop, **rest: launcher(dropping=Dropping(halves, group, drop), **rest)


def squares(*names: str, copies: int = 1) -> dict[str, Tensor]:
    return {name: mask(copies * P, B, B) for name in names}


def distances() -> dict[str, Tensor]:
    return {"d2": floats(P, B, B)}


LAUNCHERS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "product": (gpu.product, lambda: {"a": floats(P, 4, C), "b": floats(G, C, T), "group": index(P)}),
    "product of each": (gpu.product, lambda: {"a": floats(P, 4, C), "b": floats(P, C, T)}),
    "sum_rows": (gpu.sum_rows, lambda: {"table": floats(9, 7), "rows": index(G, B)}),
    "sum_scaled_rows": (
        gpu.sum_scaled_rows,
        lambda: {"table": floats(9, C, 7), "rows": index(G, B), "factors": floats(G, B, C), "linear": mask(7)},
    ),
    "norm_pool_forward": (
        pooled(gpu.norm_pool_forward),
        lambda: {"v": floats(P, F, B * T), "times": T, "pool": 4, "eps": 1e-5} | numbers("gamma", "beta") | draws(),
    ),
    "norm_pool_backward": (
        pooled(gpu.norm_pool_backward),
        lambda: (
            {"grad": floats(P, F, B, T // 4), "grad_squares": floats(P, F, B, T // 4), "v": floats(P, F, B * T)}
            | {"times": T, "pool": 4, "eps": 1e-5}
            | numbers("mean", "variance", "gamma")
            | {"beta": floats(P, F)}
            | draws()
        ),
    ),
    "elu_pool": (
        gpu.elu_pool,
        lambda: {"v": floats(P, F, B * T), **numbers("scale", "shift"), "times": T, "pool": 4},
    ),
    "stretches_forward": (gpu.stretches_forward, lambda: {"v": floats(P, B, T), "length": 8}),
    "stretches_backward": (
        gpu.stretches_backward,
        lambda: (
            {name: floats(P, B, 3) for name in ("grad_level", "grad_square", "level")}
            | {"v": floats(P, B, T), "mean": floats(P), "length": 8}
        ),
    ),
    "correlate": (gpu.correlate, lambda: {"x": floats(P, B, T), "w": floats(P, 9), "left": 4}),
    "correlate_gradient": (
        gpu.correlate_gradient,
        lambda: {"x": floats(P, B, T), "grad": floats(P, B, T), "kernel": 9, "left": 4},
    ),
    "sign": (gpu.sign, lambda: {"matrix": floats(P, B, B), "steps": [(1.5, -0.5, 0.0)]}),
    "solve": (gpu.solve_, lambda: {"matrix": floats(P, B, B), "vectors": floats(P, B, F)}),
    "accelerate": (
        gpu.accelerate,
        lambda: {"matrix": floats(P, B, B), "vectors": floats(P, B, F), "steps": index(P), "rates": [(0.5, 0.5)]},
    ),
    "find_groups": (pairs.find_groups, lambda: {"context": index(P, B), "nuisance": index(P, B), "min_rows": 2}),
    "score_matrices": (
        pairs.score_matrices,
        lambda: distances() | squares("mask", copies=2) | {"beta": floats(2 * P, B), "paired": True},
    ),
    "score_differences": (
        pairs.score_differences,
        lambda: {
            "scores": floats(2, P, B, F),
            "z": floats(P, B, F),
            "same": mask(2, P, B, B),
            "counts": mask(P, B),
        },
    ),
    "next_groups": (
        pairs.next_groups,
        lambda: {"place": index(P, B).int(), "nuisance": index(P, B), **squares("context", "group")},
    ),
    "median_distances": (pairs.median_distances, lambda: distances() | squares("mask", copies=2)),
    "perplexity_scales": (
        lambda d2, mask: pairs.perplexity_scales(d2, mask, 30.0, least=2.0, bracket=9.0, steps=4),
        lambda: distances() | squares("mask", copies=2),
    ),
    "groups_against_contexts": (
        lambda **rest: pairs.groups_against_contexts(**rest, paired=True),
        lambda: (
            {**distances(), "beta": floats(P, B), "counts": mask(P, B), **squares("context", "group")}
            | {name: floats(P, B) for name in ("context_rows", "group_rows", "context_groups")}
        ),
    ),
    "groups_against_groups": (
        lambda **rest: pairs.groups_against_groups(**rest, paired=True),
        lambda: (
            distances() | squares("context", "group", "selection") | {"beta": floats(P, B), "group_rows": floats(P, B)}
        ),
    ),
    "own_distances": (pairs.own_distances, lambda: {"z": floats(P, B, F)}),
    "fold_in": (elementwise.fold_in, lambda: {"keys": index(P, B).int(), "values": index(P, B)}),
    "bits": (elementwise.bits, lambda: {"keys": index(P).int(), "n": 9}),
    "adamw": (
        elementwise.adamw,
        lambda: (
            {name: floats(P, 7) for name in ("values", "first", "second", "grads")}
            | {"steps": floats(P).double(), "lr": floats(P), "weight_decay": floats(P), "active": mask(P)}
            | {"betas": (0.9, 0.99), "eps": 1e-8}
        ),
    ),
}
# Tensors that say themselves how many there are: other sizes of them mean something else, and nothing wrong. Whole
# numbers of either kind are taken where a kernel turns them into its own.
FREE = {
    ("sum_rows", "rows"), ("sum_rows", "table"), ("stretches_forward", "v"), ("correlate", "w"), ("own_distances", "z"),
    ("product", "b"), ("bits", "keys"), ("norm_pool_forward", "halves"), ("norm_pool_backward", "halves"),
}  # fmt: skip
FREE_ROWS = {
    ("sum_scaled_rows", "table"), ("sign", "matrix"),
}  # fmt: skip
FREE_COLUMNS = {
    ("product of each", "b"), ("accelerate", "vectors"), ("solve", "vectors"), ("correlate", "x"),
}  # fmt: skip
FREE_NUMBERS = {("fold_in", "values"), ("accelerate", "steps")}


def cases() -> list[tuple[str, str, str]]:
    return [
        (launcher, name, wrong)
        for launcher, (_, given) in LAUNCHERS.items()
        for name, value in given().items()
        if isinstance(value, Tensor)
        for wrong in WRONG
        if wrong in ("other numbers", "nowhere") or (launcher, name) not in FREE
        if wrong != "a row more" or (launcher, name) not in FREE_ROWS
        if wrong != "a column less" or (launcher, name) not in FREE_COLUMNS
        if wrong != "other numbers" or (launcher, name) not in FREE_NUMBERS
        # All tensors have to be in one place: a single one always is.
        if wrong != "nowhere" or sum(isinstance(other, Tensor) for other in given().values()) > 1
    ]


class Launched:
    """In place of a file of kernels, and of each kernel: notes what would have been launched."""

    arg_names = tuple(f"argument {number}" for number in range(30))

    def __init__(self) -> None:
        self.launches: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Launched:
        return self

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments, **options: self.launches.append(arguments)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    kernels = Launched()
    monkeypatch.setattr(loading, "_file", lambda name: kernels)
    return kernels


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_fits_is_launched_as_contiguous_numbers(launched: Launched, launcher: str) -> None:
    function, given = LAUNCHERS[launcher]
    function(**given())
    tensors = [argument for launch in launched.launches for argument in launch if not isinstance(argument, int | float)]
    assert len(tensors) > len(launched.launches)
    assert all(isinstance(tensor, Tensor) and tensor.is_contiguous() for tensor in tensors)
    assert all(tensor.dtype != torch.bool for tensor in tensors)


@pytest.mark.parametrize(("launcher", "name", "wrong"), cases())
def test_what_does_not_fit_is_refused(launched: Launched, launcher: str, name: str, wrong: str) -> None:
    function, given = LAUNCHERS[launcher]
    arguments = given()
    arguments[name] = WRONG[wrong](arguments[name])
    with pytest.raises((RuntimeError, NotImplementedError, ValueError)):  # not ours: raised on the way there
        function(**arguments)


@pytest.mark.parametrize(("launcher", "name"), [("solve", "matrix"), ("adamw", "values")])
def test_what_must_not_be_copied_has_to_be_contiguous(launched: Launched, launcher: str, name: str) -> None:
    function, given = LAUNCHERS[launcher]
    arguments = given()
    arguments[name] = arguments[name].mT.contiguous().mT
    with pytest.raises(RuntimeError, match="not contiguous"):
        function(**arguments)
    assert not launched.launches


def test_every_launcher_is_tried() -> None:
    public = {
        name
        for module in (gpu, pairs, elementwise)
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
        if not isinstance(value, type) and name not in ("available", "tile", "using_kernels")
    }
    tried = {name.removesuffix(" of each").replace("solve", "solve_") for name in LAUNCHERS}
    assert tried == public

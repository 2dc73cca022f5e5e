"""Compiled kernels refuse every tensor that they would misread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from autotransfer import cpu
from autotransfer.cpu.blocks import (
    BlockOptions,
    InterleavedWindows,
    SavedLatents,
    SavedTensors,
    Weights,
    block_backward,
    block_forward,
    latents_backward,
    latents_forward,
    lay_out,
    second_backward,
    second_forward,
)  # fmt: skip
from autotransfer.cpu.boundary import library
from autotransfer.gpu import DropoutDraws

pytestmark = pytest.mark.skipif(library() is None, reason="the kernels are not built")

P, F, B, T, C, G = 3, 4, 5, 24, 6, 2


def rand(*size: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(sum(size))) + 0.1


def dropout() -> DropoutDraws:
    return DropoutDraws(torch.zeros(G, F * B * (T // 4), dtype=torch.int16), torch.tensor([0, 1, 1]), rand(P) * 0.5)


def first_block() -> dict[str, Any]:
    return {
        "x": rand(G, 16 * C * T), "whose": torch.tensor([0, 1, 1]), "spatial": rand(P, F, C), "constant": rand(P, F, B),
        "w": rand(P, 2, 9), "gamma": rand(P, F), "beta": rand(P, F), "left": 4, "pool": 4, "segments": 3, "length": 8,
        "draws": dropout().draws, "drop": dropout().drop,
    }  # fmt: skip


def block(
    x: Tensor, whose: Tensor, draws: Any, drop: Any, left: int, pool: int, segments: int, length: int,
    **rest: Any,
) -> Any:  # fmt: skip
    windows, form = InterleavedWindows(x, whose, B, T), BlockOptions(left, pool, segments, length, 1e-5)
    weights = Weights(*(rest[name] for name in Weights._fields))
    drops = None if draws is None else DropoutDraws(draws, whose, drop)
    if "v" not in rest:
        units, power, kept = block_forward(windows, weights, form, drops)
        return units, power, *kept
    kept = SavedTensors(*(rest.get(name) for name in SavedTensors._fields))  # type: ignore[arg-type]
    return tuple(block_backward(rest["grad"], rest["grad_power"], windows, weights, form, drops, kept))


def second_block() -> dict[str, Any]:
    return {
        "x": rand(P, C, B, T), "spatial": rand(P, F, C), "w": rand(P, C, 9), "gamma": rand(P, F), "beta": rand(P, F),
        "left": 4, "pool": 4, **vars(dropout()),
    }  # fmt: skip


def second(x: Tensor, draws: Any, group: Any, drop: Any, left: int, pool: int, **rest: Any) -> Any:
    form, drops = BlockOptions(left, pool, 0, 0, 1e-5), DropoutDraws(draws, group, drop)
    weights = Weights(rest["spatial"], None, rest["w"], rest["gamma"], rest["beta"])
    if "v" not in rest:
        units, kept = second_forward(x, weights, form, drops)
        return units, *kept
    kept = SavedTensors(rest["v"], None, None, rest["mean"], rest["variance"])
    grad_x, grads = second_backward(rest["grad"], x, weights, form, drops, kept)
    return grad_x, *grads


def latents() -> dict[str, Any]:
    numbers = {"power": rand(P, F, B, T // 4), "gamma": rand(P, F), "beta": rand(P, F), "floor": 1e-3, "eps": 1e-5}
    return numbers | vars(dropout())


KERNELS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "norm_pool_forward": (
        lambda draws, group, drop, **rest: cpu.norm_pool_forward(dropout=DropoutDraws(draws, group, drop), **rest),
        lambda: (
            {"v": rand(P, F, B * T), "gamma": rand(P, F), "beta": rand(P, F), "times": T, "pool": 4, "eps": 1e-5}
            | vars(dropout())
        ),
    ),
    "norm_pool_backward": (
        lambda draws, group, drop, **rest: cpu.norm_pool_backward(dropout=DropoutDraws(draws, group, drop), **rest),
        lambda: (
            {name: rand(P, F) for name in ("mean", "variance", "gamma", "beta")}
            | {"v": rand(P, F, B * T), "grad": rand(P, F, B, T // 4), "grad_squares": rand(P, F, B, T // 4)}
            | {"times": T, "pool": 4, "eps": 1e-5}
            | vars(dropout())
        ),
    ),
    "correlate": (cpu.correlate, lambda: {"x": rand(P, B, T), "w": rand(P, 9), "left": 4}),
    "correlate_gradient": (
        cpu.correlate_gradient,
        lambda: {"x": rand(P, B, T), "grad": rand(P, B, T), "taps": 9, "left": 4},
    ),
    "lay_out": (lambda x: lay_out(x, None)[:2], lambda: {"x": rand(G, C, B, T)}),
    "block_forward": (block, first_block),
    "block_backward": (
        block,
        lambda: (
            first_block()
            | {"grad": rand(P, F, B, T // 4), "grad_power": rand(P, F, B, 3), "v": rand(P, F, 16 * T)}
            | {"mean": rand(P, F), "variance": rand(P, F)}
        ),
    ),
    "power_backward": (
        lambda **rest: block(draws=None, drop=None, grad=None, **rest),
        lambda: (
            {name: value for name, value in first_block().items() if name not in ("draws", "drop")}
            | {"grad_power": rand(P, F, B, 3), "v": rand(P, F, 16 * T), "mean": rand(P, F), "variance": rand(P, F)}
            | {"level": rand(P, F, 16 * 3), "square": rand(P, F, 16 * 3), "pool": 0}
        ),
    ),
    "second_forward": (second, second_block),
    "second_backward": (
        second,
        lambda: (
            second_block()
            | {"grad": rand(P, B, F, T // 4), "v": rand(P, F, 16 * T), "mean": rand(P, F), "variance": rand(P, F)}
        ),
    ),
    "latents_forward": (
        lambda draws, group, drop, **rest: latents_forward(dropout=DropoutDraws(draws, group, drop), **rest)[0],
        latents,
    ),
    "latents_backward": (
        lambda draws, group, drop, logs, mean, variance, **rest: latents_backward(
            dropout=DropoutDraws(draws, group, drop), saved=SavedLatents(logs, mean, variance), **rest
        ),
        lambda: (
            latents()
            | {"grad": rand(P, B, F * (T // 4)), "logs": rand(P, F, B, T // 4), "mean": rand(P, F)}
            | {"variance": rand(P, F)}
        ),
    ),
    "edge_sums": (cpu.edge_sums, lambda: {"x": rand(P, B, T), "left": 4, "right": 5, "size": 36}),
    "product": (cpu.product, lambda: {"a": rand(P, 4, C), "b": rand(G, C, T), "group": torch.tensor([0, 1, 0])}),
    "product_gradient": (
        lambda a, b, group: cpu.product(a, b.transpose(1, 2), group),
        lambda: {"a": rand(P, 4, T), "b": rand(G, C, T), "group": torch.tensor([0, 1, 0])},
    ),
    "log_scale": (
        cpu.log_scale,
        lambda: {"nearness": -rand(P, B, B), "entropy": rand(P, B), "bracket": 5.0, "bisections": 4, "newton_steps": 4},
    ),
    "mix": (cpu.mix, lambda: {"words": torch.arange(10, dtype=torch.int32)}),
    "append_scale": (cpu.append_scale, lambda: {"x": rand(G, B, C, T), "min_deviation": 1e-8, "log_offset": 1e-8}),
}

WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "other numbers": lambda tensor: tensor.to(torch.float64 if tensor.dtype != torch.float64 else torch.float32),
    "nowhere": lambda tensor: tensor.to("meta"),
    "a row more": lambda tensor: torch.cat([tensor, tensor[-1:]]),
    "a column less": lambda tensor: tensor[..., :-1],
}
FREE = {  # tensors that say themselves how many there are: other sizes of them mean something else, and nothing wrong
    ("mix", "words"), ("append_scale", "x"), ("product", "b"), ("product_gradient", "b"), ("correlate", "w"),
    ("norm_pool_forward", "draws"), ("norm_pool_backward", "draws"), ("lay_out", "x"), ("edge_sums", "x"),
    ("block_forward", "draws"), ("block_backward", "draws"), ("latents_forward", "draws"),
    ("latents_backward", "draws"), ("second_forward", "draws"), ("second_backward", "draws"),
}  # fmt: skip
FREE_ROWS = {("block_forward", "x"), ("block_backward", "x"), ("power_backward", "x")}
FREE_COLUMNS = {("correlate", "x"), ("log_scale", "nearness")}


def cases(kernel: str) -> list[tuple[str, str]]:
    return [
        (name, wrong)
        for name, value in KERNELS[kernel][1]().items()
        if isinstance(value, Tensor)
        for wrong in WRONG
        if wrong in ("other numbers", "nowhere") or (kernel, name) not in FREE
        if wrong != "a row more" or (kernel, name) not in FREE_ROWS
        if wrong != "a column less" or (kernel, name) not in FREE_COLUMNS
    ]


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_fits_is_computed(kernel: str) -> None:
    function, given = KERNELS[kernel]
    out = function(**given())
    tensors = [one for one in (out if isinstance(out, tuple) else (out,)) if one is not None]
    assert tensors
    assert all(bool(one.double().isfinite().all()) for one in tensors)


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_does_not_fit_is_refused(kernel: str) -> None:
    function, given = KERNELS[kernel]
    for name, wrong in cases(kernel):
        arguments = given()
        arguments[name] = WRONG[wrong](arguments[name])
        # The second and third errors are torch's own.
        with pytest.raises((RuntimeError, NotImplementedError, IndexError)):
            function(**arguments)


@pytest.mark.parametrize(
    ("kernel", "name", "value"),
    [
        ("correlate", "left", 9),
        ("correlate", "left", -1), ("correlate_gradient", "taps", 0), ("block_forward", "length", 0),
        ("edge_sums", "size", 33), ("edge_sums", "left", -1), ("edge_sums", "right", 2000),
        ("block_forward", "length", 9), ("block_backward", "length", -8), ("block_forward", "left", 9),
        ("block_forward", "pool", T + 1), ("block_backward", "pool", -4), ("block_backward", "segments", -1),
        ("block_forward", "whose", torch.tensor([0, 1, 2])), ("block_backward", "whose", torch.tensor([0, -1, 1])),
        ("second_forward", "pool", 0), ("second_backward", "pool", T + 1), ("second_backward", "left", 9),
        ("second_forward", "group", torch.tensor([0, 1, 2])), ("block_forward", "pool", 0),
        ("block_backward", "grad", None),
        ("block_backward", "grad_power", None),
        ("power_backward", "level", None), ("power_backward", "segments", 0), ("norm_pool_forward", "pool", 0),
        ("norm_pool_forward", "pool", 4096), ("norm_pool_backward", "times", 0),
        ("product", "group", torch.tensor([0, -1, 0])),
        ("norm_pool_forward", "group", torch.tensor([0, 1, 5])),
    ],
)  # fmt: skip
def test_numbers_that_lead_out_of_bounds_are_refused(kernel: str, name: str, value: object) -> None:
    function, given = KERNELS[kernel]
    with pytest.raises(RuntimeError, match="autotransfer::"):
        function(**(given() | {name: value}))

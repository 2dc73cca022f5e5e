"""Functions for CPUs, each of which runs one compiled C kernel if `is_available()` returns True.

torch operations read and write the signals of a training step a dozen times. Kernels process a part of a signal while
it is in the cache. Functions have the names and results of functions in `gpu`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import c_double, c_float, c_long, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ..gpu import DropoutDraws
from .boundary import Argument, addresses, check_index, check_sizes, library, require_library

MAX_TAPS = 1024  # length of the longest filter, as in kernels.c
MAX_POOL = 64
MEMBERS_PER_THREAD = 4  # number of members for which a thread packs shared signals once
MIN_PARALLEL_SAMPLES = 2**14  # number of samples below which one thread is faster than several

_is_forked = False


def _mark_as_forked() -> None:
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_as_forked)


def is_available(tensor: Tensor, *, dtype: torch.dtype = torch.float32, pool: int = 1, taps: int = 1) -> bool:
    """Return whether kernels can process a tensor, with this width of pooling and length of filters."""
    return (
        tensor.is_cpu
        and tensor.dtype is dtype
        and pool <= MAX_POOL
        and taps <= MAX_TAPS
        and not _is_traced(tensor)
        and tensor.numel() > 0
        and library() is not None
    )


def _is_traced(tensor: Tensor) -> bool:
    """Return whether torch records or replaces operations on a tensor, which does not work with kernels."""
    return (
        type(tensor) not in (Tensor, torch.nn.Parameter)
        or torch._C._is_tracing()
        or torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None  # for example vmap
    )


@cache
def _find_thread_pool() -> int | None:
    """Return the address of GOMP_parallel in torch's OpenMP library, or None if torch uses another library."""
    try:
        torch_library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return ctypes.cast(torch_library.GOMP_parallel, c_void_p).value
    except (OSError, AttributeError):
        return None


def make_task_type(tensors: str, numbers: str, floats: str = "") -> type[ctypes.Structure]:
    """Return the type of a kernel's argument: a struct with these addresses, integers and floats, in this order."""
    types = {c_void_p: tensors, c_long: numbers, c_float: floats}
    fields = [(name, ctype) for ctype, names in types.items() for name in names.split()]
    return type("Task", (ctypes.Structure,), {"_fields_": fields})


def run(
    name: str,
    task: type[ctypes.Structure],
    signal: Tensor,
    tensors: dict[str, Argument],
    numbers: Mapping[str, float],
    *,
    count: int | None = None,
    operation: str | None = None,
) -> None:
    """Check tensors and run a kernel without the interpreter's lock, on as many threads as torch uses.

    task: type of the kernel's argument; signal: tensor whose size determines whether one thread is used; count: number
    of items, by default the length of the signal; operation: name of the kernel in errors
    """
    arguments = task(**addresses(operation or name, **tensors), **numbers)
    threads = 1 if signal.numel() < MIN_PARALLEL_SAMPLES else torch.get_num_threads()
    # A forked process does not have the threads of its parent.
    parallel = None if _is_forked or threads == 1 else _find_thread_pool()
    function = getattr(require_library(name), name)
    if function.argtypes is None:
        function.restype, function.argtypes = None, [c_void_p, c_long, c_long, c_void_p]
    function(parallel, threads, len(signal) if count is None else count, ctypes.byref(arguments))


_NormPool = make_task_type(
    "v gamma beta draws group threshold keep_scale out squares mean variance grad grad_squares grad_v grad_gamma "
    "grad_beta",
    "features batch times pool", "eps",
)  # fmt: skip
_Filter = make_task_type("x w grad out", "rows times taps left flipped")
_Product = make_task_type("a b group order out", "members rows inner columns per_item")
_Edges = make_task_type("x out", "rows times left right size")
_Scales = make_task_type("nearness entropy log_beta", "columns bisections newton_steps", "bracket")


def norm_pool_forward(
    v: Tensor,
    gamma: Tensor,
    beta: Tensor,
    dropout: DropoutDraws,
    times: int,
    pool: int,
    eps: float,
    squared: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Compute `gpu.norm_pool_forward`."""
    _check_pool("norm_pool_forward", times, pool)
    members, features, n = v.shape
    v, gamma, beta = v.contiguous(), gamma.contiguous(), beta.contiguous()
    out = v.new_empty(members, features, n // times, times // pool)
    squares = torch.empty_like(out) if squared else None
    mean, variance = v.new_empty(members, features), v.new_empty(members, features)
    dropout_tensors = _dropout_arguments("norm_pool_forward", dropout, out)
    per_feature = (members, features)
    tensors = dropout_tensors | {
        "v": Argument(v, (*per_feature, n // times * times)), "gamma": Argument(gamma, per_feature),
        "beta": Argument(beta, per_feature), "out": Argument(out, out.shape), "squares": Argument(squares, out.shape),
        "mean": Argument(mean, per_feature), "variance": Argument(variance, per_feature),
    }  # fmt: skip
    numbers = {"features": features, "batch": n // times, "times": times, "pool": pool, "eps": eps}
    run("norm_pool_forward", _NormPool, v, tensors, numbers)
    return out, squares, mean, variance


def norm_pool_backward(
    grad: Tensor, grad_squares: Tensor | None, v: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor,
    dropout: DropoutDraws, times: int, pool: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute `gpu.norm_pool_backward`."""
    _check_pool("norm_pool_backward", times, pool)
    members, features, n = v.shape
    v, gamma, beta, grad = v.contiguous(), gamma.contiguous(), beta.contiguous(), grad.contiguous()
    grad_squares = None if grad_squares is None else grad_squares.contiguous()
    grad_v, grad_gamma, grad_beta = torch.empty_like(v), torch.empty_like(mean), torch.empty_like(mean)
    pooled, per_feature = (members, features, n // times, times // pool), (members, features)
    dropout_tensors = _dropout_arguments("norm_pool_backward", dropout, grad)
    tensors = dropout_tensors | {
        "v": Argument(v, (*per_feature, n // times * times)), "gamma": Argument(gamma, per_feature),
        "beta": Argument(beta, per_feature), "mean": Argument(mean, per_feature),
        "variance": Argument(variance, per_feature), "grad": Argument(grad, pooled),
        "grad_squares": Argument(grad_squares, pooled), "grad_v": Argument(grad_v, v.shape),
        "grad_gamma": Argument(grad_gamma, per_feature), "grad_beta": Argument(grad_beta, per_feature),
    }  # fmt: skip
    numbers = {"features": features, "batch": n // times, "times": times, "pool": pool, "eps": eps}
    run("norm_pool_backward", _NormPool, v, tensors, numbers)
    return grad_v, grad_gamma, grad_beta


def _check_pool(operation: str, times: int, pool: int) -> None:
    check_sizes(operation, times=times, pool=pool)
    if pool > MAX_POOL:
        raise RuntimeError(f"autotransfer::{operation}: expected pool to be at most {MAX_POOL}, but it is {pool}")


def _dropout_arguments(operation: str, dropout: DropoutDraws, units: Tensor) -> dict[str, Argument]:
    """Return the arguments of a kernel that determine which units (P, F, B, T') are dropped."""
    members = len(units)
    draws = dropout.draws.contiguous()
    group = torch.arange(members) if dropout.group is None else dropout.group.contiguous()
    check_index(operation, "group", group, members, len(draws))
    return {
        "draws": Argument(draws, (len(draws), units.numel() // max(members, 1)), torch.int16),
        "group": Argument(group, (members,), torch.int64),
        "threshold": Argument(dropout.threshold, (members,), torch.int32),
        "keep_scale": Argument(dropout.keep_scale, (members,)),
    }


def correlate(x: Tensor, w: Tensor, left: int, *, flipped: bool = False) -> Tensor:
    """Compute `gpu.correlate`."""
    count, rows, times = x.shape
    taps = w.shape[-1]
    _check_filter("correlate", taps, left)
    x, w = x.contiguous(), w.contiguous()
    out = torch.empty_like(x)
    tensors = {"x": Argument(x, x.shape), "w": Argument(w, (count, taps)), "out": Argument(out, x.shape)}
    numbers = {"rows": rows, "times": times, "taps": taps, "left": left, "flipped": flipped}
    run("filter_times", _Filter, x, tensors, numbers, operation="correlate")
    return out


def correlate_gradient(x: Tensor, grad: Tensor, taps: int, left: int) -> Tensor:
    """Compute `gpu.correlate_gradient`."""
    count, rows, times = x.shape
    _check_filter("correlate_gradient", taps, left)
    x, grad = x.contiguous(), grad.contiguous()
    out = x.new_empty(count, taps)
    tensors = {"x": Argument(x, x.shape), "grad": Argument(grad, x.shape), "out": Argument(out, (count, taps))}
    numbers = {"rows": rows, "times": times, "taps": taps, "left": left}
    run("filter_gradient", _Filter, x, tensors, numbers, operation="correlate_gradient")
    return out


def _check_filter(operation: str, taps: int, left: int) -> None:
    if not (1 <= taps <= MAX_TAPS and 0 <= left < taps):
        raise RuntimeError(
            f"autotransfer::{operation}: expected 1 to {MAX_TAPS} taps and less padding than taps, but there are "
            f"{taps} with {left} on the left"
        )


def edge_sums(x: Tensor, left: int, right: int, size: int) -> Tensor:
    """Compute `model.moments.edge_sums`: rows (..., R, T) -> (..., size)."""
    *leading, rows, times = x.shape
    check_sizes("edge_sums", rows=rows, times=times)
    check_sizes("edge_sums", 0, left=left, right=right, room=MAX_TAPS - max(left, right))
    check_sizes("edge_sums", left + right + (left * (left + 1) + right * (right + 1)) // 2, size=size)
    x, out = x.contiguous(), x.new_empty(*leading, size)
    tensors = {"x": Argument(x, x.shape), "out": Argument(out, out.shape)}
    numbers = {"rows": rows, "times": times, "left": left, "right": right, "size": size}
    run("edge_sums", _Edges, x, tensors, numbers, count=x.numel() // (rows * times))
    return out


def product(a: Tensor, b: Tensor, group: Tensor | None = None) -> Tensor:
    """Compute `gpu.product` in float32 for b (G, k, n) with contiguous rows or columns."""
    members, rows, _ = a.shape
    has_contiguous_rows = b.stride(2) == 1
    if group is None:
        group = order = torch.arange(members)
    else:
        group, order = group.contiguous(), group.argsort(stable=True)
    a, b = a.contiguous(), (b if has_contiguous_rows else b.transpose(1, 2)).contiguous()
    groups, inner, columns = b.shape
    out = a.new_empty(members, rows, columns if has_contiguous_rows else inner)
    check_index("product", "group", group, members, groups)
    tensors = {
        "a": Argument(a, (members, rows, inner if has_contiguous_rows else columns)), "b": Argument(b, b.shape),
        "group": Argument(group, (members,), torch.int64), "order": Argument(order, (members,), torch.int64),
        "out": Argument(out, out.shape),
    }  # fmt: skip
    per_item = max(1, min(MEMBERS_PER_THREAD, members // (2 * torch.get_num_threads())))
    numbers = {"members": members, "rows": rows, "inner": inner, "columns": columns, "per_item": per_item}
    name, signal = ("product", out) if has_contiguous_rows else ("product_gradient", a)
    run(name, _Product, signal, tensors, numbers)
    return out


def log_scale(nearness: Tensor, entropy: Tensor, bracket: float, bisections: int, newton_steps: int) -> Tensor:
    """Compute `censoring.kernel_matrices._log_scale`: (P, B, B), (P, B) -> (P, B)."""
    rows, entropy = nearness.contiguous().flatten(0, 1), entropy.contiguous()
    log_beta = torch.empty_like(entropy)
    tensors = {
        "nearness": Argument(rows, (entropy.numel(), nearness.shape[-1])), "entropy": Argument(entropy, entropy.shape),
        "log_beta": Argument(log_beta, entropy.shape),
    }  # fmt: skip
    numbers = {"columns": rows.shape[1], "bisections": bisections, "newton_steps": newton_steps, "bracket": bracket}
    run("log_scales", _Scales, rows, tensors, numbers, operation="log_scale")
    return log_beta


def append_scale(x: Tensor, min_deviation: float, log_offset: float) -> Tensor:
    """Compute `preprocessing.append_scale`: windows (..., C, T) -> (..., 3C, T)."""
    x = x.contiguous()
    *leading, channels, times = x.shape
    check_sizes("append_scale", channels=channels, times=times)
    out, buffer = x.new_empty(*leading, 3 * channels, times), x.new_empty(times, dtype=torch.float64)
    tensors = {"x": Argument(x, x.shape), "out": Argument(out, out.shape)}
    pointers = addresses("append_scale", **tensors, buffer=Argument(buffer, (times,), buffer.dtype)).values()
    require_library("append_scale").append_scale(
        *map(c_long, (x.numel() // (channels * times), channels, times)), c_double(min_deviation), c_double(log_offset),
        *map(c_void_p, pointers),
    )  # fmt: skip
    return out


def mix(words: Tensor) -> Tensor:
    """Compute `randomness.mix` of int32 words."""
    words = words.contiguous()
    out = torch.empty_like(words)
    tensors = {"words": Argument(words, out.shape, torch.int32), "out": Argument(out, out.shape, torch.int32)}
    require_library("mix").mix_words(c_long(words.numel()), *map(c_void_p, addresses("mix", **tensors).values()))
    return out

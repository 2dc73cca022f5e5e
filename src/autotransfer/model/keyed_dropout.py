"""Context in which torch's dropout draws from a key instead of a generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..randomness import fold_in, uniform

# Dropout functions and the number of trailing axes that are dropped together.
_SHARED: dict[Callable[..., Tensor], int] = {F.dropout: 0, F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}


class KeyedDropout(TorchFunctionMode):
    """Context in which dropout layers draw from `key` () and the number of the call, also under vmap."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key, self.calls = key, 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func not in _SHARED:
            return func(*args, **(kwargs or {}))
        return self._dropout(*args, shared=_SHARED[func], **(kwargs or {}))

    def _dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, shared: int
    ) -> Tensor:
        self.calls += 1
        if not training or p == 0:
            return input
        shape = (*input.shape[: input.dim() - shared], *[1] * shared)
        kept = (uniform(fold_in(self.key, self.calls), math.prod(shape)).view(shape) >= p).to(input.dtype)
        scale = kept / (1 - p) if p < 1 else kept
        return input.mul_(scale) if inplace else input * scale

"""torch.autograd.Function with types."""

from __future__ import annotations

from typing import Any

from torch.autograd import Function


def apply(function: type[Function], *arguments: Any) -> Any:
    """function.apply, which torch leaves without types."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch's

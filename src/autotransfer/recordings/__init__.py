"""Labelled windows of several subjects: where they come from, and what must hold for them.

Names load when first used, so that a process that only reads files does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sources import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        sources = import_module(f"{__name__}.sources")
        globals().update({known: getattr(sources, known) for known in sources.__all__}, __all__=sources.__all__)
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

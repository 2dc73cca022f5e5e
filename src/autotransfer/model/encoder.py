"""Base classes for the hyperparameters of encoders; the subclasses build stacked networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from torch import nn

from ..errors import UserError, check_at_most, check_positive, check_types
from .any_module import AnyModule, saved_bytes
from .stack import Size, Stack


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Hyperparameters of an encoder; a subclass adds fields with defaults and defines `module` or `stack`."""

    display_name: ClassVar[str | None] = None  # name in sentences of reports; None: the name in the registry
    is_closed_form: ClassVar[bool] = False  # whether `stack` returns a `ClosedFormEncoder`
    is_fitted_by_one_core: ClassVar[bool] = False  # whether as many members are fitted at once as there are cores
    is_corrected: ClassVar[bool] = True  # whether the latents tell how a subject differs from training subjects
    per_member: ClassVar[tuple[str, ...]] = ()  # fields that may differ between stacked members

    def __post_init__(self) -> None:
        check_types(self)

    def module(self, size: Size) -> nn.Module:
        """Return a newly initialized network that maps windows (B, channels, times) to latents (B, ...)."""
        raise NotImplementedError(f"{type(self).__name__} has neither module nor stack")

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Stack:
        """Return P stacked members, initialized from one seed per member."""
        return AnyModule(lambda: self.module(size), size, members, seeds=seeds)

    def moments_kernel(self, sfreq: float | None) -> int:
        """Return the filter length for which moments of windows are computed, 0 if the encoder needs no moments."""
        return 0

    def program(self, sfreq: float | None) -> tuple[object, ...]:
        """Return a key that is equal for options whose members can be stacked."""
        return tuple((name, value) for name, value in asdict(self).items() if name not in self.per_member)

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        """Return an upper bound on the bytes that one member needs in a training step."""
        return 2 * saved_bytes(lambda: self.module(size), size, max(batch, 2)) * itemsize // 4


def default_temporal_kernel(sfreq: float | None, divisor: int = 2, fallback: int = 64) -> int:
    """Return the number of samples in 1 / divisor seconds, within [3, 64], or the fallback if sfreq is None."""
    return fallback if sfreq is None else int(min(max(round(sfreq / divisor), 3), 64))


@dataclass(frozen=True, kw_only=True)
class ConvolutionalOptions(EncoderOptions):
    """Hyperparameters of all networks with temporal filters."""

    temporal_kernel: int | None = None  # samples; None: the default of `kernel`
    dropout: float = 0.25

    per_member: ClassVar[tuple[str, ...]] = ("dropout",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "temporal_kernel")
        check_at_most(self, temporal_kernel=10**5)
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout is {self.dropout}; it must lie in [0, 1)")

    @abstractmethod
    def kernel(self, sfreq: float | None) -> int:
        """Return the length of the temporal filters in samples."""

    def program(self, sfreq: float | None) -> tuple[object, ...]:
        return (*super().program(sfreq), self.kernel(sfreq))

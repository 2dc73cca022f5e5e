"""What a kind of encoder is: hyperparameters that know how to build P members."""

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
    """Hyperparameters of one kind of encoder. A subclass adds fields with defaults, and either `module`, one network,
    or, where it can be stacked better than torch.func does it, `stack`."""

    display_names: ClassVar[tuple[str, str] | None] = (
        None  # as a label of reports, and inside a sentence; None: its name
    )
    closed_form: ClassVar[bool] = False  # whether it is solved and not trained, by a `ClosedFormEncoder`
    per_member: ClassVar[tuple[str, ...]] = ()  # fields in which stacked members may differ: dropout, shrinkage

    def __post_init__(self) -> None:
        check_types(self)

    def module(self, size: Size) -> nn.Module:
        """Return one network from windows (B, channels, times) to latents (B, ...), newly initialized."""
        raise NotImplementedError(f"{type(self).__name__} has neither module nor stack")

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Stack:
        """Make P members, each with the weights of its own seed."""
        return AnyModule(lambda: self.module(size), size, members, seeds=seeds)

    def moments_kernel(self, sfreq: float | None) -> int:
        """Return the filter length for which it can make use of tabulated window moments; 0: it asks for none."""
        return 0

    def program(self, sfreq: float | None) -> tuple[object, ...]:
        """Return what members must agree in to have parameters of the same shapes."""
        return tuple((name, value) for name, value in asdict(self).items() if name not in self.per_member)

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        """Return an upper estimate of the bytes that one member adds to a step: signals kept for the backward pass."""
        return 2 * saved_bytes(lambda: self.module(size), size, max(batch, 2)) * itemsize // 4


def temporal_kernel_for(sfreq: float | None, parts: int = 2, unknown: int = 64) -> int:
    """Return the samples of one of so many parts of a second, within [3, 64]; `unknown` if the rate is unknown."""
    return unknown if sfreq is None else int(min(max(round(sfreq / parts), 3), 64))


@dataclass(frozen=True, kw_only=True)
class ConvolutionalOptions(EncoderOptions):
    """Hyperparameters that networks with temporal filters share."""

    temporal_kernel: int | None = None  # samples; None: see `kernel`
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

"""What a kind of encoder is: hyperparameters that know how to build P members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import nn

from ..errors import UserError, check_at_most, check_positive, check_types, shown
from .any_module import AnyModule, saved_bytes
from .stack import Size, Stack


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Hyperparameters of one kind of encoder. A subclass adds fields with defaults, and either `module`, one network,
    or, where it can be stacked better than torch.func does it, `stack`."""

    kind_names: ClassVar[tuple[str, str] | None] = None  # as a label of reports, and inside a sentence; None: its name
    closed_form: ClassVar[bool] = False  # whether it is solved and not trained; `stack` then gives a `Solved`
    per_member: ClassVar[tuple[str, ...]] = ()  # ("dropout",) where `stack` takes a probability for each member

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if set(cls.per_member) - {"dropout"}:
            raise TypeError(
                f"{cls.__name__}.per_member is {cls.per_member}; stacked members may differ in dropout only"
            )

    def __post_init__(self) -> None:
        check_types(self)

    def module(self, size: Size) -> nn.Module:
        """Return one network from windows (B, channels, times) to codes (B, ...), newly initialised."""
        raise NotImplementedError(f"{type(self).__name__} has neither module nor stack")

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Stack:
        """P members, each with the weights of its own seed."""
        return AnyModule(lambda: self.module(size), size, members, seeds=seeds)

    def moments_kernel(self, sfreq: float | None) -> int:
        """The filter length for which it can make use of tabulated window moments; 0: it asks for none."""
        return 0

    def program(self, sfreq: float | None) -> tuple[object, ...]:
        """Members that agree in this have parameters of the same shapes."""
        return tuple((name, value) for name, value in asdict(self).items() if name not in self.per_member)

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        """Return an upper estimate of the bytes that one member adds to a step: signals kept for the backward pass."""
        return 2 * saved_bytes(lambda: self.module(size), size, max(batch, 2)) * itemsize // 4


def check_common(options: Any) -> None:
    """Raise unless the temporal_kernel and dropout of an encoder that has them can be."""
    kernel: object = options.temporal_kernel
    if isinstance(kernel, str) and kernel != "half":
        raise UserError(f"unknown temporal_kernel {shown(kernel)}; choose from 'half', a number of samples or None")
    check_positive(options, "temporal_kernel")
    check_at_most(options, temporal_kernel=10**5)
    if not 0 <= options.dropout < 1:
        raise UserError(f"dropout is {options.dropout}; it must lie in [0, 1)")


def kernel_length(given: int | str | None, usual: int) -> int:
    """Samples of a temporal filter: as given, as usual, or with "half" half of that."""
    if isinstance(given, str):  # "half"
        return max(3, usual // 2)
    return given or usual

"""Transforms of windows: hyperparameters, statistics fitted on training windows, and the state of online transforms.

Training, prediction, online sessions and export all use these classes. A transform may change the shape of a window.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UserError, check_choice, check_types
from ..recordings.chunks import row_chunks

PRIOR_WINDOWS = 8  # weight of the prior of online transforms, in windows

Rows = NDArray[np.int64]
T = TypeVar("T")


def select_prefix(prefix: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return the entries whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Transform(ABC):
    """Hyperparameters of a transform, as a frozen dataclass.

    In a Setting, the first field is named like the transform in the registry; other fields keep their names.
    """

    default: ClassVar[object] = None  # value of the first field if a Setting does not give it
    no_op_values: ClassVar[tuple[object, ...]] = ()  # values of the first field that disable the transform
    has_cached_moments: ClassVar[bool] = False  # whether moments of the output are computed before training

    def __post_init__(self) -> None:
        check_types(self)

    def check(self, earlier: Sequence[Transform]) -> None:  # noqa: B027  # most transforms need no check
        """Raise a UserError if the transform cannot follow the earlier transforms."""

    @property
    def adaptation(self) -> str:
        """Return which windows of a new subject are used: "none", earlier windows ("online"), all ("transductive")."""
        return "none"

    @property
    def depends_on_fold(self) -> bool:
        """Return whether transformed training windows depend on the training subjects."""
        return False

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        """Return channels and times of the output; if channels are repeated, the channels of one copy are adjacent."""
        return channels, times

    def n_signal_channels(self, channels: int, times: int) -> int:
        """Return the number of leading output channels that are signals if `channels` leading input channels are."""
        return self.shape(channels, times)[0]

    def n_constant_channels(self, channels: int, times: int) -> int:
        """Return the number of last channels of the output that are constant within a window."""
        return 0

    @abstractmethod
    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        """Fit statistics for G groups of training rows on windows to which the earlier transforms were applied."""

    def restore(self, tensors: dict[str, Tensor]) -> FittedTransform:
        """Return the fitted transform of a saved model from its `state_dict()`; override if there are statistics."""
        return self.fit(TransformedWindows(torch.empty(0, 1, 1), torch.empty(0, dtype=torch.int64)), [])


@dataclass(frozen=True)
class AdaptiveTransform(Transform):
    """Transform with statistics; `scope` names the windows over which statistics are computed."""

    scope: str = "online"

    scopes: ClassVar[tuple[str, ...]] = ("none", "online", "transductive")
    default: ClassVar[object] = "none"

    def __post_init__(self) -> None:
        check_choice(type(self).__name__.lower(), self.scope, self.scopes)  # the name in the registry
        assert self.scope != "none", "Preprocessing.from_values leaves the transform out"

    @property
    def adaptation(self) -> str:
        return self.scope if self.scope in ("online", "transductive") else "none"

    @property
    @abstractmethod
    def fitted_class(self) -> type[FittedTransform]:
        """Return the class of the fitted transform."""

    def restore(self, tensors: dict[str, Tensor]) -> FittedTransform:
        fitted_class = self.fitted_class
        return fitted_class(**{name: tensors[name] for name in fitted_class.statistics})


class FittedTransform(nn.Module, ABC):
    """Transform with fitted buffers, which have the group on axis 0 (length 1 if groups have equal values).

    A group is a set of training rows. A model stores the buffers that `statistics` names. Other buffers are tables over
    recorded subjects, which only training needs.
    """

    statistics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer, persistent=name in self.statistics)

    @abstractmethod
    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        """Map windows (G or 1, B, C, T) to (G or 1, B, C', T').

        subjects: (G or 1, B), subject of each window in the fitted recordings; None: all windows are of one new subject
        """

    def affine(self) -> tuple[Tensor, Tensor] | None:
        """Return shift and factor (G, C) of an affine transform, which is applied while windows are read, or None."""
        return None

    def select(self, groups: Tensor) -> None:
        """Keep only these groups (k,), in place."""
        for name, buffer in self._buffers.items():
            if buffer is not None and len(buffer) > 1:
                self._buffers[name] = buffer[groups]

    def get_group(self, group: int) -> Self:
        """Return the transform of one group; buffers are views of these tensors."""
        transform = copy.copy(self)
        transform._buffers = {
            name: buffer[group : group + 1] if buffer is not None and len(buffer) > 1 else buffer
            for name, buffer in self._buffers.items()
        }
        return transform

    def start_subject(self) -> RunningTransform:
        """Return the transform for the ordered windows of one new subject."""
        return StatelessTransform(self)

    def graph(self) -> nn.Module:
        """Return a module for export that computes the transform in plain operations, or raise a UserError."""
        return self


class OnlineMixin(FittedTransform):
    """Mixin for online transforms: `forward` transforms recorded subjects; new subjects need `start_subject`."""

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        if subjects is None:
            raise UserError("an online transform needs one subject's windows in order; feed them to `start_subject()`")
        prepared: Tensor = super().forward(x, subjects)  # type: ignore[safe-super]  # in the next class
        return prepared

    def graph(self) -> nn.Module:
        raise UserError(
            "the model adapts to each new subject window by window, and an exported graph has no state; "
            "use the format safetensors with at.load_model, or train without adaptation (--adaptation zero-shot)"
        )


def look_up(table: Tensor, subjects: Tensor) -> Tensor:
    """Return entries (G, B, ...) of a table over subjects (G or 1, S, ...) for subjects (G or 1, B)."""
    return table[torch.arange(len(table), device=table.device)[:, None], subjects]


class RunningTransform(ABC):
    """Fitted transform for the ordered windows of one new subject; it may have state."""

    state_names: ClassVar[tuple[str, ...]] = ()  # attributes (tensors) that `feed` replaces

    @abstractmethod
    def feed(self, x: Tensor) -> Tensor:
        """Transform the subject's next windows (G or 1, n, C, T); state tensors are replaced, not changed in place."""

    def state(self) -> dict[str, Tensor]:
        """Return the state tensors by name."""
        return {name: getattr(self, name) for name in self.state_names}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the result of `state()`; raise a ValueError if names, shapes or dtypes differ."""
        if set(state) != set(self.state_names):
            raise ValueError(f"the state has {sorted(state)} instead of {sorted(self.state_names)}")
        for name, tensor in state.items():
            current = getattr(self, name)
            if tensor.shape != current.shape or tensor.dtype != current.dtype:
                found, expected = (f"{t.dtype} {tuple(t.shape)}" for t in (tensor, current))
                raise ValueError(f"{name} is {found} instead of {expected}")
            setattr(self, name, tensor)


class StatelessTransform(RunningTransform):
    """Running transform that transforms every window independently."""

    def __init__(self, fitted: FittedTransform) -> None:
        self.fitted = fitted

    def feed(self, x: Tensor) -> Tensor:
        transformed: Tensor = self.fitted(x)
        return transformed


class RunningSums(RunningTransform):
    """Running transform with a prior, whose state is the number `n` of windows so far, and their sum `total`."""

    state_names: ClassVar[tuple[str, ...]] = ("n", "total")

    def __init__(self, prior: Tensor) -> None:  # (G, ...)
        self.prior = prior.double()
        self.n, self.total = torch.zeros((), dtype=torch.int64, device=prior.device), torch.zeros_like(self.prior)

    def store_sums(self, total: Tensor) -> Tensor:
        """Store the last of n cumulative sums (G, n, ...) and return the number of windows per sum (n,), float64."""
        count = self.n + torch.arange(1, total.shape[1] + 1, dtype=torch.float64, device=total.device)
        self.n, self.total = self.n + total.shape[1], total[:, -1]
        return count


class TransformedWindows:
    """All windows of recordings, to which the transforms fitted so far are applied when windows are read."""

    def __init__(
        self,
        X: Tensor,  # (N, C, T) raw, in memory or in a file
        subject: Tensor,  # (N,)
        steps: Sequence[tuple[Transform, FittedTransform]] = (),
        cache: dict[Any, Any] | None = None,  # values computed from these recordings
        like: Tensor | None = None,  # tensor with the dtype and device of all results; None: X
        precomputed: tuple[int, Tensor] | None = None,  # number of leading transforms, and their output for all windows
    ) -> None:
        self.X, self.like, self.steps, self.precomputed = X, X if like is None else like, list(steps), precomputed
        self.subject = subject.to(self.like.device)
        self._cache = cache if cache is not None else {}

    @property
    def depends_on_fold(self) -> bool:
        return any(transform.depends_on_fold for transform, _ in self.steps)

    @property
    def n_subjects(self) -> int:
        return int(self.subject.max()) + 1

    @property
    def shape(self) -> tuple[int, int]:
        """Return channels and times of a window."""
        channels, times = self.X.shape[1:]
        for transform, _ in self.steps:
            channels, times = transform.shape(channels, times)
        return channels, times

    def get_group(self, group: int) -> TransformedWindows:
        """Return the windows of one group."""
        steps = [(transform, fitted.get_group(group)) for transform, fitted in self.steps]
        return TransformedWindows(self.X, self.subject, steps, self._cache, self.like, self.precomputed)

    def split_groups(self, groups: int) -> list[TransformedWindows]:
        """Return the windows of each group, or a list of length 1 if all groups have equal windows."""
        return [self.get_group(group) for group in range(groups)] if self.depends_on_fold else [self]

    def load(self, rows: Tensor | slice) -> Tensor:
        """Return windows (n, C, T) of the only group, or of any group if all groups have equal windows."""
        start, X = 0, self.X
        if self.precomputed is not None and self.precomputed[0] <= len(self.steps):
            start, X = self.precomputed
        x, subjects = X[rows][None].to(self.like), self.subject[rows][None]
        for _, fitted in self.steps[start:]:
            x = fitted(x, subjects)
        return x[0]

    def chunks(self, values_per_row: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of rows and their windows, in order, in chunks of moderate size."""
        for rows in row_chunks(len(self.X), values_per_row):
            yield rows, self.load(rows)

    def compute_subject_means(self, name: str, measure: Callable[[Tensor], Tensor], groups: int) -> Tensor:
        """Return the mean of `measure(windows)` over the windows of each subject: (G or 1, S, ...) float64.

        name: name of `measure` in the cache; measure: function of windows (n, C, T) -> (n, ...) float64
        """
        group_windows = self.split_groups(groups)
        return torch.stack(
            [windows.compute_once(name, partial(windows._compute_subject_means, measure)) for windows in group_windows]
        )

    def _compute_subject_means(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        channels, times = self.shape
        total: Tensor | None = None
        for rows, x in self.chunks(max(channels * max(channels, times), self.X[0].numel())):
            values = measure(x)
            total = values.new_zeros(self.n_subjects, *values.shape[1:]) if total is None else total
            total.index_add_(0, self.subject[rows], values)
        assert total is not None, "there are windows"
        count = torch.bincount(self.subject, minlength=self.n_subjects).clamp(min=1)
        return total / count.view(-1, *[1] * (total.dim() - 1))

    def average_training_subjects(self, subject_means: Tensor, training: Sequence[Rows]) -> Tensor:
        """Average `subject_means` over the training subjects of each group: (G, ...)."""
        subject = self.subject.numpy(force=True)
        return torch.stack([subject_means[g if self.depends_on_fold else 0, np.unique(subject[rows])].mean(0)
                            for g, rows in enumerate(training)])  # fmt: skip

    def map_groups(self, make: Callable[[int, Rows], T], training: Sequence[Rows]) -> list[T]:
        """Return the results (one per group) of `make(group, rows)`, called once for groups with equal rows."""
        results: dict[bytes, T] = {}
        for group, rows in enumerate(training):
            if rows.tobytes() not in results:
                results[rows.tobytes()] = make(group, rows)
        return [results[rows.tobytes()] for rows in training]

    def compute_once(self, name: object, compute: Callable[[], Any]) -> Any:
        """Return `compute()`, cached with the recordings unless the windows depend on the fold."""
        if self.depends_on_fold:
            return compute()
        key = (name, tuple(transform for transform, _ in self.steps), self.like.dtype, str(self.like.device))
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

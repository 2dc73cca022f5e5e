"""What a transform is: hyperparameters, then statistics fitted on training rows, then one new person followed in order.

Everything that prepares a window goes through these few verbs: training in memory and from a file, prediction, online
use and export. A transform may change the shape of a window.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UserError, check_choice, check_types
from ..recordings.chunks import row_chunks

Rows = NDArray[np.int64]
Named = TypeVar("Named")
T = TypeVar("T")


def with_prefix(prefix: str, values: Mapping[str, Named]) -> dict[str, Named]:
    """Return the entries whose names begin with the prefix, under the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Transform(ABC):
    """Hyperparameters. A subclass is a frozen dataclass whose first field is given to a Setting under the transform's
    own name in the registry, and every other field under its own."""

    default: ClassVar[object] = None  # of the first field in a Setting that does not mention it
    idle: ClassVar[tuple[object, ...]] = ()  # values of the first field by which it would do nothing: it is left out
    tabulated: ClassVar[bool] = False  # whether moments of its output are computed once, not in every step

    def __post_init__(self) -> None:
        check_types(self)

    def check(self, before: Sequence[Transform]) -> None:  # noqa: B027  # most make sense anywhere
        """Raise a UserError where it makes no sense after these transforms."""

    @property
    def adaptation(self) -> str:
        """Return what it uses of a new person: nothing ("none"), windows so far ("online") or all of them
        ("transductive")."""
        return "none"

    @property
    def by_fold(self) -> bool:
        """Tell whether windows of training people depend on who else is trained on."""
        return False

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        """Return channels and times of its output. A transform that makes several channels of each puts the first of
        all channels before the second of all."""
        return channels, times

    def signals(self, channels: int, times: int) -> int:
        """Return how many of its output's first channels are signals over time, if so many of its input are."""
        return self.shape(channels, times)[0]

    def n_constant(self, channels: int, times: int) -> int:
        """Return how many channels of its output, the last ones, have one value throughout a window."""
        return 0

    @abstractmethod
    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        """Fit statistics for G groups of training rows. stage: all windows, as the transforms before leave them."""

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        """Return the fitted transform of a saved model, from the tensors of its `state_dict()`. Overridden where
        there are statistics to restore."""
        return self.fit(Stage(torch.empty(0, 1, 1), torch.empty(0, dtype=torch.int64)), [])


@dataclass(frozen=True)
class Adapting(Transform):
    """A transform of several kinds; "online" and "transductive" use windows of a new person. `none` is left out of a
    Preprocessing."""

    kind: str = "online"

    kinds: ClassVar[tuple[str, ...]] = ("none", "online", "transductive")
    default: ClassVar[object] = "none"

    def __post_init__(self) -> None:
        check_choice(type(self).__name__.lower(), self.kind, self.kinds)  # as the registry has it
        assert self.kind != "none", "left out of a Preprocessing instead"

    @property
    def adaptation(self) -> str:
        return self.kind if self.kind in ("online", "transductive") else "none"

    @property
    @abstractmethod
    def fitted_class(self) -> type[Fitted]:
        """Return the class of the fitted transform of this kind."""

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        fitted_class = self.fitted_class
        return fitted_class(**{name: tensors[name] for name in fitted_class.statistics})


class Fitted(nn.Module, ABC):
    """A transform with its statistics: buffers with a leading group axis, of length 1 where groups do not differ.

    A model stores the buffers that `statistics` names. Others, tables of the people of the recordings, serve training.
    """

    statistics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer, persistent=name in self.statistics)

    @abstractmethod
    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        """Map windows (G or 1, B, C, T) to (G or 1, B, C', T').

        people: (G or 1, B), the subject of each window, as numbered in the recordings it was fitted on. None: all
        windows are one new person's.
        """

    def affine(self) -> tuple[Tensor, Tensor] | None:
        """Return shift and factor (G, C) where that is all it does: gathering can then do it in passing."""
        return None

    def select(self, groups: Tensor) -> None:
        """Keep only these groups (k,), in place."""
        for name, buffer in self._buffers.items():
            if buffer is not None and len(buffer) > 1:
                self._buffers[name] = buffer[groups]

    def of_group(self, group: int) -> Self:
        """Return the transform of one group alone; statistics are views."""
        alone = copy.copy(self)
        alone._buffers = {
            name: buffer[group : group + 1] if buffer is not None and len(buffer) > 1 else buffer
            for name, buffer in self._buffers.items()
        }
        return alone

    def follow(self) -> Follower:
        """Return a follower for one new person, whose windows come in order."""
        return Stateless(self)

    def graph(self) -> nn.Module:
        """Make a module that does the same in plain operations, for export; a UserError if a graph cannot do it."""
        return self


class OnlineOnly(Fitted):
    """Mixin of online transforms: training people are in a table, and a new person's windows go through `follow`."""

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        if people is None:
            raise UserError("an online transform follows one person in order; feed their windows to `follow()`")
        prepared: Tensor = super().forward(x, people)  # type: ignore[safe-super]  # that of the next class
        return prepared

    def graph(self) -> nn.Module:
        raise UserError(
            "the model adapts to every new person, window after window, which a graph without state cannot do; "
            "use the format safetensors with at.load_model, or train one that does not adapt (--adaptation zero-shot)"
        )


def entries_of(table: Tensor, people: Tensor) -> Tensor:
    """Return entries (G, B, ...) of a table (G or 1, S, ...) of the people of the recordings for people (G or 1, B)."""
    return table[torch.arange(len(table), device=table.device)[:, None], people]


class Batch(NamedTuple):
    """A new person's next windows on their way through the transforms."""

    x: Tensor  # (P or 1, n, C, T)
    # Σ x xᵀ / T over the person's windows up to each, all of them prepared as that one is: (P, n, C, C).
    # None: every window counts as it was prepared when it came.
    second: Tensor | None = None


class Follower(ABC):
    remembers: ClassVar[tuple[str, ...]] = ()  # attributes, tensors, that windows of the person change
    reads_second: ClassVar[bool] = False  # whether it makes use of `Batch.second`
    second_wanted = False  # whether the next one does

    @abstractmethod
    def feed(self, batch: Batch) -> Batch:
        """Prepare the next windows of the person; earlier ones are remembered as far as they matter. What is
        remembered is replaced, never changed in place: a state that was given away stays as it is."""

    def state(self) -> dict[str, Tensor]:
        """Return all that is remembered of the person's windows."""
        return {name: getattr(self, name) for name in self.remembers}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state()` of another follower gave; ValueError where it does not fit."""
        if set(state) != set(self.remembers):
            raise ValueError(f"it remembers {sorted(state)}, and not {sorted(self.remembers)}")
        for name, tensor in state.items():
            current = getattr(self, name)
            if tensor.shape != current.shape or tensor.dtype != current.dtype:
                given, expected = (f"{t.dtype} {tuple(t.shape)}" for t in (tensor, current))
                raise ValueError(f"{name} is {given}, and not {expected}")
            setattr(self, name, tensor)


class Stateless(Follower):
    """Every window by itself."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted

    def feed(self, batch: Batch) -> Batch:
        return Batch(self.fitted(batch.x))


class Summing(Follower):
    """Remembers how many windows there were, and a sum over them, `total` (P, ...)."""

    remembers: ClassVar[tuple[str, ...]] = ("n", "total")

    def __init__(self, total: Tensor) -> None:
        """total: zeros."""
        self.n, self.total = torch.zeros((), dtype=torch.int64, device=total.device), total

    def remember(self, total: Tensor) -> Tensor:
        """Map sums (P, n, ...) up to each of the next windows to how many windows each of them is of (n,), float64."""
        count = self.n + torch.arange(1, total.shape[1] + 1, dtype=torch.float64, device=total.device)
        self.n, self.total = self.n + total.shape[1], total[:, -1]
        return count


class Stage:
    """All windows of recordings as the transforms fitted so far leave them."""

    def __init__(
        self,
        X: Tensor,  # (N, C, T) raw, in memory or in a file
        subject: Tensor,  # (N,)
        steps: Sequence[tuple[Transform, Fitted]] = (),
        derived: dict[Any, Any] | None = None,  # what is already known of these recordings
        like: Tensor | None = None,  # has the dtype and the device of everything that is computed; None: those of X
        ready: tuple[int, Tensor] | None = None,  # how many transforms have been applied, and the windows after them
    ) -> None:
        self.X, self.like, self.steps, self.ready = X, X if like is None else like, list(steps), ready
        self.subject = subject.to(self.like.device)
        self._derived = derived if derived is not None else {}

    @property
    def by_fold(self) -> bool:
        return any(transform.by_fold for transform, _ in self.steps)

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

    def people(self, rows: Rows) -> Tensor:
        """Return the people whose rows these are, each once."""
        people: Tensor = self.subject[torch.as_tensor(rows)].unique()  # type: ignore[no-untyped-call]  # torch's
        return people

    def of_group(self, group: int) -> Stage:
        """Return the same windows as one group has them."""
        steps = [(transform, fitted.of_group(group)) for transform, fitted in self.steps]
        return Stage(self.X, self.subject, steps, self._derived, self.like, self.ready)

    def distinct(self, groups: int) -> list[Stage]:
        """Return the windows as each group has them, or once where groups make no difference."""
        return [self.of_group(group) for group in range(groups)] if self.by_fold else [self]

    def windows(self, rows: Tensor | slice) -> Tensor:
        """Return windows (n, C, T), if groups make no difference or there is one."""
        done, X = (0, self.X) if self.ready is None or self.ready[0] > len(self.steps) else self.ready
        x, people = X[rows][None].to(self.like), self.subject[rows][None]
        for _, fitted in self.steps[done:]:
            x = fitted(x, people)
        return x[0]

    def chunks(self, values_per_row: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield every window in order, in pieces of moderate size."""
        for rows in row_chunks(len(self.X), values_per_row):
            yield rows, self.windows(rows)

    def of_people(self, what: str, measure: Callable[[Tensor], Tensor], groups: int) -> Tensor:
        """Return the mean over each person's windows of what `measure` gives for windows (n, C, T), (n, ...)
        float64: for every group, or once where groups make no difference, (G or 1, S, ...)."""
        stages = self.distinct(groups)
        return torch.stack([stage.known(what, partial(stage._of_people, measure)) for stage in stages])

    def _of_people(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        channels, times = self.shape
        total: Tensor | None = None
        for rows, x in self.chunks(max(channels * max(channels, times), self.X[0].numel())):
            values = measure(x)
            total = values.new_zeros(self.n_subjects, *values.shape[1:]) if total is None else total
            total.index_add_(0, self.subject[rows], values)
        assert total is not None, "there are windows"
        count = torch.bincount(self.subject, minlength=self.n_subjects).clamp(min=1)
        return total / count.view(-1, *[1] * (total.dim() - 1))

    def priors(self, of_people: Tensor, training: Sequence[Rows]) -> Tensor:
        """Return what `of_people` gave, averaged over the training people of each group: (G, ...)."""
        return torch.stack([of_people[g if self.by_fold else 0, self.people(rows)].mean(0)
                            for g, rows in enumerate(training)])  # fmt: skip

    def of_groups(self, make: Callable[[int, Rows], T], training: Sequence[Rows]) -> list[T]:
        """Return what `make` gives for each group and its rows, once where several have the same rows."""
        known: dict[bytes, T] = {}
        for group, rows in enumerate(training):
            if rows.tobytes() not in known:
                known[rows.tobytes()] = make(group, rows)
        return [known[rows.tobytes()] for rows in training]

    def known(self, what: object, make: Callable[[], Any]) -> Any:
        """Return the value of `make`, computed once for these recordings if it does not depend on the fold."""
        if self.by_fold:
            return make()
        key = (what, tuple(transform for transform, _ in self.steps), self.like.dtype, str(self.like.device))
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

"""Preprocessing: the chain of transforms of a window before the encoder, saved as part of the model.

To add a transform, write a subclass of `Transform` and one of `FittedTransform`, and add a line to TRANSFORMS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import UserError, is_off, plain_value
from .align import Align
from .append_scale import AppendScale
from .center import Center
from .delays import Delays
from .represent import Represent
from .standardize import Standardize
from .transform import FittedTransform, Rows, RunningTransform, Transform, TransformedWindows, select_prefix

__all__ = [
    "TRANSFORMS", "FittedPreprocessing", "FittedTransform", "Preprocessing", "RunningTransform",
    "SubjectPreprocessing", "Transform", "TransformedWindows",
]  # fmt: skip

# The key is the keyword of a Setting. Transforms are applied in this order.
TRANSFORMS: dict[str, type[Transform]] = {
    "standardize": Standardize,
    "delays": Delays,
    "align": Align,
    "append_scale": AppendScale,
    "represent": Represent,
    "center": Center,
}

WINDOWS_PER_STEP = 64  # number of windows of a new subject that are transformed together


def strongest_adaptation(adaptations: Iterable[str]) -> str:
    """Return the adaptation that uses the most unlabeled windows of a new subject."""
    return max(adaptations, key=("none", "online", "transductive").index, default="none")


@dataclass(frozen=True)
class Preprocessing:
    """Chain of transforms, in the order of the registry."""

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        for index, transform in enumerate(self.transforms):
            transform.check(self.transforms[:index])

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Make the chain from the fields of a Setting."""
        transforms = []
        for name, transform_class in TRANSFORMS.items():
            value = plain_value(values.get(name, transform_class.default))
            if not is_off(value) and (isinstance(value, bool) or value not in transform_class.no_op_values):
                first, *other_fields = (field.name for field in fields(transform_class))
                other_values = {field: values[field] for field in other_fields if field in values}
                transforms.append(transform_class(**{first: value} | other_values))
        return cls(tuple(transforms))

    def to_values(self) -> dict[str, Any]:
        """Return the fields of a Setting for this chain; the field of a missing default transform is 'none'."""
        transforms = {type(transform): transform for transform in self.transforms}
        values: dict[str, Any] = {}
        for name, transform_class in TRANSFORMS.items():
            if transform_class in transforms:
                first, *other_fields = (field.name for field in fields(transform_class))
                values[name] = getattr(transforms[transform_class], first)
                values |= {field: getattr(transforms[transform_class], field) for field in other_fields}
            elif not is_off(transform_class.default):
                values[name] = "none"
        return values

    @property
    def adaptation(self) -> str:
        """Return which windows of a new subject are used: "none", earlier windows ("online"), all ("transductive")."""
        return strongest_adaptation(transform.adaptation for transform in self.transforms)

    @property
    def has_sample_counts(self) -> bool:
        """Return whether features are counts of samples, which rounding errors of the input can change by 1."""
        return any(isinstance(step, Represent) and step.representation.has_sample_counts for step in self.transforms)

    @property
    def sfreq(self) -> float | None:
        """Return the sampling rate in Hz that a representation needs; None if no transform needs a rate."""
        return next((step.sfreq for step in self.transforms if isinstance(step, Represent)), None)

    @property
    def is_online(self) -> bool:
        """Return whether a transform is online. Windows of a new subject must then be transformed in order."""
        return any(transform.adaptation == "online" for transform in self.transforms)

    @property
    def has_cached_moments(self) -> bool:
        return all(transform.has_cached_moments for transform in self.transforms)

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        for transform in self.transforms:
            channels, times = transform.shape(channels, times)
        return channels, times

    def n_signal_channels(self, channels: int, times: int) -> int:
        """Return the number of leading channels of prepared windows that are signals over time."""
        signals = channels
        for transform in self.transforms:
            signals = transform.n_signal_channels(signals, times)
            channels, times = transform.shape(channels, times)
        return signals

    def n_constant_channels(self, channels: int, times: int) -> int:
        """Return the number of last channels of prepared windows that are constant within a window."""
        if not self.transforms:
            return 0
        return self.transforms[-1].n_constant_channels(*Preprocessing(self.transforms[:-1]).shape(channels, times))

    @property
    def n_shared_by_folds(self) -> int:
        """Return the number of leading transforms whose output is equal in all folds."""
        indices = [index for index, transform in enumerate(self.transforms) if transform.depends_on_fold]
        return indices[0] if indices else len(self.transforms)

    @property
    def is_applied_each_step(self) -> bool:
        """Return whether minibatches need transforms other than a shift and scale, which are applied during reading."""
        return self.transforms[self.n_shared_by_folds :] not in ((), (Standardize("train"),))

    @property
    def n_until_representation(self) -> int:
        """Return the number of transforms up to a representation, 0 if one of them depends on subjects or folds."""
        for index, transform in enumerate(self.transforms):
            if transform.depends_on_fold or transform.adaptation != "none":
                return 0
            if isinstance(transform, Represent):
                return index + 1
        return 0

    def fit(
        self,
        X: Tensor,
        subject: Tensor,
        training: Sequence[Rows],
        cache: dict[Any, Any] | None = None,
        like: Tensor | None = None,
        precomputed: tuple[int, Tensor] | None = None,
    ) -> FittedPreprocessing:
        """Fit the transforms in order on raw windows X (N, C, T) of subjects (N,), for G groups of training rows.

        cache, like, precomputed: see `TransformedWindows`
        """
        steps: list[tuple[Transform, FittedTransform]] = []
        for transform in self.transforms:
            windows = TransformedWindows(X, subject, steps, cache, like, precomputed)
            steps.append((transform, transform.fit(windows, training)))
        return FittedPreprocessing(self, [fitted for _, fitted in steps])

    def restore(self, tensors: dict[str, Tensor]) -> FittedPreprocessing:
        """Restore the fitted transforms of a saved model from `FittedPreprocessing.state_dict()`."""
        steps = []
        for name, transform in self.named_transforms():
            try:
                steps.append(transform.restore(select_prefix(f"{name}.", tensors)))
            except KeyError as error:
                raise ValueError(f"the tensor {name}.{error.args[0]} is missing") from None
        return FittedPreprocessing(self, steps)

    def named_transforms(self) -> Iterator[tuple[str, Transform]]:
        names = {transform_class: name for name, transform_class in TRANSFORMS.items()}
        for transform in self.transforms:
            yield names[type(transform)], transform


class FittedPreprocessing(nn.Module):
    """Chain of fitted transforms, saved and exported with a model."""

    def __init__(self, spec: Preprocessing, steps: Sequence[FittedTransform]) -> None:
        super().__init__()
        self.spec = spec
        for (name, _), fitted in zip(spec.named_transforms(), steps, strict=True):
            self.add_module(name, fitted)

    @property
    def steps(self) -> list[FittedTransform]:
        return [step for step in self.children() if isinstance(step, FittedTransform)]

    def forward(self, x: Tensor, subjects: Tensor | None = None, *, start: int = 0, stop: int | None = None) -> Tensor:
        """Apply the transforms from `start` up to `stop` to windows (G or 1, B, C, T) of subjects (G or 1, B)."""
        for step in self.steps[start:stop]:
            x = step(x, subjects)
        return x

    def select(self, groups: Tensor) -> None:
        """Keep only these groups (k,), in place."""
        for step in self.steps:
            step.select(groups)

    def get_group(self, group: int) -> FittedPreprocessing:
        """Return the transforms of one group; statistics are views of these tensors."""
        return FittedPreprocessing(self.spec, [step.get_group(group) for step in self.steps])

    def start_subject(self, start: int = 0) -> SubjectPreprocessing:
        """Return the preprocessing of one new subject per group, from the transform `start` on."""
        names = [name for name, _ in self.spec.named_transforms()]
        transforms = {name: step.start_subject() for name, step in zip(names[start:], self.steps[start:], strict=True)}
        return SubjectPreprocessing(transforms, needs_all_windows=self.spec.adaptation == "transductive")

    def cache_keys(self) -> list[object]:
        """Return a key per transform before the first adaptive transform; transforms with equal keys are equal."""
        keys: list[object] = []
        statistics: tuple[bytes, ...] = ()
        for index, step in enumerate(self.steps):
            if self.spec.transforms[index].adaptation != "none":
                break
            statistics += tuple(table.detach().numpy().tobytes() for table in step.state_dict().values())
            keys.append((self.spec.transforms[: index + 1], statistics))
        return keys

    def graph(self) -> nn.Module:
        """Return a module for export from raw windows (1, N, C, T) to (G or 1, N, C', T'), or raise a UserError."""
        return nn.Sequential(*(step.graph() for step in self.steps))


class SubjectPreprocessing:
    """Preprocessing of the ordered windows of one new subject, fed in chunks of any size.

    Transductive transforms compute statistics from the windows of one call of `feed`.
    """

    def __init__(self, transforms: dict[str, RunningTransform], *, needs_all_windows: bool) -> None:
        self.transforms, self.needs_all_windows = transforms, needs_all_windows

    def feed(self, X: Tensor, keys: Sequence[object] = (), cache: dict[object, Tensor] | None = None) -> Tensor:
        """Map raw windows (n, C, T), n ≥ 1, to prepared windows (G or 1, n, C', T').

        keys: `cache_keys()`; cache: outputs for these windows by key, to which new outputs are added
        """
        if cache is None and not self.needs_all_windows and X.shape[0] > WINDOWS_PER_STEP:  # faster than len(X)
            return torch.cat([self.feed(x) for x in torch.split(X, WINDOWS_PER_STEP)], 1)
        cache = {} if cache is None else cache
        x = X[None]
        for index, transform in enumerate(self.transforms.values()):
            key = keys[index] if index < len(keys) else None
            cached = None if key is None else cache.get(key)
            x = transform.feed(x) if cached is None else cached
            if key is not None:
                cache[key] = x
        return x

    def state(self) -> dict[str, Tensor]:
        """Return the states of all transforms, with names TRANSFORM.NAME."""
        return {f"{name}.{key}": t for name, step in self.transforms.items() for key, t in step.state().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the result of `state()`. Raise a ValueError if names, shapes or dtypes differ."""
        for name, transform in self.transforms.items():
            try:
                transform.restore(select_prefix(f"{name}.", state))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def check_online(spec: Preprocessing) -> None:
    """Raise a UserError if the preprocessing needs all windows of a subject at once."""
    if spec.adaptation == "transductive":
        raise UserError(
            "the model needs all windows of a subject at once (standardize, align or center 'transductive'); "
            "pass them to predict_proba together, or train with 'online'"
        )

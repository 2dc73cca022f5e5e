"""How a window is prepared before an encoder sees it: a chain of transforms that is part of the model.

To add a transform, write one file with a subclass of `Transform` and one of `Fitted`, and add a line to TRANSFORMS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
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
from .transform import Batch, Fitted, Follower, Rows, Stage, Transform, with_prefix

__all__ = [
    "TRANSFORMS", "Batch", "Fitted", "FittedPreprocessing", "Follower", "Person", "Preprocessing", "Stage", "Transform",
]  # fmt: skip

# By the name that a Setting has for them, in the order in which they are applied.
TRANSFORMS: dict[str, type[Transform]] = {
    "standardize": Standardize,
    "delays": Delays,
    "align": Align,
    "append_scale": AppendScale,
    "represent": Represent,
    "center": Center,
}

STEP = 64  # windows of a new person worked on at once


def strongest(adaptations: Iterable[str]) -> str:
    """Return the adaptation that uses most of a new person's unlabeled windows."""
    return max(adaptations, key=("none", "online", "transductive").index, default="none")


@dataclass(frozen=True)
class Preprocessing:
    """Transforms in the order of the registry."""

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        for place, transform in enumerate(self.transforms):
            transform.check(self.transforms[:place])

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Make the chain from the fields of a Setting: the value of each transform, and of its other fields."""
        transforms = []
        for name, kind in TRANSFORMS.items():
            value = plain_value(values.get(name, kind.default))
            if not is_off(value) and (isinstance(value, bool) or value not in kind.idle):
                others = {field.name: values[field.name] for field in fields(kind)[1:] if field.name in values}
                transforms.append(kind(**{fields(kind)[0].name: value} | others))
        return cls(tuple(transforms))

    def values(self) -> dict[str, Any]:
        """Return the fields of a Setting that make the same; 'none' for a default that is left out."""
        present = {type(transform): transform for transform in self.transforms}
        values: dict[str, Any] = {}
        for name, kind in TRANSFORMS.items():
            if kind in present:
                first, *others = (field.name for field in fields(kind))
                values[name] = getattr(present[kind], first)
                values |= {other: getattr(present[kind], other) for other in others}
            elif not is_off(kind.default):
                values[name] = "none"
        return values

    @property
    def adaptation(self) -> str:
        """Return what a new person's own unlabeled windows are used for: none (zero-shot), online (each window is
        prepared with those before it) or transductive (with all of them, later ones too)."""
        return strongest(transform.adaptation for transform in self.transforms)

    @property
    def counts(self) -> bool:
        """Tell whether samples are counted, so that rounding may move a number by one of them."""
        return any(isinstance(step, Represent) and step.of_windows.counts for step in self.transforms)

    @property
    def sfreq(self) -> float | None:
        """Return the sampling rate in Hz that windows are taken to have; None where it makes no difference."""
        return next((step.sfreq for step in self.transforms if isinstance(step, Represent)), None)

    @property
    def follows(self) -> bool:
        """Tell whether some transform is online: it prepares a new person's windows differently."""
        return any(transform.adaptation == "online" for transform in self.transforms)

    @property
    def tabulated(self) -> bool:
        return all(transform.tabulated for transform in self.transforms)

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        for transform in self.transforms:
            channels, times = transform.shape(channels, times)
        return channels, times

    def signals(self, channels: int, times: int) -> int:
        """Return how many channels of prepared windows, the first ones, are signals over time."""
        signals = channels
        for transform in self.transforms:
            signals = transform.signals(signals, times)
            channels, times = transform.shape(channels, times)
        return signals

    def n_constant(self, channels: int, times: int) -> int:
        """Return how many channels of prepared windows, the last ones, have one value throughout a window."""
        if not self.transforms:
            return 0
        return self.transforms[-1].n_constant(*Preprocessing(self.transforms[:-1]).shape(channels, times))

    @property
    def by_fold(self) -> int:
        """Return the place of the first transform by which training windows depend on the fold; all that comes
        before it is the same for everybody."""
        places = [place for place, transform in enumerate(self.transforms) if transform.by_fold]
        return places[0] if places else len(self.transforms)

    @property
    def repeated(self) -> bool:
        """Tell whether training windows are transformed again in every step: by more than the shift and scale of a
        fold, which they get while they are gathered."""
        return self.transforms[self.by_fold :] not in ((), (Standardize("train"),))

    @property
    def represented(self) -> int:
        """Return how many transforms lead to a representation of every window that neither its person nor the fold
        changes; 0 where there is none."""
        for place, transform in enumerate(self.transforms):
            if transform.by_fold or transform.adaptation != "none":
                return 0
            if isinstance(transform, Represent):
                return place + 1
        return 0

    def fit(
        self,
        X: Tensor,
        subject: Tensor,
        training: Sequence[Rows],
        derived: dict[Any, Any] | None = None,
        like: Tensor | None = None,
        ready: tuple[int, Tensor] | None = None,
    ) -> FittedPreprocessing:
        """Fit the transforms one after the other. X: (N, C, T) raw windows; subject: (N,); training: the rows of
        each of G groups. The rest: see Stage."""
        steps: list[tuple[Transform, Fitted]] = []
        for transform in self.transforms:
            steps.append((transform, transform.fit(Stage(X, subject, steps, derived, like, ready), training)))
        return FittedPreprocessing(self, [fitted for _, fitted in steps])

    def restore(self, tensors: dict[str, Tensor]) -> FittedPreprocessing:
        """Restore the fitted transforms of a saved model from the tensors of `FittedPreprocessing.state_dict()`."""
        steps = []
        for name, transform in self.named():
            try:
                steps.append(transform.restore(with_prefix(f"{name}.", tensors)))
            except KeyError as error:
                raise ValueError(f"the tensor {name}.{error.args[0]} is missing") from None
        return FittedPreprocessing(self, steps)

    def named(self) -> Iterator[tuple[str, Transform]]:
        names = {kind: name for name, kind in TRANSFORMS.items()}
        for transform in self.transforms:
            yield names[type(transform)], transform


class FittedPreprocessing(nn.Module):
    """The transforms with their statistics: part of a model, saved and exported with it."""

    def __init__(self, spec: Preprocessing, steps: Sequence[Fitted]) -> None:
        super().__init__()
        self.spec = spec
        for (name, _), fitted in zip(spec.named(), steps, strict=True):
            self.add_module(name, fitted)

    @property
    def steps(self) -> list[Fitted]:
        return [step for step in self.children() if isinstance(step, Fitted)]

    def forward(self, x: Tensor, people: Tensor | None = None, *, start: int = 0, stop: int | None = None) -> Tensor:
        """Take windows (G or 1, B, C, T) of people (G or 1, B) through the transforms from `start` up to `stop`."""
        for step in self.steps[start:stop]:
            x = step(x, people)
        return x

    def select(self, groups: Tensor) -> None:
        """Keep only these groups (k,), in place."""
        for step in self.steps:
            step.select(groups)

    def of_group(self, group: int) -> FittedPreprocessing:
        """Return the transforms of one group alone; statistics are views."""
        return FittedPreprocessing(self.spec, [step.of_group(group) for step in self.steps])

    def follow(self, start: int = 0) -> Person:
        """Return one new person for each of the G groups; windows have been through the transforms before `start`."""
        names = [name for name, _ in self.spec.named()]
        followers = {name: step.follow() for name, step in zip(names[start:], self.steps[start:], strict=True)}
        return Person(followers, at_once=self.spec.adaptation == "transductive")

    def prefixes(self) -> list[object]:
        """Return a key of each transform with all before it, equal if they do the same to the same windows; as far
        as they do it to every window by itself."""
        keys: list[object] = []
        statistics: tuple[bytes, ...] = ()
        for place, step in enumerate(self.steps):
            if self.spec.transforms[place].adaptation != "none":
                break
            statistics += tuple(table.detach().numpy().tobytes() for table in step.state_dict().values())
            keys.append((self.spec.transforms[: place + 1], statistics))
        return keys

    def graph(self) -> nn.Module:
        """Map raw windows (1, N, C, T) to (P or 1, N, C', T') in plain operations; refused if a graph cannot."""
        return nn.Sequential(*(step.graph() for step in self.steps))


class Person:
    """One new person. Feed their windows in order, in pieces of any size.

    What a transductive transform takes from all of a person's windows it takes from those of one call.
    """

    def __init__(self, followers: dict[str, Follower], *, at_once: bool) -> None:
        """followers: by the names of their transforms, in order."""
        self.followers, self.at_once = followers, at_once
        for follower, after in pairwise(followers.values()):
            follower.second_wanted = after.reads_second

    def feed(self, X: Tensor, keys: Sequence[object] = (), known: dict[object, Batch] | None = None) -> Tensor:
        """Map raw windows (n, C, T), n ≥ 1 to prepared ones (P or 1, n, C', T').

        keys: of the first transforms, each with all before it; what `known` has under one of them was done to these
        very windows already, and what is done is added to it
        """
        if known is None and not self.at_once and X.shape[0] > STEP:  # len() of a tensor takes longer
            return torch.cat([self.feed(X[start : start + STEP]) for start in range(0, len(X), STEP)], 1)
        known = {} if known is None else known
        batch = Batch(X[None])
        for place, follower in enumerate(self.followers.values()):
            key = keys[place] if place < len(keys) else None
            done = None if key is None else known.get(key)
            batch = follower.feed(batch) if done is None else done
            if key is not None:
                known[key] = batch
        return batch.x

    def state(self) -> dict[str, Tensor]:
        """Return what is remembered of the person, as TRANSFORM.NAME; nothing where no transform is online."""
        return {f"{name}.{key}": t for name, step in self.followers.items() for key, t in step.state().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what `state()` gave; ValueError if it does not fit."""
        for name, follower in self.followers.items():
            try:
                follower.restore(with_prefix(f"{name}.", state))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def check_online(spec: Preprocessing) -> None:
    """Raise where windows cannot come one by one."""
    if spec.adaptation == "transductive":
        raise UserError(
            "the model takes all of a person's windows at once (standardize, align or center 'transductive'); "
            "give them to predict_proba together, or train with 'online'"
        )

"""Augmentation: small changes of training windows, so that a network learns to ignore what does not matter.

To add one, write one file with a subclass of `Augmentation` and add a line to AUGMENTATIONS. It changes preprocessed
windows, and only in training steps. Random draws are a function of (fold, seed, epoch, step, row), so that an outcome
does not depend on the jobs that a job is stacked with. Moments are computed from the changed windows by the encoder;
precomputed tables of moments are not used. One that multiplies channels by factors is a `Scaling`, and gives these.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..errors import is_off, plain_value
from .amplitude import Amplitude
from .augmentation import Augmentation, Scaling, TrainingBatch
from .channel_mask import ChannelMask
from .mixup import Mixup

__all__ = ["AUGMENTATIONS", "Augmentation", "Scaling", "TrainingBatch", "augmentation_of", "augmentation_values"]

# By the name that a Setting has for them, in the order in which they are applied: what silences comes last, so that
# nothing is mixed or moved into the silence.
AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "mixup": Mixup,
    "amplitude": Amplitude,
    "channel_mask": ChannelMask,
}


def augmentation_of(values: dict[str, Any]) -> tuple[Augmentation, ...]:
    """Return the augmentations of a Setting from its fields: the value of each, and of its other fields."""
    chosen = []
    for name, kind in AUGMENTATIONS.items():
        first, *others = fields(kind)
        value = plain_value(values.get(name))
        if not is_off(value):
            options = {field.name: values[field.name] for field in others if field.name in values}
            chosen.append(kind(**{first.name: value} | options))
    return tuple(chosen)


def augmentation_values(augmentations: tuple[Augmentation, ...]) -> dict[str, Any]:
    """Return the fields of a Setting that give these augmentations."""
    values: dict[str, Any] = {}
    for name, kind in AUGMENTATIONS.items():
        for augmentation in augmentations:
            if type(augmentation) is kind:
                first, *others = fields(kind)
                values[name] = getattr(augmentation, first.name)
                values |= {field.name: getattr(augmentation, field.name) for field in others}
    return values
